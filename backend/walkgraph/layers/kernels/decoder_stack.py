"""Decoder layers for few rows and short contexts, and the head behind them, in one launch: see `decoder_stack.cu`.

Shape letters: R rows, B frames, W width, H query heads, G key/value heads, D head dim, F hidden width, V vocabulary, P
positions of a frame.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor

from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.kernels.workspaces import Workspaces
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.memory.cuda_source import CudaKernel, is_available

MOST_ROWS = 16
"""Rows of a launch, at most."""
POSITIONS = 16
"""The positions of each frame."""
_BLOCKS, _WARPS, _THREADS = 128, 8, 320
_CHUNK, _UNIT, _RING, _PITCH = 1024, 8, 10, 20
"""K of a stage, its weight rows, stages in shared memory, and a column's place in the sums, as in the source."""
_HEAD_DIM, _GROUP = 128, 2
_DEEPEST = 3072
"""The most K: a lane holds its part of all rows in registers."""
_EMPTY = -1
"""A pair of numbers that is not yet published, as int16."""


@dataclass(frozen=True)
class StackSizes:
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    layers: int
    eps: float


class LayerWeights(NamedTuple):
    """Contiguous."""

    qkv: Tensor
    """`[(H + 2G) D, W]`"""
    out: Tensor
    """`[W, H D]`"""
    gate_up: Tensor
    """`[2F, W]`: gate rows first."""
    down: Tensor
    """`[W, F]`"""
    before: Tensor
    """`[W]`: of the norm before attention; `after`: of the one before the MLP."""
    after: Tensor
    q_norm: Tensor
    """`[D]`; `k_norm` likewise."""
    k_norm: Tensor

    @classmethod
    def of(cls, layer: DecoderLayer) -> Self | None:
        """The weights of a packed layer, or None if it has other parts: biases, no norms of heads, another MLP."""
        attention, mlp = layer.self_attn, layer.get_submodule("mlp")
        packed = attention.packed[""]
        if packed.bias is not None or not attention.shape.qk_norm or not isinstance(mlp, SwiGLU) or mlp.gate_up is None:
            return None
        names = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
        norms = (cast(RMSNorm, layer.get_submodule(name)).weight for name in names)
        out = attention.part("o_proj", "").weight
        return cls(packed.weight, out, mlp.gate_up.weight, mlp.down_proj.weight, *norms)


class _Arguments(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("layers", "x", "codes", "published", "state", "k", "v", "norm", "head")),
        *((name, ctypes.c_void_p) for name in ("logits", "frequencies")),
        ("eps", ctypes.c_float),
        *((name, ctypes.c_int) for name in ("frames", "passes", "first", "kept")),
    ]


