"""pi0.5's full-size action expert with random weights, for `gpu_policy`, and the splits that it tries."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.dense_context import GAP, ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.attention.block_attention import rotary_from_first
from walkgraph.layers.attention.heads import HeadTargets, RotaryTable
from walkgraph.layers.flow.flow_end import end
from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead
from walkgraph.layers.kernels import modulated as kernels
from walkgraph.layers.kernels.flow_stack import Context, Entry, FlowLayer, FlowSizes, FlowStack
from walkgraph.layers.kernels.modulated_config import TABLE, Case, Cut, fits
from walkgraph.layers.kernels.modulated_rows import weigh
from walkgraph.layers.kernels.narrow_attention import Tuning, narrow_attention
from walkgraph.layers.norm import modulated
from walkgraph.layers.norm.modulated import Modulation, Rows
from walkgraph.layers.rope import neox_frequencies

WIDTH, HEADS, GROUPS, DIM, HIDDEN, LAYERS, ACTION = 1024, 8, 1, 256, 4096, 18, 32
TOKENS, PREFIX, STEPS, EPS = 50, 968, 10, 1e-6
QKV = (HEADS + 2 * GROUPS) * DIM
CASES: dict[str, Case] = {
    "place": (QKV, WIDTH, DIM // 2),
    "out": (WIDTH, HEADS * DIM, 0),
    "gated": (2 * HIDDEN, WIDTH, HIDDEN),
    "down": (WIDTH, HIDDEN, 0),
}
LAYER_BYTES = 2 * sum(rows * depth for rows, depth, _ in CASES.values())
ATTENTION: dict[int, Tuning] = {}
"""Robots -> how their attention is cut; the room's own where nothing is said."""
PARTS = 32
"""Number of partial sums of squares per row that a product timed alone is given."""
_SHARED = 110 << 10
"""Bytes of shared memory that let two programs share a processor."""


