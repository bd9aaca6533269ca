"""All layers of a flow step for one block of few rows behind a context, in one launch: see `flow_stack.cu`.

Shape letters: R rows, W width, H query heads, D head dim, F hidden width, A numbers of an action, T numbers of a table,
S slots.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.kernels.workspaces import Workspaces
from walkgraph.memory.cuda_source import CudaKernel, is_available
from walkgraph.memory.tensor_map import BYTES, tiles_map

MOST_ROWS = 64
"""Rows of a launch, at most."""
_BLOCKS, _THREADS, _STAGES, _PARTS, _SPLITS = 128, 384, 6, 8, 16
"""Blocks, threads of each, stages in shared memory, and the blocks that share the K of a tile and a head's keys."""
_WIDTH, _HEADS, _DIM, _HIDDEN = 1024, 8, 256, 4096
_TILE, _LINE, _NUMBERS = 64, 64, 352
"""Columns of a tile, the K of a brick of it, and the numbers of a layer's table that a block needs."""
_EMPTY = -1
"""Two numbers that aren't published yet, as int32."""
_LOG2_E = 1.4426950408889634


class FlowLayer(NamedTuple):
    """Weights of a layer."""

    qkv: Tensor
    """`[(H + 2) D, W]`"""
    out: Tensor
    """`[W, H D]`"""
    gate_up: Tensor
    """`[2F, W]`: gate rows first."""
    down: Tensor
    """`[W, F]`"""


class FlowSizes(NamedTuple):
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    layers: int
    eps: float

    @property
    def defined(self) -> dict[str, int]:
        """The source's macros."""
        return {"WIDTH": self.width, "HEADS": self.heads, "HIDDEN": self.hidden, "LAYERS": self.layers}

    @property
    def numbers(self) -> int:
        """T: for each layer the scale, bias and gate of both norms."""
        heads = (self.heads + 2 * self.kv_heads) * self.head_dim
        return self.layers * (4 * self.width + heads + 2 * self.hidden)


class Entry(NamedTuple):
    """The map from actions to rows."""

    weight: Tensor
    """float32 `[W, A]`"""
    bias: Tensor
    """float32 `[W]`"""


class Context(NamedTuple):
    """A sequence's keys and values, of which a launch reads those before the block. The block's own are written
    nowhere."""

    k: Sequence[Tensor]
    """Per layer `[S, 1, D]`: the context is in the first slots. `v` likewise."""
    v: Sequence[Tensor]
    tokens: Tensor
    """int64, whose first number is the tokens of the context."""
    position: Tensor
    """int64 `[1]`: rope position of the block's first token."""


@cache
def _arguments(layers: int) -> type[ctypes.Structure]:
    class Arguments(ctypes.Structure):
        _fields_ = [
            ("layers", ctypes.c_ubyte * (4 * BYTES * layers)),
            ("k", ctypes.c_ubyte * BYTES),
            ("v", ctypes.c_ubyte * BYTES),
            *((name, ctypes.c_void_p) for name in ("table", "actions", "into", "into_bias", "frequencies")),
            *((name, ctypes.c_void_p) for name in ("position", "context", "published", "result")),
            *((name, ctypes.c_float) for name in ("eps", "scale")),
            *((name, ctypes.c_int) for name in ("rows", "numbers")),
            ("rest", ctypes.c_ubyte * 64),  # the source's structure ends at a multiple of 64 bytes
        ]

    return Arguments


