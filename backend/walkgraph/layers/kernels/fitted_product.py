"""Products of up to a few hundred rows whose tiles fit the rows, in one launch with the norm before them and what
follows: see `fitted_product.cu`.

Shape letters: R rows, N columns of the result, K, B sequences, n tokens of each, H query heads, G key/value heads, D
head dim.
"""

import ctypes
import itertools
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.layers.attention.paged_blocks import Places
from walkgraph.layers.norm.layer_norm import SUMMED
from walkgraph.memory.cuda_source import CudaKernel, is_available
from walkgraph.memory.tensor_map import BYTES, tensor_map

MOST_ROWS = 320
"""The most rows of a launch. It was measured with 48 to 258."""
_DEPTH, _LINE, _BRICK = 64, 128, 64
"""K of a stage, bytes of a row of it, and the columns of a warpgroup."""
_MOST_OF_TILE = 256
"""Rows of a tile, at most."""
_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
_AT_ONCE = {1: 132, 2: 132, 4: 120}
"""Blocks that an H200 runs at the same time, by the blocks of a cluster."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a product is divided among blocks."""

    rows: int
    """Rows of a tile: a multiple of 8, at most 256."""
    wide: int = 1
    """Warpgroups of a tile, with 64 columns each."""
    split: int = 1
    """Blocks that share the K of a tile: 1, 2 or 4."""
    stages: int = 4

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return _BRICK * self.wide

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, with those that align its stages to 1024."""
        share = 8 * -(-self.rows // 8 // self.split)
        ring, staged = self.stages * self._stage, 4 * share * (self.columns + 4)
        inbox = 4 * (self.split - 1) * share * self.columns
        return max(ring, staged) + inbox + 16 * self.stages + 8 + 12 * self.rows + 1024

    def threads(self, *, normed: bool) -> int:
        return 128 * (self.wide + 1) if normed else 128 * self.wide + 32

    def blocks(self, rows: int, columns: int) -> int:
        return -(-rows // self.rows) * (columns // self.columns) * self.split

    def microseconds(self, rows: int, columns: int, depth: int) -> float:
        """Estimate the time without what all cuts share. The constants were fitted to an H200 at 256 and 258 rows."""
        each, blocks = self._stage * (depth // _DEPTH // self.split), self.blocks(rows, columns)
        # Bytes that the L2 cache gives a microsecond, to all processors and to one.
        read = max(blocks * each / 12e6, -(-blocks // _AT_ONCE[self.split]) * each / 0.14e6)
        # And those that a block sends to others.
        sent = 4 * self.rows * self.columns * (1 - 1 / self.split) / 45e3
        return read + 1.2 * (self.wide - 1) + sent + (0.17 if self.split > 1 else 0)

    @property
    def _stage(self) -> int:
        return _LINE * (self.columns + self.rows)


@cache
def choose(rows: int, columns: int, depth: int) -> Cut | None:
    """The fastest cut; None if there is none for these sizes."""
    cuts = [
        Cut(tile, wide=wide, split=split, stages=stages)
        for tile, wide, split in itertools.product(_tiles(rows), (1, 2), (1, 2, 4))
        if columns % (_BRICK * wide) == 0
        and depth % (_DEPTH * split) == 0
        and (tile <= 136 or wide * split == 1)
        and (wide == 1 or split == 1)
        for stages in (8, 6, 4)
        if Cut(tile, wide=wide, split=split, stages=stages).shared <= _SHARED
    ]
    return min(cuts, key=lambda cut: (cut.microseconds(rows, columns, depth), -cut.stages), default=None)


def _tiles(rows: int) -> list[int]:
    """Rows of equal tiles that hold them all."""
    each = (math.ceil(rows / (8 * count)) * 8 for count in range(1, 7))
    return sorted({tile for tile in each if tile <= _MOST_OF_TILE})


class Norm(NamedTuple):
    """A layer norm before a product whose weight includes the norm's scale, and whose bias its offset."""

    sums: Tensor
    """float32 `[R, K / SUMMED, 2]`: of x, and of its squares."""
    totals: Tensor
    """float32 `[N]`: sums of the weight's rows."""
    eps: float


class _Arguments(ctypes.Structure):
    _fields_ = [
        ("weight", ctypes.c_ubyte * BYTES),
        ("x", ctypes.c_ubyte * BYTES),
        *((name, ctypes.c_void_p) for name in ("bias", "sums", "totals", "residual", "next_sums")),
        *((name, ctypes.c_void_p) for name in ("out", "k", "v", "cos", "sin", "sequences", "pages", "lengths")),
        *((name, ctypes.c_int) for name in ("rows", "columns", "depth")),
        ("eps", ctypes.c_float),
        *((name, ctypes.c_int) for name in ("tokens", "reach", "queries", "keys", "slot_row", "cos_row", "cos_token")),
        ("rest", ctypes.c_ubyte * 64),  # the source's structure ends at a multiple of 64 bytes
    ]


