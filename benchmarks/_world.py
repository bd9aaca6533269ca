"""Inputs of the benchmark of V-JEPA 2-AC's kernels: paged contexts, and stacks of full-size layers."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import _common as common
import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.paged_blocks import paged_block_attention, place_block
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.layer_norm import shifted_norm

TOKENS, PAGE, HEADS, WIDTH = 258, 16, 16, 64
ROLLOUTS = 400


def attempt(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as raised:  # noqa: BLE001 - one part that fails must not take the others with it
        print(f"failed: {type(raised).__name__}: {raised}"[:2000], flush=True)
        return None


def per_call(works: Sequence[Callable[[], Any]], rounds: int = 9) -> float:
    """Microseconds of one of the works, which are captured one after the other: the median over replays."""
    works[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for work in works:
            work()
    for _ in range(2):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = [1e3 * a.elapsed_time(b) / len(works) for a, b in itertools.pairwise(events)]
    graph.reset()
    return statistics.median(times)


def normal(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * scale


def wrong(found: Tensor, wanted: Tensor) -> float:
    """Relative L2 distance; NaN where any number is none."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


class Room:
    """Paged keys and values of some sequences, all of one length, with pages in random order."""

    def __init__(self, batch: int, context: int, layers: int, capacity: int | None = None, heads: int = HEADS) -> None:
        self.capacity = -(-max(context + TOKENS, capacity or 0) // PAGE) * PAGE
        count = self.capacity // PAGE
        pages = torch.randperm(batch * count, device="cuda").view(batch, count).int()
        rows = torch.arange(batch, device="cuda", dtype=torch.int32)
        self.rows = PagedRows(rows, pages, torch.full_like(rows, context), torch.zeros_like(rows))
        slots = batch * self.capacity
        self.k = [normal(slots, heads, WIDTH) for _ in range(layers)]
        self.v = [normal(slots, heads, WIDTH) for _ in range(layers)]
        angles = torch.randn(1, TOKENS, WIDTH, device="cuda").expand(batch, -1, -1)
        self.cos, self.sin = angles.cos(), angles.sin()
        if batch > 1:
            self.cos, self.sin = (t[:1].clone().expand(batch, -1, -1) for t in (self.cos, self.sin))

    def at(self, context: int) -> None:
        self.rows.lengths.fill_(context)


class Weights(NamedTuple):
    qkv: Tensor
    o: Tensor
    up: Tensor
    down: Tensor
    norm: torch.nn.LayerNorm
    shift: Tensor
    biases: Sequence[Tensor]


def weights(width: int, hidden: int) -> Weights:
    made = [
        normal(n, k, scale=k**-0.5) for n, k in ((3 * width, width), (width, width), (hidden, width), (width, hidden))
    ]
    norm = torch.nn.LayerNorm(width, 1e-6, device="cuda", dtype=torch.bfloat16)
    qkv, o, up, down = made
    return Weights(
        qkv, o, up, down, norm, torch.randn(width, device="cuda"), [normal(one.shape[0], scale=0.1) for one in made]
    )


def layer(x: Tensor, of: Weights, k: Tensor, v: Tensor, room: Any, tokens: int) -> Tensor:
    """As `models.vjepa2.steps.through`."""
    y = shifted_norm(x, of.shift, of.norm)
    q = place_block(product(y, of.qkv, of.biases[0]), room.cos, room.sin, k, v, room.rows, tokens)
    heads = paged_block_attention(q, k, v, room.rows, tokens)
    x = product(heads.flatten(1), of.o, residual=x)
    hidden = product(shifted_norm(x, of.shift, of.norm), of.up, of.biases[2], activation="gelu")
    return product(hidden, of.down, residual=x)


def stacks(budget: common.Budget, rollouts: Sequence[int]) -> list[common.Row]:
    rows: list[common.Row] = []
    made = [weights(1024, 4096) for _ in range(24)]
    for batch, contexts in ((1, (0, 1032, 2064, 4128, 7740)), (8, (0, 2064, 3870)), (ROLLOUTS, (0, 258))):
        if batch in rollouts and budget.allows(f"predictor {batch}"):
            rows += attempt(lambda b=batch, c=contexts: predictor(made, b, c)) or []
    if 1 in rollouts and budget.allows("encoder"):
        rows += attempt(encoder) or []
    common.show("stacks of layers", rows)
    return rows


def predictor(made: list[Weights], batch: int, contexts: Sequence[int]) -> list[common.Row]:
    room = Room(batch, 0, len(made), max(contexts) + TOKENS)
    x = normal(batch * TOKENS, 1024)

    def step() -> Tensor:
        y = x.clone()
        for number, of in enumerate(made):
            y = layer(y, of, room.k[number], room.v[number], room, TOKENS)
        return y

    return [*timed(f"predictor {batch}", step, room, contexts, len(made))]


def encoder() -> list[common.Row]:
    made, room = [weights(1408, 6144) for _ in range(40)], Room(1, 0, 1, heads=22)
    room.cos, room.sin = room.cos[:, :256], room.sin[:, :256]
    x = normal(256, 1408)

    def step() -> Tensor:
        y = x.clone()
        for of in made:
            y = layer(y, of, room.k[0], room.v[0], room, 256)
        return y

    return [*timed("encoder", step, room, (0,), len(made))]


def timed(
    name: str, step: Callable[[], Tensor], room: Room, contexts: Sequence[int], layers: int
) -> Iterator[common.Row]:
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for context in contexts:
        room.at(context)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
        graph.replay()
        for event in events:
            event.record()
            graph.replay()
        torch.cuda.synchronize()
        us = 1e3 * statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events))
        finite = bool(out.isfinite().all())
        row = {"stack": name, "context": context, "ms": us / 1e3, "us a layer": us / layers, "finite": finite}
        common.show(name, [row])
        yield row
    attempt(lambda: kernels(name, graph, layers))
    graph.reset()


def kernels(name: str, graph: torch.cuda.CUDAGraph, layers: int) -> None:
    """By kernel; those that overlap count the time that they wait for each other."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        graph.replay()
        torch.cuda.synchronize()
    on = [e for e in trace.events() or [] if e.device_type == DeviceType.CUDA]
    events = sorted(on, key=lambda e: e.time_range.start)
    each = max(1, round(len(events) / layers))
    found: dict[tuple[int, str], list[float]] = {}
    for number, event in enumerate(events[len(events) % layers :]):
        found.setdefault((number % each, event.name[:60]), []).append(event.time_range.elapsed_us())
    rows = [{"us": statistics.median(v), "calls": len(v), "kernel": k[1], "at": k[0]} for k, v in sorted(found.items())]
    common.show(f"{name}: kernels of a layer", rows[:20])