class FlowStack:
    """The layers of one network on one device, whose weights it keeps alive."""

    def __init__(self, sizes: FlowSizes, layers: Sequence[FlowLayer], entry: Entry, frequencies: Tensor) -> None:
        """frequencies float32 `[D / 2]`: radians per position.

        Raises ValueError for what is `unfit`, and RuntimeError where the launch can't be compiled."""
        if (why := unfit(sizes, layers, entry, frequencies)) is not None:
            raise ValueError(why)
        self._sizes, self._kept = sizes, (list(layers), entry, frequencies)
        self._kernel = CudaKernel(Path(__file__).with_suffix(".cu"), "flow_stack", sizes.defined, shared_bytes())
        if self._kernel.blocks_at_once(_THREADS) < _BLOCKS:
            raise RuntimeError(f"the GPU runs fewer than {_BLOCKS} blocks at once")
        maps = b"".join(bytes(one) for layer in layers for one in _maps(layer))
        self._given: Any = _arguments(sizes.layers)(eps=sizes.eps, scale=_LOG2_E * sizes.head_dim**-0.5)
        ctypes.memmove(ctypes.addressof(self._given), maps, len(maps))
        self._given.into, self._given.into_bias = entry.weight.data_ptr(), entry.bias.data_ptr()
        self._given.frequencies, self._given.numbers = frequencies.data_ptr(), entry.weight.shape[1]
        self._workspace = Workspaces(_published, "run a stack of flow layers")

    def serves(self, actions: Tensor, table: Tensor, context: Context) -> bool:
        """True if a launch takes these: actions `[B, R, A]` and table `[B, T]` of one block of few rows. A batch that
        must not depend on its size takes other launches, as larger ones do."""
        tensors = actions, table
        return (
            actions.shape[0] == 1
            and actions.shape[1] <= MOST_ROWS
            and table.shape[1] >= self._sizes.numbers
            and all(one.dtype == torch.float32 and one.data_ptr() % 16 == 0 for one in tensors)
            and all(one[0].is_contiguous() for one in tensors)
            and _laid(context.k) is not None
            and _laid(context.v) is not None
            and not torch.is_grad_enabled()
            and not is_batch_invariant()
        )

    def __call__(self, actions: Tensor, table: Tensor, context: Context) -> Tensor:
        """Actions float32 `[R, A]` and a table float32 `[T]` made by `walkgraph.layers.norm.modulated.laid`, which the
        stack `serves` -> rows `[R, W]` before the last norm."""
        given, rows = self._given, actions.shape[0]
        result = torch.empty(rows, self._sizes.width, dtype=torch.bfloat16, device=actions.device)
        given.k, given.v = (_cache_map(*laid) for laid in map(_laid, (context.k, context.v)) if laid is not None)
        given.table, given.actions, given.result = table.data_ptr(), actions.data_ptr(), result.data_ptr()
        given.position, given.context = context.position.data_ptr(), context.tokens.data_ptr()
        given.published, given.rows = self._workspace(actions.device).data_ptr(), rows
        self._kernel.launch_cooperatively(_BLOCKS, _THREADS, given)
        return result


def stack_of(sizes: FlowSizes, layers: Sequence[FlowLayer], entry: Entry, frequencies: Tensor) -> FlowStack | None:
    """The layers as one launch, or None where there is none for them."""
    return (
        None if unfit(sizes, layers, entry, frequencies) is not None else FlowStack(sizes, layers, entry, frequencies)
    )


def unfit(sizes: FlowSizes, layers: Sequence[FlowLayer], entry: Entry, frequencies: Tensor) -> str | None:
    """The reason that these layers can't run in one launch; None if they can."""
    device, weights = frequencies.device, [weight for layer in layers for weight in layer]
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return "the launch is written for compute capability 9.0"
    if torch.cuda.get_device_properties(device).multi_processor_count < _BLOCKS:
        return f"the launch takes {_BLOCKS} processors"
    if not is_available():
        return "the package `cuda-bindings` or NVIDIA's run-time compiler is missing"
    if any(one.dtype != torch.bfloat16 or not one.is_contiguous() or one.data_ptr() % 16 for one in weights):
        return "weights must be bfloat16 and contiguous"
    if any(one.dtype != torch.float32 or not one.is_contiguous() for one in (*entry, frequencies)):
        return "the map into the model and the frequencies must be float32 and contiguous"
    if entry.weight.shape[1] % 4:
        return "an action must have a multiple of 4 numbers"
    return unfit_sizes(sizes)


