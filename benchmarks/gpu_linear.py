"""How fast the linears of a decode step read their weights: finds a config per shape and row count, on one GPU.

    python benchmarks/gpu_linear.py --out linear.json [--budget 220] [--rows 1 2 4 8 16 32 64]

Every config is compiled in a pool of processes, checked against float32 on fresh data, then timed as a captured graph
that goes through copies of the weights in turn, so that they never lie in L2. The best configs then serve 28 layers and
the head as one graph, beside `F.linear`. The last lines are a short table; the JSON holds everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.layers.kernels.linear_config import Config, fits

LAYERS = 28
ERROR = 1e-2
EPS = 1e-5


@dataclass(frozen=True)
class Shape:
    name: str
    n: int
    k: int
    gated: bool = False
    norm: bool = False
    residual: bool = False

    @property
    def width(self) -> int:
        return self.n * (2 if self.gated else 1)

    @property
    def bytes(self) -> int:
        return self.width * self.k * 2


SHAPES = (
    Shape("qkv", 5120, 3072, norm=True),
    Shape("o", 3072, 3072, residual=True),
    Shape("gate_up", 8192, 3072, gated=True, norm=True),
    Shape("down", 3072, 8192, residual=True),
    Shape("head", 156940, 3072, norm=True),
)


def tile(rows: int) -> int:
    """Row counts of one tile size share their configs."""
    return next(size for size in (1, 2, 4, 16, 32, 64) if rows <= size)


def candidates(shape: Shape, rows: int) -> Iterator[Config]:
    if rows <= 4:
        yield from _vectors(shape, rows)
    if rows > 1:
        yield from _matrices(shape, rows)


def _vectors(shape: Shape, rows: int) -> Iterator[Config]:
    sizes = ((2, 1024), (4, 512), (4, 1024), (8, 256), (8, 512), (8, 1024), (16, 256))
    for (n, k), warps, stages in itertools.product(sizes, (2, 4, 8), (1, 3)):
        if not 1024 <= rows * n * k // warps <= 4096 or (rows > 1 and (stages > 1 or warps == 2)):
            continue
        for split in (1, 2) if shape.k > 4096 or shape.width <= 5120 else (1,):
            yield Config(n=n, k=k, split=split, warps=warps, stages=stages, vector=True)


def _matrices(shape: Shape, rows: int) -> Iterator[Config]:
    m = max(16, tile(rows))
    ns = {16: (16, 32, 64), 32: (32, 64, 128), 64: (64, 128)}[m]
    for (n, k), swap in itertools.product(itertools.product(ns, (64, 128, 256)), (False, True)):
        if (swap and n < 64) or n * k > 16384 or n * k < 4096:
            continue
        blocks = -(-shape.width // n)
        for split, size in itertools.product((1, 2, 3, 4, 6, 8, 16), (56, 104)):
            programs, stages = blocks * split, min(8, size * 1024 // ((n + m) * k * 2))
            if (split > 1 and programs > 800) or programs < 90 or stages < 2:
                continue
            for before in ((False, True) if m < 64 else (True,)) if shape.norm and m > 16 else (False,):
                for warps in (4, 8) if n * k >= 16384 and split == 1 else (4,):
                    yield Config(n=n, k=k, split=split, warps=warps, stages=stages, swap=swap, before=before)


def variants(best: Config, shape: Shape) -> Iterator[Config]:
    """What the overlap with the previous kernel brings, around a config that is good already."""
    part = shape.k // best.split
    for prefetch, pdl in itertools.product(sorted({0, 256, 512, min(1536, part)}), (1, 2)):
        yield replace(best, prefetch=prefetch, pdl=pdl)
    yield replace(best, pdl=0)
    for stages in {max(2, best.stages - 1), best.stages + 1} if not best.vector else ():
        yield replace(best, stages=stages)


def runnable(shape: Shape, rows: int, configs: Iterable[Config]) -> list[Config]:
    return [config for config in dict.fromkeys(configs) if fits(config, rows, shape.n, shape.k, shape.gated)]


def compile_one(task: tuple[Shape, int, Config]) -> str:
    """Into Triton's cache, in a process of the pool: the main process then only loads it."""
    from walkgraph.layers.kernels.linear import warm

    shape, rows, config = task
    try:
        warm(config, rows, shape.n, shape.k, shape.gated, norm=shape.norm, residual=shape.residual)
    except Exception as error:  # noqa: BLE001 - what can't be compiled is no candidate, whatever the reason
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def apply(shape: Shape, config: Config | None, x: Tensor, weight: Tensor, norm: Tensor, residual: Tensor) -> Tensor:
    """By the kernels, or by torch where there is no config."""
    if config is not None:
        from walkgraph.layers.kernels.linear import stream_linear

        return stream_linear(
            config, x, weight, norm=norm if shape.norm else None, eps=EPS, gated=shape.gated,
            residual=residual if shape.residual else None,
        )  # fmt: skip
    y = F.linear(F.rms_norm(x, (shape.k,), norm, EPS) if shape.norm else x, weight)
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


