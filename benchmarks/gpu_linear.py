"""Measures how fast the linears of a decode step read their weights, and finds a config per shape and row count, on one
GPU.

    python benchmarks/gpu_linear.py --out linear.json --table table.py [--model bagel] [--budget 135]
        [--rows 2 4 8 16 32 64]

Every config is compiled in a pool of processes, checked against float32 on fresh data, then timed as a captured graph
that rotates through copies of the weights, so that they are never in L2. Then the best configs of every linear are
compared in whole steps (28 layers with their attention, and the head, as one graph), because overlapping launches speed
up or slow down their neighbours. `--table` writes `linear_config.TABLE` with the result; the JSON has everything. Row
counts are measured in the given order until the budget (total seconds) is used up; the rest is skipped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import torch
from _linears import MODELS, Model, Shape
from torch import Tensor
from torch.nn import functional as F
from triton.runtime.errors import TritonError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.step_attention import step_attention
from walkgraph.layers.kernels.linear_config import TABLE, Config, choose, fits

LAYERS, WIDTH, PAGE = 28, 128, 16
ERROR = 1e-2
EPS = 1e-5


def tile(rows: int) -> int:
    """Row counts of one tile size share their configs."""
    return next(size for size in (1, 16, 32, 64) if rows <= size)


def candidates(shape: Shape, rows: int) -> Iterator[Config]:
    yield from table_configs(shape, rows)
    if rows == 1:
        yield from vectors(shape)
        return
    m = tile(rows)
    for k, split in itertools.product((64, 128), (1, 4)):
        if m < 64 and not (shape.gated and split > 1):
            yield Config(n=64, k=k, split=split, stages=min(8, 108 * 1024 // ((64 + m) * k * 2)), swap=True)
    for n, count in blocks(shape):
        for k, size, warps in itertools.product((64, 128), (108, 200), (4, 8) if n >= 128 else (4,)):
            stages = size * 1024 // ((n + m) * k * 2)
            if stages < 2 or stages > 16 or (size > 108 and count == 264):
                continue
            for before in (False, True) if shape.norm else (False,):
                if m * k > 4096 and shape.norm and not before:  # too many registers
                    continue
                if not before or m > 16 or size == 108:
                    yield Config(n=n, k=k, warps=warps, stages=stages, tiles=True, programs=count, before=before)


def vectors(shape: Shape) -> Iterator[Config]:
    """For one row: 8 to 64 weights in flight in every thread, straight into registers or through shared memory; or
    large weights through tensor maps, though the tensor cores are mostly idle."""
    k = 512 if shape.k % 1024 else 1024
    for n, warps, stages in itertools.product((2, 4, 8, 16), (2, 4, 8), (1, 3)):
        if 8 <= n * k // (32 * warps) <= 64 and not (shape.gated and n == 2):
            yield Config(n=n, k=k, warps=warps, stages=stages, vector=True, prefetch=512, pdl=2)
    for n, k in itertools.product((64, 128), (64, 128)):
        if shape.width * shape.k > 1 << 25:
            yield Config(n=n, k=k, stages=108 * 1024 // ((n + 16) * k * 2), tiles=True, prefetch=512, pdl=2)


def blocks(shape: Shape) -> list[tuple[int, int]]:
    """Weight rows of a block, and programs that share the tiles (0: one per block)."""
    if shape.name == "head":
        return [(128, 0), (256, 0)]
    if shape.gated:
        return [(32, 0), (64, 0), (128, 0), (256, 0)] if shape.width > 32768 else [(64, 0), (128, 0)]
    return [(16, 0), (32, 0), (64, 0), (64, 132), (64, 264), (128, 132), (128, 264)]


def table_configs(shape: Shape, rows: int) -> Iterator[Config]:
    """The configs that serve these rows now, without and with overlap with the previous launch."""
    for most, config in TABLE.get((shape.n, shape.k, shape.gated), {}).items():
        if (tile(most) == tile(rows) and most > 1) or most == rows:
            yield replace(config, pdl=0, prefetch=0)
            yield replace(config, pdl=1, prefetch=256)


def variants(best: Config) -> Iterator[Config]:
    """Variants of a good config that overlap with the previous kernel in other ways."""
    for prefetch, pdl in itertools.product((0, 32768 // best.n, 65536 // best.n), (1, 2)):
        yield replace(best, prefetch=prefetch, pdl=pdl)
    yield replace(best, prefetch=0, pdl=0)


def runnable(shape: Shape, rows: int, configs: Iterable[Config]) -> list[Config]:
    return [config for config in dict.fromkeys(configs) if fits(config, rows, shape.n, shape.k, shape.gated)]


class Attention:
    """28 layers of keys and values of sequences of a model's `context`, each in pages of its own."""

    def __init__(self, model: Model, most: int) -> None:
        self.model, held = model, model.context // PAGE + 1
        shape = (most * held * PAGE, model.groups, WIDTH)
        self.pools = [torch.randn(2, *shape, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]
        self.pages = torch.zeros(most, max(160, held), dtype=torch.int32, device="cuda")
        self.pages[:, :held] = torch.randperm(most * held, device="cuda").int().view(most, held)
        self.lengths = torch.full((most,), model.context - 1, dtype=torch.int32, device="cuda")
        self.rows = torch.arange(most, dtype=torch.int32, device="cuda")
        self.frequencies = 1 / 500000.0 ** (torch.arange(0, WIDTH, 2, device="cuda") / WIDTH)
        self.norm = torch.ones(WIDTH, dtype=torch.bfloat16, device="cuda") if model.qk_norm else None

    def __call__(self, qkv: Tensor, layer: int) -> Tensor:
        rows = PagedRows(self.rows[: qkv.shape[0]], self.pages, self.lengths, self.lengths)
        keys, values = self.pools[layer]
        return step_attention(
            qkv, keys, values, rows, self.frequencies, self.model.heads, q_norm=self.norm, k_norm=self.norm
        )


def compile_one(task: tuple[Shape, int, Config]) -> str:
    """Into Triton's cache, in a process of the pool: the main process then only loads it."""
    from walkgraph.layers.kernels.linear import warm

    shape, rows, config = task
    try:
        fused = {"norm": shape.norm, "residual": shape.residual, "bias": shape.bias}
        warm(config, rows, shape.n, shape.k, shape.gated, **fused)
    except Exception as error:  # noqa: BLE001 - what can't be compiled is no candidate, whatever the reason
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def apply(shape: Shape, config: Config | None, x: Tensor, weight: Tensor, norm: Tensor, residual: Tensor) -> Tensor:
    """By the kernels, or by torch where there is no config. The weight's first numbers are the bias too."""
    bias = weight.view(-1)[: shape.width] if shape.bias else None
    if config is not None:
        from walkgraph.layers.kernels.linear import stream_linear

        return stream_linear(
            config, x, weight, norm=norm if shape.norm else None, eps=EPS, gated=shape.gated,
            residual=residual if shape.residual else None, bias=bias,
        )  # fmt: skip
    y = F.linear(F.rms_norm(x, (shape.k,), norm, EPS) if shape.norm else x, weight, bias)
    if shape.gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    return y + residual if shape.residual else y


def exact(shape: Shape, x: Tensor, weight: Tensor, norm: Tensor, residual: Tensor) -> Tensor:
    return apply(shape, None, x.float(), weight.float(), norm.float(), residual.float())


def microseconds(work: Callable[[], object], replays: int = 3) -> float:
    """One replay of the captured work; the best of some."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    best = float("inf")
    for _ in range(replays):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3)
    return best


Ranked = list[tuple[float, Config]]
"""Microseconds alone, fastest first."""
Choice = dict[str, Config | None]
"""Per linear; None is left to torch."""


class Bench:
    def __init__(self, model: Model, budget: float, most: int, workers: int) -> None:
        self.shapes = model.shapes
        self.budget, self.deadline = budget, time.monotonic() + budget
        context = multiprocessing.get_context("spawn")
        self.workers = workers
        self.pool = ProcessPoolExecutor(workers, mp_context=context)
        self.weights = {shape.name: self._copies(shape) for shape in self.shapes}
        self.failures: dict[str, str] = {}
        self.ready: set[tuple[str, int, Config]] = set()
        self.attention = Attention(model, most)

    def _copies(self, shape: Shape) -> list[Tensor]:
        copies = 1 if shape.name == "head" else LAYERS
        scale = shape.k**-0.5
        return [
            torch.randn(shape.width, shape.k, dtype=torch.bfloat16, device="cuda").mul_(scale) for _ in range(copies)
        ]

    def data(self, shape: Shape, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        def normal(*size: int) -> Tensor:
            return torch.randn(*size, dtype=torch.bfloat16, device="cuda")

        return normal(rows, shape.k), 1 + normal(shape.k) / 4, normal(rows, shape.n)

    def compile(self, tasks: Iterable[tuple[Shape, int, Config]], reserve: float) -> None:
        """The first rows first, and in random order, so that no shape is left without; ends when this share of the
        budget is left."""
        distinct = {(shape.name, tile(rows), config): (shape, tile(rows), config) for shape, rows, config in tasks}
        fresh = [(key, task) for key, task in distinct.items() if key not in self.ready]
        random.Random(0).shuffle(fresh)
        order = {rows: place for place, rows in enumerate(dict.fromkeys(rows for _, rows, _ in distinct))}
        fresh.sort(key=lambda item: order[item[0][1]])
        begin, done = time.monotonic(), 0
        while done < len(fresh) and time.monotonic() < self.deadline - reserve * self.budget:
            part = fresh[done : done + 4 * self.workers]
            for (key, _), message in zip(part, self.pool.map(compile_one, [task for _, task in part]), strict=True):
                if message:
                    self.failures[str(key)] = message
                else:
                    self.ready.add(key)
            done += len(part)
        print(f"compiled {done} of {len(fresh)} in {time.monotonic() - begin:.0f} s", flush=True)

    def measure(self, shape: Shape, rows: int, configs: list[Config]) -> Ranked:
        """Microseconds a launch, best first; what is wrong or can't run is noted and left out."""
        weights = self.weights[shape.name]
        x, norm, residual = self.data(shape, rows)
        wanted = exact(shape, x, weights[0], norm, residual)
        used = weights if len(weights) > 1 else weights * 3
        timed: Ranked = []
        for config in configs:
            name = f"{shape.name} {rows} {config}"
            if time.monotonic() > self.deadline or (shape.name, tile(rows), config) not in self.ready:
                continue
            try:
                error = self.error(shape, config, (x, weights[0], norm, residual), wanted)
                if not error < ERROR:
                    self.failures[name] = f"relative error {error}"
                    continue

                def work(config: Config = config) -> None:
                    for weight in used:
                        apply(shape, config, x, weight, norm, residual)

                timed.append((microseconds(work) / len(used), config))
            except (RuntimeError, ValueError, TritonError) as failure:
                self.failures[name] = str(failure)[:200]
        return sorted(timed, key=lambda item: item[0])

    def error(self, shape: Shape, config: Config, data: tuple[Tensor, ...], wanted: Tensor) -> float:
        """The larger one of a full tile and of one that isn't; a wrong one leaves clean counters to the next."""
        from walkgraph.layers.kernels.linear import workspace

        x, weight, norm, residual = data
        worst = 0.0
        for rows in (x.shape[0], max(1, x.shape[0] * 5 // 8)):
            for _ in range(2):  # the second launch finds the counters as the first left them
                result = apply(shape, config, x[:rows], weight, norm, residual[:rows]).float()
            off = ((result - wanted[:rows]).norm() / wanted[:rows].norm()).item()
            worst = off if not off <= worst else worst
        if not worst < ERROR:
            workspace(x.device)[1].zero_()
        return worst

    def model(self, rows: int, configs: Choice, *, attend: bool, replays: int = 5) -> float:
        """28 layers and the head in one graph; every linear reads what the one before it wrote. A layer with experts is
        measured without them."""
        by_name = {shape.name: shape for shape in self.shapes}
        x, norm, _ = self.data(by_name["qkv"], rows)
        heads = rows * by_name["o"].k

        def work() -> None:
            h = x
            for layer in range(LAYERS):

                def run(name: str, value: Tensor, rest: Tensor, layer: int = layer) -> Tensor:
                    return apply(by_name[name], configs[name], value, self.weights[name][layer], norm, rest)

                qkv = run("qkv", h, h)
                mixed = self.attention(qkv, layer) if attend else qkv.view(-1)[:heads].view(rows, -1)
                h = run("o", mixed, h)
                if "down" in by_name:
                    h = run("down", run("gate_up", h, h), h)
            apply(by_name["head"], configs["head"], h, self.weights["head"][0], norm, h)

        return microseconds(work, replays)

    def descend(self, rows: int, cases: dict[str, Ranked]) -> tuple[Choice, float]:
        """One linear after the other takes what makes the whole step fastest, from the best of three beginnings."""
        some = {name: _mixed(found, 2) for name, found in cases.items()}
        starts = [_best(cases, {pdl}) for pdl in (0, 1, 2)]
        timed = [(self.model(rows, choice, attend=True), choice) for choice in starts]
        time_us, choice = min(timed, key=lambda item: item[0])
        for _ in range(2):
            before = time_us
            for name, config in ((name, config) for name, configs in some.items() for config in configs):
                other = choice | {name: config}
                if other == choice or time.monotonic() > self.deadline:
                    continue
                taken = self.model(rows, other, attend=True)
                if taken < time_us * 0.9995:
                    time_us, choice = taken, other
            if time_us == before:
                break
        return choice, time_us


def _mixed(found: Ranked, count: int) -> list[Config]:
    """The fastest alone of every kind of overlap."""
    kinds = ([c for _, c in found if c.pdl == pdl][:count] for pdl in (0, 1, 2))
    return list(itertools.chain.from_iterable(kinds))


def _best(cases: dict[str, Ranked], pdls: set[int]) -> Choice:
    """The fastest alone of one kind of overlap, or at all."""
    return {
        name: next((c for _, c in found if c.pdl in pdls), found[0][1] if found else None)
        for name, found in cases.items()
    }


def sweep(bench: Bench, tiles: list[int]) -> dict[tuple[str, int], Ranked]:
    """By tile size: row counts of one tile size are measured with full tiles."""
    cases = [(shape, rows) for rows in tiles for shape in bench.shapes]
    first = {case: runnable(*case, candidates(*case)) for case in cases}
    bench.compile([(*case, config) for case, configs in first.items() for config in configs], 0.5)
    ranked = {case: bench.measure(*case, configs) for case, configs in first.items()}
    print(f"first round done, {bench.deadline - time.monotonic():.0f} s left", flush=True)
    second = {
        case: runnable(*case, (other for _, best in leading(found) for other in variants(best)))
        for case, found in ranked.items()
    }
    bench.compile([(*case, config) for case, configs in second.items() for config in configs], 0.3)
    for case, configs in second.items():
        seen = {config for _, config in ranked[case]}
        more = bench.measure(*case, [config for config in configs if config not in seen])
        ranked[case] = sorted([*ranked[case], *more], key=lambda item: item[0])
    print(f"second round done, {bench.deadline - time.monotonic():.0f} s left", flush=True)
    return {(shape.name, rows): found for (shape, rows), found in ranked.items()}


def leading(found: Ranked) -> Ranked:
    """The three fastest, and the fastest that shares tiles between 132 programs."""
    even = [item for item in found if item[1].programs == 132][:1]
    return list(dict.fromkeys([*found[:3], *even]))


def written(shapes: Sequence[Shape], choices: dict[int, Choice]) -> str:
    """`linear_config.TABLE` with these choices; other shapes and fewer rows stay as they are."""
    table = dict(TABLE)
    for shape in shapes:
        case = (shape.n, shape.k, shape.gated)
        chosen = {rows: config for rows, choice in choices.items() if (config := choice[shape.name])}
        kept = {rows: config for rows, config in TABLE.get(case, {}).items() if rows < min(choices)}
        table[case] = kept | chosen
    lines = ["TABLE: dict[Case, dict[int, Config]] = {"]
    for case, configs in table.items():
        merged = sorted(configs.items(), key=lambda item: item[0])
        lines.append(f"    {case!r}: {{")
        for (rows, config), following in itertools.zip_longest(merged, merged[1:]):
            if following is None or following[1] != config:
                lines.append(f"        {rows}: {source(config)},")
        lines.append("    },")
    return "\n".join([*lines, "}\n"])


def source(config: Config) -> str:
    """As it is written in Python, defaults left out."""
    plain = Config(config.n, config.k)
    named = {name: value for name, value in asdict(config).items() if value != getattr(plain, name)}
    return f"Config({', '.join([str(config.n), str(config.k), *(f'{name}={value}' for name, value in named.items())])})"


def main() -> None:
    options = given()
    model = MODELS[options.model]
    rows_given: list[int] = options.rows or list(model.rows)
    bench = Bench(model, options.budget, max(rows_given), options.workers)
    ranked = sweep(bench, list(dict.fromkeys(tile(rows) for rows in rows_given)))
    bench.pool.shutdown()
    report: dict[str, object] = {
        "ranked": {f"{n} {r}": [[t, asdict(c)] for t, c in found] for (n, r), found in ranked.items()},
        "failures": bench.failures,
    }
    options.out.write_text(json.dumps(report))
    print(f"{len(bench.failures)} failures", *itertools.islice(bench.failures.items(), 6), sep="\n")
    bytes_of = {shape.name: 2 * shape.width * shape.k for shape in model.shapes}
    for (name, rows), found in ranked.items():
        for pdl in (0, 1, 2):
            for time_us, config in [item for item in found if item[1].pdl == pdl][:1]:
                rate = bytes_of[name] / time_us / 1e6
                print(f"M{rows:<3}{name:8}{time_us:8.2f} us alone {rate:5.2f} TB/s | {source(config)}", flush=True)
    choices: dict[int, Choice] = {}
    models: dict[int, dict[str, float]] = {}
    for rows in rows_given:
        if choices and time.monotonic() > bench.deadline:
            print(f"no time for R{rows}")
            continue
        choices[rows], models[rows] = decided(bench, rows, ranked)
        print(f"28 layers and head, R{rows}: " + ", ".join(f"{k} {t:.0f} us" for k, t in models[rows].items()))
        print(*(f"    {n:8}{source(c) if c else 'torch'}" for n, c in choices[rows].items()), sep="\n", flush=True)
        options.table.write_text(written(model.shapes, choices))
        options.out.write_text(json.dumps(report | {"models": models}))
    print(options.table.read_text())


def decided(bench: Bench, rows: int, ranked: dict[tuple[str, int], Ranked]) -> tuple[Choice, dict[str, float]]:
    """Times a step of this many rows, and compares its microseconds with those of other choices."""
    cases = {shape.name: ranked[shape.name, tile(rows)] for shape in bench.shapes}
    choice, step = bench.descend(rows, cases)
    times = {"with attention": step}
    present: Choice = {s.name: choose(rows, s.n, s.k, s.gated) for s in bench.shapes}
    for label, one in (("chosen", choice), ("table", present), ("no pdl", _best(cases, {0}))):
        times[label] = bench.model(rows, one, attend=False)
    times["table with attention"] = bench.model(rows, present, attend=True)
    return choice, times


def given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--model", choices=MODELS, default="orpheus")
    parser.add_argument("--budget", type=float, default=135, help="seconds after which no further config is tried")
    parser.add_argument("--rows", type=int, nargs="+", help="default: the most common ones")
    parser.add_argument("--workers", type=int, default=15)
    return parser.parse_args()


if __name__ == "__main__":
    main()
