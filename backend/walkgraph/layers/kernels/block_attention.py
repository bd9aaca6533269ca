"""Attention of blocks of up to 264 tokens over a paged cache, on Hopper: see `block_attention.cu`.

Shape letters as in `walkgraph.layers.attention.paged_blocks`.
"""

import ctypes
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from walkgraph.memory.cuda_source import CudaKernel, is_available
from walkgraph.memory.tensor_map import BYTES, tensor_map

if TYPE_CHECKING:
    from walkgraph.layers.attention.paged_rows import BlockRows

DIM, PAGE, TILE, FEW = 64, 16, 64, 8
"""Numbers of a head, slots of a page, queries of a warpgroup, and the most queries past the last whole tile that need
no warpgroup."""
_GROUPS, _SPLITS, _TEAMS = 4, 8, 3
_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
_CONTEXT, _TOKENS, _BUSY = 512, 64, 0.6
"""The least tokens that pages hold, the least queries, and the least share of busy processors, with which this launch
was the faster one on an H200."""
_PITCH, _KEYS = DIM + 8, 64


@dataclass(frozen=True, slots=True)
class Cut:
    """How the queries and keys of a sequence's head are divided among blocks."""

    tokens: int
    split: int
    """Blocks that share the keys: 1 to 8."""
    pieces: int = 1
    """Pieces of the queries, each with blocks of its own."""
    teams: int = 1
    """Warpgroups that share a tile's queries and take a block's keys by turns."""
    stages: int = 6
    """Blocks of 64 keys and values in shared memory: a multiple of `teams`, and of 3 with `few`, so that a warp always
    uses the same places."""

    @property
    def rows(self) -> int:
        """Queries of a piece, at most."""
        return -(-self.tokens // self.pieces)

    @property
    def few(self) -> int:
        """Queries of a piece past the last whole tile that need no warpgroup."""
        left = self.rows % TILE
        return left if self.rows > TILE and left <= FEW else 0

    @property
    def tiles(self) -> int:
        return -(-(self.rows - self.few) // TILE)

    @property
    def threads(self) -> int:
        return 128 * self.tiles * self.teams + 128

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, with what aligns them."""
        ring = 2 * DIM * (TILE * self.tiles + 2 * _KEYS * self.stages)
        own = -(-(TILE * self.tiles + (FEW if self.few else 0)) // self.split)
        rows = self.teams * self.split * own + (2 * FEW if self.few else 0)
        return ring + 4 * _PITCH * rows + 16 * self.stages + 24 + 1024

    @property
    def defined(self) -> dict[str, int]:
        return {
            "TILES": self.tiles,
            "FEW": int(self.few > 0),
            "TEAMS": self.teams,
            "SPLIT": self.split,
            "PIECES": self.pieces,
            "STAGES": self.stages,
        }


class _Arguments(ctypes.Structure):
    _fields_ = [
        ("k", ctypes.c_ubyte * BYTES),
        ("v", ctypes.c_ubyte * BYTES),
        *((name, ctypes.c_void_p) for name in ("q", "out", "sequences", "pages", "lengths")),
        *((name, ctypes.c_int) for name in ("tokens", "reach", "heads", "shared")),
        ("scale", ctypes.c_float),
        ("_rest", ctypes.c_ubyte * 64),
    ]


def cut_for(q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "BlockRows", tokens: int, page: int) -> Cut | None:
    """None where the launch doesn't support the shapes of `paged_block_attention`, or other launches are faster."""
    pairs, device = rows.rows.shape[0] * q.shape[1], q.device
    supported = (
        q.is_cuda
        and torch.cuda.get_device_capability(device) == (9, 0)
        and is_available()
        and q.dtype == slot_k.dtype == slot_v.dtype == torch.bfloat16
        and slot_k.shape[2] == DIM
        and page == PAGE
        and all(one.stride()[1:] == (DIM, 1) and one.stride(0) % 8 == 0 for one in (slot_k, slot_v))
        and all(one.data_ptr() % 16 == 0 for one in (q, slot_k, slot_v))
    )
    if not supported or rows.pages.shape[1] * page < _CONTEXT or tokens < _TOKENS or Cut(tokens, 1).tiles > _GROUPS:
        return None
    return _chosen(tokens, pairs, device)


@cache
def _chosen(tokens: int, pairs: int, device: torch.device) -> Cut | None:
    """One with which all blocks run at the same time; None where too few processors are busy. Queries are divided
    before keys: pieces have nothing to combine."""
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    pieces = max(1, min(tokens // TILE, processors // pairs))
    for split in range(min(_SPLITS, processors // (pairs * pieces)), 0, -1):
        cut = _filled(Cut(tokens, split, pieces))
        if _kernel(cut, device).clusters_at_once(split, cut.threads) >= pairs * pieces:
            return cut if pairs * pieces * split >= _BUSY * processors else None
    turns = -(-pairs // processors)
    return Cut(tokens, 1) if pairs >= _BUSY * processors * turns else None


def _filled(cut: Cut) -> Cut:
    """With as many warpgroups and stages as help, or a block has room for."""
    teams = max(1, min(_TEAMS, _GROUPS // cut.tiles, _SPLITS // cut.split))
    cuts = (replace(cut, teams=teams, stages=stages) for stages in (9, 6) if stages % teams == 0)
    return next(one for one in cuts if one.shared <= _SHARED)


def launch(q: Tensor, slot_k: Tensor, slot_v: Tensor, rows: "BlockRows", tokens: int, cut: Cut) -> Tensor:
    """`walkgraph.layers.attention.paged_blocks.paged_block_attention`, for what has a `cut_for`; q contiguous.

    Tables, lengths and the keys and values of earlier tokens are read while the launch before this one still runs; they
    must have been there before that one began."""
    (_, heads, width), groups = q.shape, slot_k.shape[1]
    out = torch.empty_like(q)
    given = _Arguments(tokens=tokens, reach=rows.pages.shape[1], heads=heads, shared=heads // groups)
    given.k, given.v = (
        _map(one.data_ptr(), (len(one), groups * width), one.stride(0), (PAGE, DIM)) for one in (slot_k, slot_v)
    )
    given.q, given.out = q.data_ptr(), out.data_ptr()
    given.sequences, given.pages, given.lengths = (one.data_ptr() for one in (rows.rows, rows.pages, rows.lengths))
    given.scale = 1.4426950408889634 * width**-0.5
    _kernel(cut, q.device).launch_early(rows.rows.shape[0] * heads * cut.pieces * cut.split, cut.threads, given)
    return out


@cache
def _kernel(cut: Cut, device: torch.device) -> CudaKernel:
    return CudaKernel(Path(__file__).with_suffix(".cu"), "block_attention", cut.defined, cut.shared)


_map = cache(tensor_map)
"""The memory of a cache doesn't move."""