class Bench:
    def __init__(self, budget: float, workers: int) -> None:
        self.deadline = time.monotonic() + budget
        context = multiprocessing.get_context("spawn")
        self.workers = workers
        self.pool = ProcessPoolExecutor(workers, mp_context=context)
        self.weights = {shape.name: self._copies(shape) for shape in SHAPES}
        self.results: dict[str, dict[str, float]] = {}
        self.failures: dict[str, str] = {}
        self.ready: set[tuple[str, int, Config]] = set()

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
        """In random order, so that no case is left without; ends when `reserve` seconds of the budget are left."""
        distinct = {(shape.name, tile(rows), config): (shape, tile(rows), config) for shape, rows, config in tasks}
        fresh = [(key, task) for key, task in distinct.items() if key not in self.ready]
        random.Random(0).shuffle(fresh)
        begin, done = time.monotonic(), 0
        while done < len(fresh) and time.monotonic() < self.deadline - reserve:
            part = fresh[done : done + 16 * self.workers]
            for (key, _), message in zip(part, self.pool.map(compile_one, [task for _, task in part]), strict=True):
                if message:
                    self.failures[str(key)] = message
                else:
                    self.ready.add(key)
            done += len(part)
        print(f"compiled {done} of {len(fresh)} in {time.monotonic() - begin:.0f} s", flush=True)

    def measure(self, shape: Shape, rows: int, configs: list[Config]) -> list[tuple[float, Config]]:
        """Microseconds a launch, best first; what is wrong or can't run is noted and left out."""
        weights = self.weights[shape.name]
        x, norm, residual = self.data(shape, rows)
        wanted = exact(shape, x, weights[0], norm, residual)
        used = weights if len(weights) > 1 else weights * 3
        timed: list[tuple[float, Config]] = []
        for config in configs:
            name = f"{shape.name} {rows} {config}"
            if time.monotonic() > self.deadline or (shape.name, tile(rows), config) not in self.ready:
                continue
            try:
                for _ in range(2):  # the second launch finds the counters as the first left them
                    result = apply(shape, config, x, weights[0], norm, residual)
                error = ((result.float() - wanted).norm() / wanted.norm()).item()
                if not error < ERROR:
                    self.failures[name] = f"relative error {error}"
                    continue

                def work(config: Config = config) -> None:
                    for weight in used:
                        apply(shape, config, x, weight, norm, residual)

                timed.append((microseconds(work) / len(used), config))
            except (RuntimeError, ValueError) as failure:
                self.failures[name] = str(failure)[:200]
        return sorted(timed, key=lambda item: item[0])

    def plain(self, shape: Shape, rows: int) -> float:
        weights = self.weights[shape.name]
        used = weights if len(weights) > 1 else weights * 3
        x, _, _ = self.data(shape, rows)
        return microseconds(lambda: [F.linear(x, weight) for weight in used]) / len(used)

    def model(self, rows: int, configs: dict[str, Config | None]) -> float:
        """28 layers and the head in one graph; every linear reads what the one before it wrote, or its residual."""
        by_name = {shape.name: shape for shape in SHAPES}
        x, norm, _ = self.data(by_name["qkv"], rows)

        def work() -> None:
            h = x
            for layer in range(LAYERS):

                def run(name: str, value: Tensor, rest: Tensor, layer: int = layer) -> Tensor:
                    return apply(by_name[name], configs[name], value, self.weights[name][layer], norm, rest)

                qkv = run("qkv", h, h)
                h = run("o", qkv.view(-1)[: h.numel()].view(h.shape), h)
                h = run("down", run("gate_up", h, h), h)
            apply(by_name["head"], configs["head"], h, self.weights["head"][0], norm, h)

        return microseconds(work, replays=10)