def drawn(generator: torch.Generator, *size: int, scale: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(size, generator=generator, device=generator.device).mul_(scale).to(dtype)


@dataclass
class Layer:
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor

    def weight(self, name: str) -> Tensor:
        return {"place": self.qkv, "out": self.out, "gated": self.gate_up, "down": self.down}[name]


class Expert:
    """The loop of some robots; `dtype` float32 takes the plain forms everywhere."""

    def __init__(self, robots: int, *, dtype: torch.dtype = torch.bfloat16, device: str = "cuda") -> None:
        self.robots, self.dtype, self.device = robots, dtype, torch.device(device)
        self.tuned = ATTENTION.get(robots) if dtype == torch.bfloat16 else None
        generator = torch.Generator(self.device).manual_seed(robots)
        self.layers = [
            Layer(*(drawn(generator, *case[:2], scale=case[1] ** -0.5).to(dtype) for case in CASES.values()))
            for _ in range(LAYERS)
        ]
        self.first, self.last = (
            drawn(generator, WIDTH, ACTION, scale=ACTION**-0.5).float(),
            drawn(generator, ACTION, WIDTH, scale=WIDTH**-0.5, dtype=torch.float32),
        )
        self.bias, self.none = (torch.zeros(size, device=self.device) for size in (WIDTH, ACTION))
        self._modulations(generator)
        self.room = self._room(generator)
        self.noise = drawn(generator, robots * TOKENS, ACTION, dtype=torch.float32)
        self.frequencies = neox_frequencies(DIM, 1e4).to(self.device)
        starts = [i * (PREFIX + TOKENS + GAP) for i in range(robots)]
        spans = [[start, start + PREFIX + TOKENS] for start in starts]
        self.bounds = torch.tensor(spans, dtype=torch.int32, device=self.device)

    def _modulations(self, generator: torch.Generator) -> None:
        """Makes the modulations of all times, as a table."""
        tables = []
        for _ in range(STEPS):
            made = []
            for layer in self.layers:
                for weight in (layer.qkv, layer.gate_up):
                    scale, shift, gate = (drawn(generator, self.robots, WIDTH, scale=0.3) for _ in range(3))
                    made.append(Modulation.of(scale.float(), shift.float(), gate.float(), weight))
            tables.append(modulated.laid(made))
        self.table = torch.stack(tables)
        self.final = drawn(generator, STEPS, 2, self.robots, WIDTH, scale=0.3).float()

    def _room(self, generator: torch.Generator) -> DenseContext:
        shape = CacheShape(layers=LAYERS, kv_heads=GROUPS, head_dim=DIM, dtype=self.dtype)
        count = pages_for(PREFIX)
        pool = Pool(shape, self.robots * count, self.device)
        for cache in (*pool.k, *pool.v):
            cache.copy_(drawn(generator, *cache.shape))
        room = DenseContext(pool, self.robots, TOKENS, capacity_for([PREFIX] * self.robots, self.robots, TOKENS))
        held = [
            ContextSequence(range(1 + i * count, 1 + (i + 1) * count), PREFIX, PREFIX, i) for i in range(self.robots)
        ]
        room.place(held)
        return room

    def loop(self) -> Tensor:
        """Ten Euler steps -> actions float32 `[R, A]`."""
        x = self.noise
        for step in range(STEPS):
            x = x - self.velocity(x, step) / STEPS
        return x

    def velocity(self, x: Tensor, step: int, parts: frozenset[str] = frozenset()) -> Tensor:
        """`parts` are left out."""
        made = modulated.lifted(self.table[step], WIDTH, [QKV, 2 * HIDDEN] * LAYERS)
        rows = modulated.enter(x, self.first, self.bias, made[0].scale, EPS, self.dtype)
        turns = rotary_from_first(self.room.positions, TOKENS, self.frequencies)
        q = torch.empty(x.shape[0], HEADS, DIM, dtype=self.dtype, device=self.device)
        for index, layer in enumerate(self.layers):
            one, two = made[2 * index : 2 * index + 2]
            after = made[2 * index + 2].scale if index + 1 < LAYERS else one.scale
            if "place" not in parts:
                modulated.place(rows, layer.qkv, one.bias, turns, self.places(index, q))
            heads = q if "attend" in parts else self.attend(index, q)
            if "out" not in parts:
                rows = modulated.add(rows, heads.flatten(1), layer.out, one.gate, two.scale)
            if "gated" not in parts:
                self.inner = modulated.gated(rows, layer.gate_up, two.bias)
            if "down" not in parts:
                rows = modulated.add(rows, self.inner, layer.down, two.gate, after)
        normed = modulated.modulated(rows.x, *self.final[step], EPS)
        return F.linear(normed.float(), self.last)

    def stack(self) -> FlowStack:
        """All layers in one launch, for one robot."""
        layers = [FlowLayer(layer.qkv, layer.out, layer.gate_up, layer.down) for layer in self.layers]
        sizes = FlowSizes(WIDTH, HEADS, GROUPS, DIM, HIDDEN, LAYERS, EPS)
        return FlowStack(sizes, layers, Entry(self.first, self.bias), self.frequencies)

    def stacked(self, stack: FlowStack, x: Tensor, step: int) -> Tensor:
        """Rows before the last norm."""
        context = Context(self.room.k, self.room.v, self.room.slots, self.room.positions)
        return stack(x, self.table[step, 0], context)

    def stacked_loop(self, stack: FlowStack) -> Tensor:
        """`loop` with the layers in one launch, and the end of a step in another."""
        x, times = self.noise, torch.linspace(1, 0, STEPS + 1, device=self.device)
        for step in range(STEPS):
            head = VelocityHead(*self.final[step], EPS, self.last, self.none)
            way = FlowInterval(times[step : step + 1], times[step + 1 : step + 2])
            x = end(self.stacked(stack, x, step), head, x[None], way)[0]
        return x

    def places(self, index: int, q: Tensor) -> HeadTargets:
        return HeadTargets(q, self.room.k[index], self.room.v[index], self.room.slots)

    def attend(self, index: int, q: Tensor) -> Tensor:
        if self.tuned is None:
            return self.room(index, q)
        return narrow_attention(q, self.room.k[index], self.room.v[index], self.bounds, self.tuned)


@contextmanager
def plainly() -> Iterator[None]:
    """Layers take their plain forms: those have gradients."""
    with torch.enable_grad():
        yield


class Alone:
    """One product of some robots' rows, by kernels and plainly."""

    def __init__(self, name: str, robots: int, device: str = "cuda") -> None:
        self.name, self.robots, (n, k, _) = name, robots, CASES[name]
        generator = torch.Generator(device).manual_seed(1)
        rows = robots * TOKENS
        self.x, self.inner = drawn(generator, rows, WIDTH), drawn(generator, rows, k)
        self.scale, self.gate, wide = (drawn(generator, robots, size, scale=0.3).float() for size in (WIDTH, WIDTH, n))
        self.bias = wide
        weighted, _ = weigh(self.x, self.scale)
        squares = self.x.float().square().unflatten(1, (PARTS, -1)).sum(-1).T.contiguous()
        self.rows = Rows(self.x, self.scale, EPS, weighted, squares)
        positions = 968 + torch.arange(TOKENS, device=device).expand(robots, TOKENS)
        self.turns = RotaryTable.at(positions, neox_frequencies(DIM, 1e4).to(device))
        self.slots = torch.arange(rows, device=device)

    def places(self) -> HeadTargets:
        rows, device = self.x.shape[0], self.x.device
        room = (torch.zeros(rows, GROUPS, DIM, dtype=self.x.dtype, device=device) for _ in range(2))
        return HeadTargets(torch.zeros(rows, HEADS, DIM, dtype=self.x.dtype, device=device), *room, self.slots)

    def run(self, cut: Cut, weight: Tensor, to: HeadTargets) -> Tensor | None:
        """The result, but for what is placed."""
        rows, squares = self.rows.weighted, self.rows.squares
        if rows is None or squares is None:
            raise RuntimeError("rows that a kernel reads were weighted by one")
        if self.name == "place":
            return kernels.placed(cut, rows, squares, weight, self.bias, EPS, self.turns, to)
        if self.name == "gated":
            return kernels.gated(cut, rows, squares, weight, self.bias, EPS)
        return kernels.added(cut, self.x, self.inner, weight, self.gate, self.scale)[0]

    def wrong(self, cut: Cut, weight: Tensor) -> float:
        """Relative error to float32, the larger one of two launches: the second finds counters as the first left
        them."""
        wanted, worst = self.plain(weight), 0.0
        for _ in range(2):
            to = self.places()
            found = self.run(cut, weight, to)
            found = torch.cat([part.flatten(1) for part in to[:3]], 1) if found is None else found
            off = float((found.float() - wanted).norm() / wanted.norm())
            worst = worst if off <= worst else off
        return worst

    def read(self) -> Tensor:
        """The operands of the product."""
        return self.inner if self.name in ("out", "down") else self.x

    def plain(self, weight: Tensor) -> Tensor:
        """Computes it in float32."""
        rows = Rows(self.x.float(), self.scale, EPS)
        if self.name == "place":
            to = HeadTargets(*(part.float() for part in self.places()[:3]), self.slots)
            modulated.place(rows, weight.float(), self.bias, self.turns, to)
            return torch.cat([part.flatten(1) for part in to[:3]], 1)
        if self.name == "gated":
            return modulated.gated(rows, weight.float(), self.bias)
        return modulated.add(rows, self.inner.float(), weight.float(), self.gate, self.scale).x


def candidates(name: str, rows: int) -> list[Cut]:
    """Cuts that give between half a program and some for every processor, and torch's product."""
    case, found = CASES[name], list[Cut]()
    for columns, depth, split in itertools.product((16, 32, 64, 128), (64, 128), (1, 2, 4, 8)):
        programs = -(-rows // 64) * (case[0] // columns) * split
        if columns == 16 and case[2]:
            continue
        if not 64 <= programs <= max(600, rows * 5 // 2) or split * rows > 1600 or (rows > 100 and columns < 64):
            continue
        for shared in (_SHARED, 2 * _SHARED) if rows <= 64 else (_SHARED,):
            stages = min(8, shared // ((64 + columns) * depth * 2), case[1] // split // depth)
            if stages >= 2:
                ahead = case[1] // split if rows <= 100 else 0
                found.append(Cut(64, columns, depth, split, stages, ahead=ahead))
    found += early(name, rows) if rows <= 100 else []
    found += [
        Cut(high, columns, library=True)
        for high, columns in itertools.product((8, 16, 32), (64, 128, 256))
        if high * columns <= 4096
    ]
    return [cut for cut in dict.fromkeys(found) if fits(cut, rows, case)]


def early(name: str, rows: int) -> list[Cut]:
    """Whose weights come whole before the launch before has ended."""
    case, found = CASES[name], list[Cut]()
    for columns, split, overlap in itertools.product((16, 32, 64, 128), (1, 2, 4, 8), (1, 2)):
        depth = case[1] // split
        programs = -(-rows // 64) * (case[0] // columns) * split
        if (64 + columns) * depth * 2 <= 2 * _SHARED and 64 <= programs <= 264 and not (columns == 16 and case[2]):
            found.append(Cut(64, columns, depth, split, stages=2, overlap=overlap, early=True))
    return found


def attentions(robots: int, processors: int) -> list[Tuning]:
    found = list[Tuning]()
    for rows, block, splits, warps in itertools.product((64, 128), (32, 64, 128), (1, 2, 4, 8, 16), (4, 8)):
        tiles = robots * GROUPS * -(-TOKENS * HEADS // GROUPS // rows)
        shared = rows * DIM * 2 + 2 * 2 * block * DIM * 2
        registers = rows * (DIM + block) // (32 * warps)
        if not 48 <= tiles * splits <= 2 * processors or shared > 235 << 10 or registers > 192:
            continue
        if (rows, warps) == (128, 4) or (block == 32 and splits > 4) or splits * block > PREFIX + TOKENS + block:
            continue
        joined = splits > 1 and tiles * splits <= processors
        found.append(Tuning(rows=rows, block=block, splits=splits, warps=warps, joined=joined))
    return found


def use(name: str, rows: int, cut: Cut) -> None:
    """Products of this many rows are cut so from here on."""
    TABLE.setdefault(CASES[name], {})[rows] = cut


Work = Callable[[], Any]


def microseconds(work: Work, replays: int = 5) -> float:
    """One replay of the captured work; the median."""
    with torch.no_grad():
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        work()
    graph.replay()
    times: list[float] = []
    for _ in range(replays):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    graph.reset()
    return sorted(times)[replays // 2]
