"""The router of a mixture of experts, and its rows in the order of their experts.

A shard of a group that holds whole experts computes only some of the pairs of a row and an expert.

Shape letters: R rows, W model width, E experts, C experts chosen for each row.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Routing(NamedTuple):
    """The experts of every row."""

    experts: Tensor
    """int64 `[R, C]`, all different in a row but for those that another shard computes."""
    shares: Tensor
    """float32 `[R, C]`: the factor of each expert's result."""
    elsewhere: Tensor | None = None
    """bool `[R, C]`: true for what another shard computes; None if nothing is."""

    @property
    def here(self) -> Tensor:
        """int64 `[n]`: the experts of all rows that are computed here."""
        return self.experts.flatten() if self.elsewhere is None else self.experts[~self.elsewhere]


class ExpertOrder(NamedTuple):
    """The pairs of a row and an expert, sorted by expert. Nothing of it is read on the host."""

    rows: Tensor
    """int64 `[R * C]`: the row of each pair."""
    ends: Tensor
    """int32 `[E]`: the index after each expert's last pair."""
    shares: Tensor
    """float32 `[R * C]`"""
    places: Tensor
    """int64 `[R, C]`: the indices of a row's pairs."""


def route(x: Tensor, router: Tensor, chosen: int, *, renormed: bool) -> Routing:
    """x `[R, W]`, normed, router `[E, W]` -> the likeliest experts of each row. Logits, softmax and shares are float32.

    `renormed`: shares are scaled to a sum of 1.
    """
    return likeliest(_logits(x, router), chosen, renormed=renormed)


def likeliest(logits: Tensor, chosen: int, *, renormed: bool) -> Routing:
    """float32 logits `[R, E]` -> the likeliest experts of each row."""
    shares, experts = logits.softmax(-1).topk(chosen, -1)
    return Routing(experts, shares / shares.sum(-1, keepdim=True) if renormed else shares)


def _logits(x: Tensor, router: Tensor) -> Tensor:
    if x.is_cuda and x.dtype != torch.float32 and not torch.is_grad_enabled():
        return torch.mm(x, router.t(), out_dtype=torch.float32)
    return F.linear(x.float(), router.float())


def held_part(routing: Routing, numbers: Tensor, count: int) -> Routing:
    """The part of a routing that a shard computes, by its own numbers of experts. numbers int64 `[E, 2]`: each expert's
    for even rows and for odd ones; `count`, how many experts the shard has, where another shard computes it.

    A row is even or odd by the sum of its experts' numbers, so its place in a batch doesn't matter.
    """
    found = numbers[routing.experts, routing.experts.sum(1, keepdim=True) % 2]
    return Routing(found, routing.shares, found == count)


def by_expert(routing: Routing, experts: int) -> ExpertOrder:
    """Sort the pairs by expert; the rows of an expert stay in their order. Pairs that are computed elsewhere are the
    last ones, behind all ends."""
    flat, chosen = routing.experts.flatten(), routing.experts.shape[1]
    ordered, order = flat.sort(stable=True)
    each = torch.arange(experts, device=flat.device)
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=flat.device)
    return ExpertOrder(
        rows=order // chosen,
        ends=torch.searchsorted(ordered, each, right=True).to(torch.int32),
        shares=routing.shares.flatten()[order],
        places=places.view(-1, chosen),
    )