def sweep(bench: Bench, counts: list[int]) -> dict[tuple[str, int], list[tuple[float, Config]]]:
    cases = [(shape, rows) for rows in counts for shape in SHAPES]
    first = {case: runnable(*case, candidates(*case)) for case in cases}
    bench.compile([(*case, config) for case, configs in first.items() for config in configs], 110)
    ranked = {case: bench.measure(*case, configs) for case, configs in first.items()}
    print(f"first round done, {bench.deadline - time.monotonic():.0f} s left", flush=True)
    second = {
        case: runnable(*case, (other for _, best in found[:2] for other in variants(best, case[0])))
        for case, found in ranked.items()
    }
    bench.compile([(*case, config) for case, configs in second.items() for config in configs], 40)
    for case, configs in second.items():
        ranked[case] = sorted([*ranked[case], *bench.measure(*case, configs)], key=lambda item: item[0])
    return {(shape.name, rows): found for (shape, rows), found in ranked.items()}


def whole(bench: Bench, ranked: dict[int, dict[str, list[tuple[float, Config]]]]) -> dict[int, dict[str, float]]:
    """The best configs of every row count in one graph, and what they owe to the overlap of launches."""
    changes = {"pdl": {}, "no pdl": {"pdl": 0}, "pdl2": {"pdl": 2}, "prefetch0": {"prefetch": 0}}
    some: dict[int, dict[str, dict[str, Config | None]]] = {}
    for rows, cases in ranked.items():
        best = {name: found[0][1] if found else None for name, found in cases.items()}
        some[rows] = {
            label: {name: config and replace(config, **change) for name, config in best.items()}
            for label, change in changes.items()
        }
    by_name = {shape.name: shape for shape in SHAPES}
    bench.compile(
        [
            (by_name[name], rows, config)
            for rows, labels in some.items()
            for configs in labels.values()
            for name, config in configs.items()
            if config
        ],
        0,
    )
    plain: dict[str, Config | None] = dict.fromkeys(by_name)
    return {
        rows: {label: bench.model(rows, configs) for label, configs in {"torch": plain, **labels}.items()}
        for rows, labels in some.items()
    }


def brief(config: Config) -> str:
    flags = [name for name in ("vector", "swap", "before") if getattr(config, name)]
    sizes = f"n{config.n} k{config.k} x{config.split} w{config.warps} s{config.stages}"
    return " ".join([sizes, *flags, f"pre{config.prefetch} pdl{config.pdl}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=220, help="seconds, after which no config is begun")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64, 32, 2, 4, 8])
    parser.add_argument("--workers", type=int, default=15)
    options = parser.parse_args()
    bench = Bench(options.budget, options.workers)
    ranked = sweep(bench, options.rows)
    plain = {(shape.name, rows): bench.plain(shape, rows) for rows in options.rows for shape in SHAPES}
    table: list[str] = []
    for rows in options.rows:
        for shape in SHAPES:
            found = ranked[shape.name, rows]
            if not found:
                continue
            time_us, config = found[0]
            off = min((t for t, c in found if c.pdl == 0), default=float("nan"))
            cublas, speed = plain[shape.name, rows], shape.bytes / time_us / 1e3
            table.append(
                f"R{rows:<3}{shape.name:8}{time_us:8.2f} us {speed:6.0f} GB/s | no pdl {off:7.2f} |"
                f" F.linear {cublas:7.2f} | {brief(config)}"
            )
    report: dict[str, object] = {
        "ranked": {f"{n} {r}": [[t, asdict(c)] for t, c in found] for (n, r), found in ranked.items()},
        "plain": {f"{n} {r}": t for (n, r), t in plain.items()},
        "failures": bench.failures,
    }
    options.out.write_text(json.dumps(report))
    print(f"{len(bench.failures)} failures", *itertools.islice(bench.failures.items(), 4), sep="\n")
    print(*table, sep="\n", flush=True)
    models = whole(bench, {rows: {name: ranked[name, rows] for name in bench.weights} for rows in options.rows})
    options.out.write_text(json.dumps(report | {"models": models}))
    bench.pool.shutdown()
    for rows, times in models.items():
        print(f"28 layers and head, R{rows}: " + ", ".join(f"{label} {t:.0f} us" for label, t in times.items()))


if __name__ == "__main__":
    main()
