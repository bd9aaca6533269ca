"""The rows of a batch of pieces, some with media, and what happens to them between layers.

Shape letters: R rows of a batch, n rows of media in it, v of these rows that show pictures, L layers, W width.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import torch
from torch import Tensor

from walkgraph.architectures.language.joined import Unread, sequence_ends
from walkgraph.models.qwen3_omni.thinker.pieces import Piece, media_rows, visual_rows

AXES = 3
"""Axes of a position."""


class MediaRows(NamedTuple):
    """The rows of pieces that follow each other. All indices are int64, on the CPU."""

    ends: Tensor
    """`[S]`: the last row of each sequence."""
    positions: Tensor
    """float32 `[R, 3]` on the CPU."""
    media: Tensor
    """`[n]`: rows of media."""
    visual: Tensor
    """`[v]`: rows that show pictures."""

    @classmethod
    def of(cls, unread: Sequence[Unread], pieces: Sequence[Piece | None], first: Sequence[float]) -> Self:
        """`pieces`: None for a text; `first`: the position that each begins at."""
        ends = list(accumulate(len(one.ids) for one in unread))
        positions: list[Tensor] = []
        media: list[Tensor] = [torch.empty(0, dtype=torch.int64)]
        visual = list(media)
        for one, piece, begin, end in zip(unread, pieces, first, ends, strict=True):
            if piece is None:
                positions.append((torch.arange(len(one.ids)) + begin)[:, None].float().expand(-1, 3))
                continue
            positions.append(piece.span.rows + begin)
            row = end - len(one.ids)
            media.append(torch.arange(len(piece.order)) + row + piece.marks)
            visual.append(visual_rows(one.call, piece) + row)
        return cls(torch.tensor(sequence_ends(unread)), torch.cat(positions), torch.cat(media), torch.cat(visual))


def embedded(unread: Sequence[Unread], pieces: Sequence[Piece | None]) -> Tensor:
    """`[n, W]`: the batch's rows of media, in order."""
    return torch.cat(
        [
            media_rows(one.call)[piece.order.to(one.ids.device, non_blocking=True)]
            for one, piece in zip(unread, pieces, strict=True)
            if piece is not None
        ]
    )


def features_of(unread: Sequence[Unread]) -> Tensor | None:
    """`[L, v, W]`: what is added to rows that show pictures; None without pictures."""
    given = [one.call.inputs["deepstack"] for one in unread if one.call.inputs.get("deepstack") is not None]
    return torch.cat(given, 1) if given else None


class BetweenLayers:
    """Adds the features of pictures after the first layers, and keeps what the talker reads: `AfterLayer`."""

    def __init__(self, media: Tensor, visual: Tensor, features: Tensor | None, told: int | None) -> None:
        """`told`: number of layers after which the rows of media are kept; None for never."""
        self._media, self._visual, self._features, self._told = media, visual, features, told
        self.kept: Tensor | None = None
        """`[n, W]`"""

    def __call__(self, layer: int, x: Tensor) -> None:
        if self._features is not None and layer < len(self._features):
            x[self._visual] += self._features[layer].to(x.dtype)
        if layer + 1 == self._told:
            self.kept = x[self._media]


def packed_rows(x: Tensor, visual: Tensor, features: Tensor | None, layers: int) -> Tensor:
    """x `[R, W]` and, side by side with it, what is added to each row after each of the first layers ->
    `[R, (1 + L) * W]`. `layers`: L; zeros are added to rows that show no pictures."""
    count, width = x.shape
    packed = x.new_zeros(count, 1 + layers, width)
    packed[:, 0] = x
    if features is not None:
        packed[visual, 1:] = features.to(x.dtype).transpose(0, 1)
    return packed.flatten(1)


class BetweenAll:
    """`BetweenLayers` for rows with fixed addresses, whatever they hold: all are changed, and all are kept."""

    def __init__(self, packed: Tensor, width: int, told: int | None) -> None:
        """packed: as `packed_rows` gives it; told: as for `BetweenLayers`."""
        first, *self._features = packed.unflatten(1, (-1, width)).unbind(1)
        self.first = first.contiguous()
        """`[R, W]`: what enters the first layer."""
        self._told = told
        self.kept: Tensor | None = None
        """`[R, W]`"""

    def __call__(self, layer: int, x: Tensor) -> None:
        if layer < len(self._features):
            x += self._features[layer]
        if layer + 1 == self._told:
            self.kept = x.clone()
