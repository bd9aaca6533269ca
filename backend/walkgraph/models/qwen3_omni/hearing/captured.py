"""Captured parts of the audio encoder for some seconds of sound: hundreds of small launches become a few.

One CUDA graph per number of rows serves sounds of any lengths, as the bounds of their windows are on the device; the
convolutions before it have one per number of chunks.

Shape letters: R rows of a graph, M windows of a graph, n rows of sounds, W width, K chunks.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.operator import Capture
from walkgraph.architectures.prompts.captured_prompts import padded
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.models.qwen3_omni.hearing.model import CHUNKS, AudioEncoder

SIZES = (48, 64, 128, 256, 512, 1024)
"""Rows of a graph."""
ROOM = 8
"""A graph has room for a window per so many of its rows."""
REPLAYS = 8
"""The most replays for a batch; more rows than they serve keep a GPU busy with plain launches."""


FEW = tuple(size for size in CHUNKS if size <= 8)
"""Chunks of a graph of convolutions."""


class _Chunks(NamedTuple):
    given: Tensor
    """float32 `[K, frames, bands]`"""
    made: list[Tensor]
    """One tensor `[K, frames / 8, W]`, which the next replay overwrites."""
    replay: Callable[[], None]


class CapturedChunks:
    """The convolutions of few whole chunks."""

    def __init__(self, model: AudioEncoder, capture: Capture | None) -> None:
        self._model, self._capture = model, capture
        self._graphs: dict[int, _Chunks] = {}

    def __call__(self, chunks: Tensor) -> Tensor | None:
        """`[K, frames, bands]` -> `[K, frames / 8, W]`, which the next call overwrites; None if a plain forward must
        serve them."""
        config = self._model.config
        if self._capture is None or len(chunks) not in FEW or chunks.shape[1] != config.chunk:
            return None
        if not self._graphs:
            # All graphs are captured at the first sound of a chunk, which is the warm-up's, so no request waits for it.
            self._graphs = {one: self._captured(one, chunks, self._capture) for one in reversed(FEW)}
        given, made, replay = self._graphs[len(chunks)]
        given.copy_(chunks)
        replay()
        return made[0]

    def _captured(self, count: int, like: Tensor, capture: Capture) -> _Chunks:
        given, made = like.new_zeros(count, *like.shape[1:]), list[Tensor]()

        def work() -> None:
            made[:] = [self._model.convolved(given)]

        return _Chunks(given, made, capture(work, f"{count} chunks of sound"))


class _Graph(NamedTuple):
    rows: Tensor
    """`[R, W]`"""
    bounds: Tensor
    """int32 `[M + 1]`"""
    made: list[Tensor]
    """One tensor `[R, out]`, which the next replay overwrites."""
    replay: Callable[[], None]


def parted(lengths: Sequence[int]) -> list[list[int]]:
    """Windows of these lengths, in parts that the largest graph has room for."""
    parts: list[list[int]] = [[]]
    for length in lengths:
        if sum(parts[-1]) + length > SIZES[-1] or len(parts[-1]) == SIZES[-1] // ROOM:
            parts.append([])
        parts[-1].append(length)
    return parts


class CapturedWindows:
    def __init__(self, model: AudioEncoder, capture: Capture | None) -> None:
        self._model, self._capture = model, capture
        self._graphs: dict[int, _Graph] = {}

    def __call__(self, x: Tensor, lengths: Sequence[int]) -> Tensor | None:
        """Rows `[n, W]` in windows of these lengths -> `[n, out]`; None if a plain forward must serve them."""
        parts = parted(lengths)
        if self._capture is None or len(parts) > REPLAYS:
            return None
        if not self._graphs:
            # All graphs are captured at the first sound, which is the warm-up's, so no request waits for it.
            self._graphs = {one: self._captured(one, x, self._capture) for one in reversed(SIZES)}
        each = x.split([sum(part) for part in parts])
        made = [self._replayed(*one) for one in zip(each, parts, strict=True)]
        return made[0] if len(made) == 1 else torch.cat(made)

    def _replayed(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        count = len(x)
        size = next(size for size in SIZES if size >= count and size // ROOM >= len(lengths))
        rows, bounds, made, replay = self._graphs[size]
        rows[:count].copy_(x)
        rows[count:].zero_()
        # Windows without rows follow the last one. From pinned memory, the copy doesn't wait for the work before it.
        ends = padded([0, *accumulate(lengths)], len(bounds), count)
        bounds.copy_(torch.tensor(ends.tolist(), dtype=torch.int32, pin_memory=bounds.is_cuda), non_blocking=True)
        replay()
        return made[0][:count].clone()

    def _captured(self, size: int, like: Tensor, capture: Capture) -> _Graph:
        model, config = self._model, self._model.config
        rows = torch.zeros(size, like.shape[1], dtype=like.dtype, device=like.device)
        # Before the first replay all windows but as many as hold the rows are empty.
        starts = [min(index * config.reach, size) for index in range(size // ROOM + 1)]
        bounds = torch.tensor(starts, dtype=torch.int32, device=like.device)
        made: list[Tensor] = []

        def work() -> None:
            blocks = PackedBlocks(bounds, config.reach, config.heads)
            made[:] = [model.encoded(rows, lambda layer, q, k, v: blocks(q, k, v))]

        return _Graph(rows, bounds, made, capture(work, f"{size} embeddings of sound"))
