"""An MLP of many experts, of which each row uses a few: `DecoderMLP` of a decoder layer.

Three forms compute it. On CPUs a loop multiplies the rows of each expert. On a GPU many rows are sorted by expert and
multiplied in one grouped product per matrix; a few rows are computed by kernels that read only the experts that a row
has chosen, once each. The GPU's forms read no value on the host, so a captured graph serves any routing.

On a shard of a group that holds whole experts (`HeldExperts`), the router chooses among all experts, the others'
matrices are not there, and the result is this shard's part of the sum. The kernels for a few rows compute all
experts, so a shard's steps take the grouped products.

Experts can be kept in eight bits (`quantise`), which halves what a step reads. Steps convert the numbers on the way;
many rows are multiplied with a copy of the layer's experts in the rows' type.

Parameter names are the public checkpoint's: `gate` is the router, `experts.N.*` the matrices.

Shape letters: R rows, B rows of a step, W model width, E experts, C experts chosen for each row, F hidden width.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.checkpoints.sharding.experts import HeldExperts
from walkgraph.layers.invariance import is_batch_invariant
from walkgraph.layers.linear.mlp import gated
from walkgraph.layers.linear.packed import UNPACKED, Packable
from walkgraph.layers.linear.step_linear import STREAMED, linear
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.moe.routing import Routing, by_expert, held_part, route
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.tally import tally_up

_ROWS = 8192
"""Rows of a grouped product: more are not faster, and their copies for each expert are eight times as many."""
_ALIGNED = 16
"""Bytes of a row's stride in a grouped product."""


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
    def __init__(self, width: int, sizes: ExpertSizes, held: HeldExperts | None = None) -> None:
        """`held`: the experts of this shard; None for all."""
        super().__init__()
        self.sizes, self.held = sizes, held
        here = range(sizes.experts) if held is None else held.experts
        self.gate = nn.Linear(width, sizes.experts, bias=False)
        self.experts = nn.ModuleDict({str(expert): Expert(width, sizes.hidden) for expert in here})
        self._numbers: Tensor | None = None
        self.packed: PackedExperts | None = None
        self.tally: Tensor | None = None
        """Counts the distinct experts of each step, those of padding rows included, as they are read too. Only the
        kernel and the form of CPUs count: elsewhere it would take further launches."""

    def forward(self, x: Tensor) -> Tensor:
        """Many rows x `[R, W]`, normed -> `[R, W]`."""
        return self.chosen(x)

    def chosen(self, x: Tensor) -> Tensor:
        """The sum of the chosen experts: many rows x `[R, W]`, normed -> `[R, W]`."""
        packed = self.packed
        if packed is None or not x.is_cuda:
            return self._each_expert(x, self.routed(x))
        whole = packed.plain(x.dtype)
        parts = [self._grouped(rows, whole) for rows in x.split(_ROWS)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        """Few rows x `[B, W]`, not yet normed -> `[B, W]`, with the residual added if given. Needs `pack`."""
        if self.packed is None:
            raise RuntimeError(UNPACKED)
        if x.is_cuda and 0 < x.shape[0] <= STREAMED and self.held is None:
            from walkgraph.layers.kernels.experts import sparse_step, unfit

            if unfit(x, self.packed) is None:
                logits = linear(x, self.gate.weight, norm=norm.weight, eps=norm.eps, exact=True)
                return sparse_step(x, logits, self.packed, self.sizes, norm.weight, norm.eps, residual, self.tally)
        # One by one, a row's numbers are the same among any others.
        apart = is_batch_invariant() and x.shape[0] <= STREAMED
        parts = [norm(row) for row in (x.split(1) if apart else (x,))]
        y = torch.cat([self.chosen(part) for part in parts] if x.is_cuda else self._counted(parts))
        return y if residual is None else (y.float() + residual).to(x.dtype)

    def routed(self, x: Tensor) -> Routing:
        """x `[R, W]`, normed -> the part of the routing that this shard computes. With `held` it needs `pack`."""
        routing = route(x, self.gate.weight, self.sizes.chosen, renormed=self.sizes.renormed)
        if self.held is None:
            return routing
        if self._numbers is None:
            raise RuntimeError(UNPACKED)
        return held_part(routing, self._numbers, len(self.held.experts))

    def pack(self) -> None:
        """Lay the experts' weights one after the other; this freezes them."""
        if not self.experts:
            raise RuntimeError("experts in eight bits stay on their device and in their type")
        gate_up = torch.cat([part.weight.data for e in self._each() for part in (e.gate_proj, e.up_proj)])
        down = torch.cat([e.down_proj.weight.data for e in self._each()])
        experts, (hidden, width) = len(self.experts), (self.sizes.hidden, self.gate.in_features)
        self.packed = PackedExperts(gate_up.view(experts, 2 * hidden, width), down.view(experts, width, hidden))
        for expert, rows, back in zip(self._each(), self.packed.gate_up, self.packed.down, strict=True):
            for part, view in zip((expert.gate_proj, expert.up_proj), rows.split(hidden), strict=True):
                part.weight = nn.Parameter(view, requires_grad=False)
            expert.down_proj.weight = nn.Parameter(back, requires_grad=False)
        if self.held is not None:
            self._numbers = torch.tensor(self.held.numbers, device=gate_up.device)
        if gate_up.is_cuda:
            # The experts' own memory is in pieces too small for the next layer's matrices.
            torch.cuda.empty_cache()

    def quantise(self) -> None:
        """Keep the packed experts only in eight bits, with a scale for each row. The router stays."""
        if self.packed is None:
            raise RuntimeError(UNPACKED)
        self.packed, self.experts = self.packed.eight_bits(), nn.ModuleDict()

    @property
    def is_packed(self) -> bool:
        return self.packed is not None

    def _counted(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Rows of one step `[B, W]`, in parts, on a CPU."""
        routings = [self.routed(part) for part in parts]
        if self.tally is not None:
            tally_up(self.tally, torch.cat([one.here for one in routings]).unique().numel())
        return [self._each_expert(*one) for one in zip(parts, routings, strict=True)]

    def _each_expert(self, x: Tensor, routing: Routing) -> Tensor:
        packed = self.packed
        if packed is None:
            return each_expert(x, routing, lambda index: cast(Expert, self.experts[str(index)]))
        return each_expert(x, routing, lambda index: partial(one_expert, packed, index))

    def _grouped(self, x: Tensor, packed: PackedExperts) -> Tensor:
        aligned = not any(n * 2 % _ALIGNED for n in (x.shape[1], self.sizes.hidden))
        fits = x.dtype == torch.bfloat16 and aligned and _has_grouped(x.device)
        return (grouped_experts if fits else masked_experts)(x, self.routed(x), packed)

    def _each(self) -> Iterator[Expert]:
        return (cast(Expert, expert) for expert in self.experts.values())


def each_expert(x: Tensor, routing: Routing, expert: Callable[[int], Callable[[Tensor], Tensor]]) -> Tensor:
    """The plain form: x `[R, W]` -> `[R, W]`, expert by expert. `expert`: gives the MLP of an index. Reads the routing
    on the host."""
    out = torch.zeros_like(x, dtype=torch.float32)
    for index in routing.here.unique().tolist():
        rows, which = (routing.experts == index).nonzero(as_tuple=True)
        result = expert(index)(x[rows]).float() * routing.shares[rows, which, None]
        out = out.index_add(0, rows, result)
    return out.to(x.dtype)


def one_expert(packed: PackedExperts, index: int, x: Tensor) -> Tensor:
    """The MLP of one packed expert: x `[R, W]` -> `[R, W]`."""
    one = packed.only(index).plain(x.dtype)
    gate, up = F.linear(x, one.gate_up[0]).chunk(2, -1)
    return F.linear(F.silu(gate) * up, one.down[0])


def grouped_experts(x: Tensor, routing: Routing, packed: PackedExperts) -> Tensor:
    """x `[R, W]` -> `[R, W]`: one grouped product per matrix, over rows sorted by expert."""
    order = by_expert(routing, packed.down.shape[0])
    gate_up = F.grouped_mm(x[order.rows], packed.gate_up.transpose(1, 2), offs=order.ends)
    inner = gated(gate_up) * order.shares[:, None].to(x.dtype)
    results = F.grouped_mm(inner, packed.down.transpose(1, 2), offs=order.ends)
    # Each row sums its own results in one order, so the sum does not depend on the other rows.
    found = results[order.places]
    if routing.elsewhere is not None:
        # Nothing was written behind the last expert's rows.
        found = found.masked_fill(routing.elsewhere[..., None], 0)
    return found.sum(1)


def masked_experts(x: Tensor, routing: Routing, packed: PackedExperts) -> Tensor:
    """x `[R, W]` -> `[R, W]`: every expert computes every row, for types without grouped products on a GPU."""
    here = packed.down.shape[0]
    shares = torch.zeros(x.shape[0], here + 1, device=x.device)
    shares.scatter_(1, routing.experts, routing.shares)
    out = torch.zeros_like(x, dtype=torch.float32)
    for gate_up, down, share in zip(packed.gate_up, packed.down, shares[:, :here].split(1, 1), strict=True):
        out += F.linear(gated(F.linear(x, gate_up)), down).float() * share
    return out.to(x.dtype)


@cache
def _has_grouped(device: torch.device) -> bool:
    """True for GPUs whose grouped products read no sizes on the host, so that they can be captured."""
    return torch.cuda.get_device_capability(device)[0] in (9, 10)