def unfit_sizes(sizes: FlowSizes) -> str | None:
    """Gives the reason like `unfit`, on any device."""
    if (sizes.width, sizes.hidden) != (_WIDTH, _HIDDEN):
        return f"layers must be {_WIDTH} wide, with {_HIDDEN} hidden numbers: an equal share for every block"
    if (sizes.heads, sizes.kv_heads, sizes.head_dim) != (_HEADS, 1, _DIM):
        return f"{_HEADS} heads of {_DIM} numbers must share one key head"
    return "the number of layers must be even" if sizes.layers % 2 else None


def _maps(layer: FlowLayer) -> list[Any]:
    """Tensor maps of a layer's weights, as in the source."""
    half, columns = _DIM // 2, layer.qkv.shape[0]
    heads = (_WIDTH // _LINE, columns // half, half, _LINE)
    halves = (2, _WIDTH // 2 // _LINE, 2, _HIDDEN, _LINE)
    strides = (_WIDTH // 2, _LINE, _HIDDEN * _WIDTH, _WIDTH)
    return [
        tiles_map(layer.qkv.data_ptr(), heads, (_LINE, half * _WIDTH, _WIDTH), (4, 2, 8, _LINE)),
        _parts_map(layer.out),
        tiles_map(layer.gate_up.data_ptr(), halves, strides, (1, 1, 2, _TILE // 2, _LINE)),
        _parts_map(layer.down),
    ]


def _parts_map(weight: Tensor) -> Any:
    """Weight `[W, K]` of which a block reads a part of K, half of it for each warpgroup."""
    width, depth = weight.shape
    each = depth // (2 * _PARTS)
    shape = (2 * _PARTS, each // _LINE, width, _LINE)
    return tiles_map(weight.data_ptr(), shape, (each, _LINE, depth), (1, 1, _TILE, _LINE))


def _laid(caches: Sequence[Tensor]) -> tuple[int, tuple[int, int], tuple[int, int]] | None:
    """Address, layers and slots, and the numbers between neighbours of either; None if one tensor map can't read the
    caches of all layers."""
    first, apart = caches[0], caches[1].data_ptr() - caches[0].data_ptr()
    even = all(one.data_ptr() - first.data_ptr() == i * apart for i, one in enumerate(caches))
    aligned = not any(number % 16 for number in (first.data_ptr(), apart, 2 * first.stride(0)))
    if not even or apart <= 0 or not aligned or first.dtype != torch.bfloat16 or first.shape[1:] != (1, _DIM):
        return None
    return (
        (first.data_ptr(), (len(caches), len(first)), (apart // 2, first.stride(0))) if first.stride(2) == 1 else None
    )


@cache
def _cache_map(pointer: int, shape: tuple[int, int], strides: tuple[int, int]) -> Any:
    """The memory of a cache doesn't move."""
    (layers, slots), (layer, slot) = shape, strides
    return tiles_map(pointer, (layers, _DIM // _LINE, slots, _LINE), (layer, _LINE, slot), (1, 1, _TILE, _LINE))


def _published(device: torch.device) -> Tensor:
    """Two sets of what blocks publish."""
    return torch.full((2, set_bytes() // 4), _EMPTY, dtype=torch.int32, device=device)


def set_bytes() -> int:
    """Bytes of what the blocks publish in a layer, in whole lines for each block to empty."""
    heads = _HEADS * _DIM
    fragments = 2 * MOST_ROWS * (2 * _WIDTH + 2 * heads + 2 * _DIM + _SPLITS * heads + _HIDDEN)
    floats = 4 * MOST_ROWS * (2 * _WIDTH // _TILE + _HEADS * _SPLITS + 2 * _PARTS * _WIDTH)
    unit = _BLOCKS * 512
    return -(-(fragments + floats) // unit) * unit


def shared_bytes() -> int:
    """Bytes of shared memory of a block, with those that align its stages to 1024."""
    ring, exchanged, turns = _STAGES * 4 * _TILE * _LINE * 2, 16 * 4 * 256, 128 * 32
    return ring + exchanged + turns + 2 * 4 * _NUMBERS + 16 * _STAGES + 16 + 1024
