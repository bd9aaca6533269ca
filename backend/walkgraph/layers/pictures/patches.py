"""Pictures as tensors and as rows of patches.

Shape letters: B pictures or clips, F frames of a clip, C channels, H height, W width, p patch side, N = (H/p) * (W/p)
patches, row-major.
"""

import torch
from torch import Tensor


def normalise(picture: Tensor) -> Tensor:
    """Levels of 255, uint8 or float `[..., H, W, 3]` -> float32 `[..., 3, H, W]` in [-1, 1]."""
    # One copy, and two passes: memory takes longer than the arithmetic. The results are the same, bit by bit, as those
    # of (x / 255 - 0.5) / 0.5: to halve or double a float is exact.
    return picture.movedim(-1, -3).to(torch.float32, copy=True).div_(127.5).sub_(1)


def to_picture(image: Tensor) -> Tensor:
    """float `[..., 3, H, W]` in [-1, 1] (clamped) -> uint8 `[..., H, W, 3]`, truncated."""
    return (image.float() * 0.5 + 0.5).clamp(0, 1).mul(255).to(torch.uint8).movedim(-3, -1)


def to_levels(image: Tensor) -> Tensor:
    """The inverse of `normalise`: float `[..., 3, H, W]` in [-1, 1] (clamped) -> uint8 `[..., H, W, 3]`, rounded."""
    return (image.float() * 0.5 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8).movedim(-3, -1)


def bilinear(picture: Tensor, height: int, width: int) -> Tensor:
    """uint8 `[H, W, C]` -> float32 levels `[height, width, C]`, each from the four pixels nearest to its centre.

    Equals `torch.nn.functional.interpolate(mode="bilinear")` without antialiasing, which would convert all pixels to
    float32: four times a large picture's memory, although a small result reads few of them."""
    top, bottom, down = _between(picture.shape[0], height)
    left, right, across = _between(picture.shape[1], width)

    def row(index: Tensor) -> Tensor:
        pixels, right_share = picture[index], across[:, None]
        return pixels[:, left].float() * (1 - right_share) + pixels[:, right].float() * right_share

    lower_share = down[:, None, None]
    return row(top) * (1 - lower_share) + row(bottom) * lower_share


def _between(count: int, wanted: int) -> tuple[Tensor, Tensor, Tensor]:
    """For `wanted` centres over `count` pixels: the pixel before each, the one after it, and the weight of the
    latter."""
    at = ((torch.arange(wanted) + 0.5) * (count / wanted) - 0.5).clamp(min=0)
    before = at.long().clamp(max=count - 1)
    return before, (before + 1).clamp(max=count - 1), at - before


def patchify(x: Tensor, p: int) -> Tensor:
    """`[B, C, H, W]` -> `[B, N, p * p * C]`; inside a patch: row, column, channel."""
    b, c, h, w = x.shape
    return x.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, p * p * c)


def unpatchify(rows: Tensor, p: int, height: int, width: int) -> Tensor:
    """The inverse: `[B, N, p * p * C]` -> `[B, C, height * p, width * p]`; height and width count patches."""
    b, _, d = rows.shape
    c = d // (p * p)
    x = rows.view(b, height, width, p, p, c).permute(0, 5, 1, 3, 2, 4)
    return x.reshape(b, c, height * p, width * p)


def block_patches(clips: Tensor, p: int, block: int) -> Tensor:
    """`[B, F, C, H, W]` -> `[B * N, C * F * p * p]`: a patch holds all frames of its clip, by channel, frame, row and
    column; patches come in squares of `block` by `block`, row-major inside them as the squares are."""
    b, f, c, h, w = clips.shape
    cells = clips.view(b, f, c, h // (block * p), block, p, w // (block * p), block, p)
    return cells.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(-1, c * f * p * p)


def in_blocks(cells: Tensor, block: int) -> Tensor:
    """`[H, W, ...]` -> `[H * W, ...]` in the order of `block_patches`."""
    return cells.unflatten(1, (-1, block)).unflatten(0, (-1, block)).transpose(1, 2).flatten(0, 3)


def grid_ids(height: int, width: int, side: int, *, device: torch.device | str | None = None) -> Tensor:
    """int64 `[height * width]`: row * side + column of every cell, row-major. `side` is the table's, not the grid's."""
    rows = torch.arange(height, device=device)[:, None] * side
    return (rows + torch.arange(width, device=device)).flatten()
