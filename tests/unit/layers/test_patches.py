"""Pictures, patches and grid ids."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.pictures.patches import (
    bilinear,
    block_patches,
    grid_ids,
    in_blocks,
    normalise,
    patchify,
    to_picture,
    unpatchify,
)


def test_a_patch_is_row_column_channel() -> None:
    x = torch.arange(2 * 3 * 4 * 6).float().view(2, 3, 4, 6)
    rows = patchify(x, 2)
    assert rows.shape == (2, 6, 12)
    for patch, (top, left) in {0: (0, 0), 2: (0, 4), 4: (2, 2)}.items():
        want = [x[1, c, top + p, left + q] for p in range(2) for q in range(2) for c in range(3)]
        assert rows[1, patch].tolist() == want


def test_unpatchify_undoes_patchify() -> None:
    x = torch.randn(2, 5, 6, 4)
    assert torch.equal(unpatchify(patchify(x, 2), 2, 3, 2), x)


def test_patches_in_blocks_hold_all_frames_of_their_clip() -> None:
    """Patches of 2 clips of 3 frames, 4 by 3 blocks of 2 by 2 patches of 5 pixels each."""
    clips = torch.randn(2, 3, 4, 8 * 5, 6 * 5)
    wanted = [
        clip[:, :, 5 * row : 5 * row + 5, 5 * column : 5 * column + 5].transpose(0, 1).flatten()
        for clip in clips
        for top in range(0, 8, 2)
        for left in range(0, 6, 2)
        for row in (top, top + 1)
        for column in (left, left + 1)
    ]
    assert torch.equal(block_patches(clips, 5, 2), torch.stack(wanted))


def test_cells_in_blocks_are_in_the_order_of_patches() -> None:
    cells = torch.arange(6 * 9 * 2).view(6, 9, 2)
    picture = cells.permute(2, 0, 1)[None, None]
    assert torch.equal(in_blocks(cells, 3), block_patches(picture, 1, 3))


def test_a_picture_survives_the_round_trip_and_truncates() -> None:
    picture = torch.randint(0, 256, (1, 4, 4, 3), dtype=torch.uint8)
    image = normalise(picture)
    assert image.shape == (1, 3, 4, 4)
    assert image.min() >= -1
    assert image.max() <= 1
    # 255 (x/255) may fall just under x in float32, and writing truncates.
    assert (picture.int() - to_picture(image).int()).abs().max() <= 1
    assert to_picture(torch.tensor([[[-3.0]], [[0.0]], [[3.0]]])).tolist() == [[[0, 127, 255]]]


@pytest.mark.parametrize("levels", [torch.arange(256, dtype=torch.uint8), torch.linspace(0, 255, 9999)])
def test_levels_are_normalised_to_the_very_bits_of_the_definition(levels: Tensor) -> None:
    wanted = (levels.float() / 255 - 0.5) / 0.5
    assert torch.equal(normalise(levels.view(1, -1, 1).expand(1, -1, 3)), wanted.expand(3, 1, -1))


def test_grid_ids_count_rows_of_the_table() -> None:
    assert grid_ids(2, 3, 70).tolist() == [0, 1, 2, 70, 71, 72]


@pytest.mark.parametrize("size", [(720, 720), (257, 257), (5, 3), (1, 1), (90, 64), (64, 90)])
@pytest.mark.parametrize("wanted", [(256, 256), (32, 48)])
def test_four_pixels_are_weighed_as_torch_does_with_all_of_them(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    picture = torch.randint(0, 256, (*size, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(size[0]))
    whole = F.interpolate(picture.movedim(2, 0)[None].float(), size=wanted, mode="bilinear", align_corners=False)
    # An ulp of 255: sums may run in another order.
    torch.testing.assert_close(bilinear(picture, *wanted), whole[0].movedim(0, 2), rtol=0, atol=4e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16])
def test_normalising_gives_the_bits_of_one_step_after_another_and_leaves_what_it_reads(dtype: torch.dtype) -> None:
    levels = torch.arange(256).repeat(3).view(16, 16, 3).to(dtype)
    before = levels.clone()
    found = normalise(levels)
    assert torch.equal(found, ((levels.permute(2, 0, 1).float() / 255) - 0.5) / 0.5)
    assert found.dtype == torch.float32
    assert torch.equal(levels, before)