class DecoderStack:
    """The layers of one network on one device, whose weights it keeps alive."""

    def __init__(self, sizes: StackSizes, layers: Sequence[LayerWeights], norm: Tensor, frequencies: Tensor) -> None:
        """norm `[W]`: the final one; frequencies float32 `[D / 2]`: radians per position.

        Raises ValueError for what is `unfit`, and RuntimeError where the launch can't be compiled.
        """
        if (why := unfit(sizes, norm.device)) is not None:
            raise ValueError(why)
        self._sizes, self._kept = sizes, (list(layers), norm, frequencies)
        pointers = [[weight.data_ptr() for weight in layer] for layer in layers]
        self._layers = torch.tensor(pointers, dtype=torch.int64, device=norm.device)
        self._kernels = {rows: self._compiled(rows) for rows in (MOST_ROWS // 2, MOST_ROWS)}
        self._workspace = Workspaces(self._made, "run a stack of layers")

    def __call__(
        self,
        x: Tensor,
        k: Tensor,
        v: Tensor,
        head: Tensor | None,
        *,
        first: int,
        passes: int = 1,
        codes: Tensor | None = None,
    ) -> Tensor:
        """x `[R, W]`: all frames' rows at their position `first`, then at the next one if `passes` is 2; or a table of
        embeddings whose rows `codes` int64 `[R]` choose, those below 0 the first. k, v `[layers, B * P, G, D]`,
        contiguous: keys and values of positions before `first`; the new ones are written. head `[V, W]` -> logits
        `[B, V]` of the last positions; without it they are unset, and only keys and values are made. At most
        `MOST_ROWS` rows.
        """
        rows = len(x if codes is None else codes)
        frames, sizes, (_, norm, frequencies) = rows // passes, self._sizes, self._kept
        published, state = self._workspace(x.device)
        logits = torch.empty(frames, sizes.vocab, dtype=x.dtype, device=x.device)
        tensors = (self._layers, x, codes, published, state, k, v, norm, head, logits, frequencies)
        pointers = (0 if one is None else one.data_ptr() for one in tensors)
        kernel = self._kernels[min(most for most in self._kernels if most >= rows)]
        arguments = _Arguments(*pointers, sizes.eps, frames, passes, first, head is None)
        kernel.launch_cooperatively(_BLOCKS, _THREADS, arguments)
        return logits

    def _compiled(self, rows: int) -> CudaKernel:
        sizes = self._sizes
        defined = {
            "WIDTH": sizes.width,
            "HEADS": sizes.heads,
            "GROUPS": sizes.kv_heads,
            "HIDDEN": sizes.hidden,
            "VOCAB": sizes.vocab,
            "LAYERS": sizes.layers,
            "ROWS": rows,
        }
        source = Path(__file__).with_name("decoder_stack.cu")
        kernel = CudaKernel(source, "decoder_stack", defined, shared_bytes(sizes, rows))
        if kernel.blocks_at_once(_THREADS) < _BLOCKS:
            raise RuntimeError(f"the GPU runs fewer than {_BLOCKS} blocks at once")
        return kernel

    def _made(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Two sets of what blocks publish, for the kernel of either number of rows, and the launches so far."""
        sizes = self._sizes
        shape = (2, sizes.layers, MOST_ROWS * _published(sizes))
        return (
            torch.full(shape, _EMPTY, dtype=torch.int16, device=device),
            torch.zeros(3, dtype=torch.int32, device=device),
        )


def stack_of(
    sizes: StackSizes, positions: int, layers: Sequence[DecoderLayer], norm: Tensor, frequencies: Tensor
) -> DecoderStack | None:
    """The packed layers as one launch, or None where there is none for them; norm `[W]`: the final one; frequencies
    float32 `[D / 2]`: radians per position; positions: of each frame."""
    if not norm.is_cuda or norm.dtype != torch.bfloat16 or positions != POSITIONS:
        return None
    weights = [one for layer in layers if (one := LayerWeights.of(layer)) is not None]
    if len(weights) < len(layers) or unfit(sizes, norm.device) is not None:
        return None
    return DecoderStack(sizes, weights, norm, frequencies)


def unfit(sizes: StackSizes, device: torch.device) -> str | None:
    """The reason that layers of these sizes can't run in one launch; None if they can."""
    if torch.cuda.get_device_capability(device) != (9, 0):
        return "the launch is written for compute capability 9.0"
    if torch.cuda.get_device_properties(device).multi_processor_count < _BLOCKS:
        return f"the launch takes {_BLOCKS} processors"
    if not is_available():
        return "the package `cuda-bindings` or NVIDIA's run-time compiler is missing"
    return unfit_sizes(sizes)


def unfit_sizes(sizes: StackSizes) -> str | None:
    """Gives the reason like `unfit`, on any device."""
    if sizes.layers < 2:
        return "there must be two layers or more"
    if sizes.head_dim != _HEAD_DIM or sizes.heads != _GROUP * sizes.kv_heads:
        return f"heads must be {_HEAD_DIM} wide, and {_GROUP} to each key head"
    inputs, outputs = (sizes.width, sizes.heads * sizes.head_dim, sizes.hidden), (_qkv(sizes), sizes.vocab)
    if any(one % (_BLOCKS * _UNIT) for one in (*inputs, *outputs)):
        return f"widths must be multiples of {_BLOCKS * _UNIT}"
    if max(outputs) > 2 * sizes.hidden or max(inputs) > _DEEPEST:
        return f"inputs must be at most {_DEEPEST} wide, and outputs at most as wide as gate and up together"
    return None


def shared_bytes(sizes: StackSizes, rows: int) -> int:
    """Bytes of shared memory that a block takes in a launch for so many rows."""
    stages = _RING * _UNIT * (2 * _CHUNK + 64)
    sums = _WARPS * _PITCH * (2 * sizes.hidden + sizes.width) // _BLOCKS
    return stages + 4 * (sums + _WARPS * rows + _WARPS * _GROUP * (_HEAD_DIM + 8)) + 16 * _RING


def _qkv(sizes: StackSizes) -> int:
    return (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim


def _published(sizes: StackSizes) -> int:
    """Numbers of a row that the blocks tell each other in a layer."""
    return _qkv(sizes) + sizes.heads * sizes.head_dim + sizes.hidden + 2 * sizes.width
