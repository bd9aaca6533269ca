"""An MLP of many experts, of which each row uses a few: `DecoderMLP` of a decoder layer.

Three forms compute it. On CPUs a loop multiplies the rows of each expert. On a GPU many rows are sorted by expert and
multiplied in one grouped product per matrix; a few rows are computed by kernels that read only the experts that a row
has chosen, once each. The GPU's forms read no value on the host, so a captured graph serves any routing.

Parameter names are the public checkpoint's: `gate` is the router, `experts.N.*` the matrices.

Shape letters: R rows, B rows of a step, W model width, E experts, C experts chosen for each row, F hidden width.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.linear.mlp import gated
from walkgraph.layers.linear.packed import UNPACKED, Packable
from walkgraph.layers.linear.step_linear import STREAMED
from walkgraph.layers.moe.routing import Routing, by_expert, route
from walkgraph.layers.norm.rms_norm import RMSNorm

_ROWS = 8192
"""Rows of a grouped product: more are not faster, and their copies for each expert are eight times as many."""
_ALIGNED = 16
"""Bytes of a row's stride in a grouped product."""


class PackedExperts(NamedTuple):
    """The weights of all experts, of which the parameters are views."""

    gate_up: Tensor
    """`[E, 2F, W]`, gate rows first."""
    down: Tensor
    """`[E, W, F]`"""


class Expert(nn.Module):
    """The matrices of one expert."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x `[R, W]` -> `[R, W]`."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SparseMLP(Packable):
    def __init__(self, width: int, sizes: ExpertSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.gate = nn.Linear(width, sizes.experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, sizes.hidden) for _ in range(sizes.experts))
        self.packed: PackedExperts | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Many rows x `[R, W]`, normed -> `[R, W]`."""
        packed = self.packed
        if packed is None or not x.is_cuda:
            return each_expert(x, self.routed(x), [*self._each()])
        parts = [self._grouped(rows, packed) for rows in x.split(_ROWS)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        """Few rows x `[B, W]`, not yet normed -> `[B, W]`, with the residual added if given. Needs `pack`."""
        if self.packed is None:
            raise RuntimeError(UNPACKED)
        if x.is_cuda and 0 < x.shape[0] <= STREAMED:
            from walkgraph.layers.kernels.experts import sparse_step, unfit

            if unfit(x, *self.packed) is None:
                return sparse_step(x, self.gate.weight, *self.packed, self.sizes, norm.weight, norm.eps, residual)
        # One by one, a row's numbers are the same among any others.
        apart = is_batch_invariant() and x.shape[0] <= STREAMED
        y = torch.cat([self(norm(row)) for row in x.split(1)]) if apart else self(norm(x))
        return y if residual is None else (y.float() + residual).to(x.dtype)

    def routed(self, x: Tensor) -> Routing:
        """x `[R, W]`, normed."""
        return route(x, self.gate.weight, self.sizes.chosen, renormed=self.sizes.renormed)

    def pack(self) -> None:
        """Lay the experts' weights one after the other; this freezes them."""
        gate_up = torch.cat([part.weight.data for e in self._each() for part in (e.gate_proj, e.up_proj)])
        down = torch.cat([e.down_proj.weight.data for e in self._each()])
        experts, (hidden, width) = self.sizes.experts, (self.sizes.hidden, self.gate.in_features)
        self.packed = PackedExperts(gate_up.view(experts, 2 * hidden, width), down.view(experts, width, hidden))
        for expert, rows, back in zip(self._each(), *self.packed, strict=True):
            for part, view in zip((expert.gate_proj, expert.up_proj), rows.split(hidden), strict=True):
                part.weight = nn.Parameter(view, requires_grad=False)
            expert.down_proj.weight = nn.Parameter(back, requires_grad=False)
        if gate_up.is_cuda:
            # The experts' own memory is in pieces too small for the next layer's matrices.
            torch.cuda.empty_cache()

    @property
    def is_packed(self) -> bool:
        return self.packed is not None

    def _grouped(self, x: Tensor, packed: PackedExperts) -> Tensor:
        fits = x.dtype == torch.bfloat16 and not any(n * 2 % _ALIGNED for n in (x.shape[1], self.sizes.hidden))
        return (grouped_experts if fits else masked_experts)(x, self.routed(x), packed)

    def _each(self) -> Iterator[Expert]:
        return (cast(Expert, expert) for expert in self.experts)


def each_expert(x: Tensor, routing: Routing, experts: list[Expert]) -> Tensor:
    """The plain form: x `[R, W]` -> `[R, W]`, expert by expert. Reads the routing on the host."""
    out = torch.zeros_like(x, dtype=torch.float32)
    for index in routing.experts.unique().tolist():
        rows, which = (routing.experts == index).nonzero(as_tuple=True)
        result = experts[index](x[rows]).float() * routing.shares[rows, which, None]
        out = out.index_add(0, rows, result)
    return out.to(x.dtype)


def grouped_experts(x: Tensor, routing: Routing, packed: PackedExperts) -> Tensor:
    """x `[R, W]` -> `[R, W]`: one grouped product per matrix, over rows sorted by expert."""
    order = by_expert(routing, packed.down.shape[0])
    gate_up = F.grouped_mm(x[order.rows], packed.gate_up.transpose(1, 2), offs=order.ends)
    inner = gated(gate_up) * order.shares[:, None].to(x.dtype)
    results = F.grouped_mm(inner, packed.down.transpose(1, 2), offs=order.ends)
    # Each row sums its own results in one order, so the sum does not depend on the other rows.
    return results[order.places].sum(1)


def masked_experts(x: Tensor, routing: Routing, packed: PackedExperts) -> Tensor:
    """x `[R, W]` -> `[R, W]`: every expert computes every row, for types without grouped products on a GPU."""
    shares = torch.zeros(x.shape[0], packed.down.shape[0], device=x.device)
    shares.scatter_(1, routing.experts, routing.shares)
    out = torch.zeros_like(x, dtype=torch.float32)
    for gate_up, down, share in zip(*packed, shares.split(1, 1), strict=True):
        out += F.linear(gated(F.linear(x, gate_up)), down).float() * share
    return out.to(x.dtype)