def is_present(device: torch.device) -> bool:
    """True if the launches run on this device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0) and is_available()


def mapped(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm, cut: Cut, *, gelu: bool) -> Tensor:
    """gelu(norm(x) @ weight.T + bias), or without gelu: x `[R, K]`, weight `[N, K]`, bfloat16; bias float32 `[N]` ->
    `[R, N]`. gelu: the tanh form."""
    out = torch.empty(len(x), len(weight), dtype=x.dtype, device=x.device)
    given = _given(x, weight, bias, cut, out, norm)
    _launch(given, cut, Kind(normed=True, gelu=gelu))
    return out


def plain(x: Tensor, weight: Tensor, bias: Tensor, cut: Cut) -> Tensor:
    """x @ weight.T + bias: x `[R, K]`, weight `[N, K]`, bfloat16; bias float32 `[N]` -> `[R, N]`."""
    out = torch.empty(len(x), len(weight), dtype=x.dtype, device=x.device)
    _launch(_given(x, weight, bias, cut, out, None), cut, Kind())
    return out


def added(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor, cut: Cut) -> tuple[Tensor, Tensor]:
    """residual + x @ weight.T + bias: x `[R, K]`, weight `[N, K]`, residual `[R, N]`, bfloat16; bias float32 `[N]` ->
    `[R, N]`, and its sums as `Norm` has them."""
    out = torch.empty_like(residual)
    sums = torch.empty(len(x), len(weight) // SUMMED, 2, dtype=torch.float32, device=x.device)
    given = _given(x, weight, bias, cut, out, None)
    given.residual, given.next_sums = residual.data_ptr(), sums.data_ptr()
    _launch(given, cut, Kind(adds=True))
    return out, sums


def placed(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm, places: Places, cut: Cut) -> Tensor:
    """norm(x) @ weight.T + bias, then `walkgraph.layers.attention.paged_blocks.place_block` -> queries `[R, H, D]`."""
    groups, width = places.slot_k.shape[1:]
    out = torch.empty(len(x), len(weight) // width - 2 * groups, width, dtype=x.dtype, device=x.device)
    given, rows = _given(x, weight, bias, cut, out, norm), places.rows
    given.k, given.v, given.cos, given.sin = (
        one.data_ptr() for one in (places.slot_k, places.slot_v, places.cos, places.sin)
    )
    given.sequences, given.pages, given.lengths = (one.data_ptr() for one in (rows.rows, rows.pages, rows.lengths))
    given.tokens, given.reach = places.tokens, rows.pages.shape[1]
    given.queries, given.keys, given.slot_row = out.shape[1] * width, groups * width, places.slot_k.stride(0)
    given.cos_row, given.cos_token = places.cos.stride()[:2]
    _launch(given, cut, Kind(normed=True, places=True, dim=width, page=places.page))
    return out


@dataclass(frozen=True, slots=True)
class Kind:
    """The work of a launch besides the product."""

    normed: bool = False
    gelu: bool = False
    adds: bool = False
    places: bool = False
    dim: int = 64
    page: int = 16


def macros(cut: Cut, kind: Kind) -> dict[str, int | str]:
    """The compiler's options for the source."""
    count = cut.rows // 2
    held = ", ".join(f"%{i}" for i in range(count))
    product = (
        f"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
        f"wgmma.mma_async.sync.aligned.m64n{cut.rows}k16.f32.bf16.bf16 "
        f"{{{held}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}"
    )
    return {
        "ROWS": cut.rows,
        "WIDE": cut.wide,
        "SPLIT": cut.split,
        "STAGES": cut.stages,
        "NORMED": int(kind.normed),
        "GELU": int(kind.gelu),
        "ADDS": int(kind.adds),
        "PLACES": int(kind.places),
        "DIM": kind.dim,
        "PAGE": kind.page,
        "ACCUMULATORS": ", ".join(f'"+f"(c[{i}])' for i in range(count)),
        "PRODUCT": f'"{product}"',
    }


def _given(x: Tensor, weight: Tensor, bias: Tensor, cut: Cut, out: Tensor, norm: Norm | None) -> _Arguments:
    rows, depth = x.shape
    given = _Arguments(rows=rows, columns=len(weight), depth=depth, out=out.data_ptr(), bias=bias.data_ptr())
    given.weight = _map_of_weight(weight.data_ptr(), (len(weight), depth), weight.stride(0), (cut.columns, _DEPTH))
    given.x = tensor_map(x.data_ptr(), (rows, depth), x.stride(0), (cut.rows, _DEPTH))
    if norm is not None:
        given.sums, given.totals, given.eps = norm.sums.data_ptr(), norm.totals.data_ptr(), norm.eps
    return given


def _launch(given: _Arguments, cut: Cut, kind: Kind) -> None:
    blocks = cut.blocks(given.rows, given.columns)
    _kernel(cut, kind).launch_early(blocks, cut.threads(normed=kind.normed), given)


@cache
def _kernel(cut: Cut, kind: Kind) -> CudaKernel:
    return CudaKernel(Path(__file__).with_suffix(".cu"), "fitted_product", macros(cut, kind), cut.shared)


# A weight's map is asked for in every launch that is not captured; the memory of weights doesn't move.
_map_of_weight = cache(tensor_map)
