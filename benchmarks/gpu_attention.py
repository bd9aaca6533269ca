"""Measures the one-token attention of a layer over a paged cache: 28 layers in one CUDA graph, on one GPU.

    python benchmarks/gpu_attention.py --out attention.json --table cuts.py [--budget 55] [--quick]

Every split is compiled in a pool of processes, checked against float32, then timed at Orpheus' shape for several batch
sizes and contexts. Each layer has its own pool, and small batches rotate through copies of their sequences, so that no
key is already in L2. FlashInfer's decode wrapper, if it can be imported, only attends: it neither rotates nor appends.
The best splits, one per batch size for both of its contexts, then run between a layer's two linears with cold weights.
The last lines are short tables; the JSON has everything, and `--table` writes the best splits as Python.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.paged_rows import StepArguments
from walkgraph.layers.attention.step_attention import plain
from walkgraph.layers.kernels.gpu import present
from walkgraph.layers.kernels.step_attention import Tuning, launch, tuning
from walkgraph.layers.linear.step_linear import linear

LAYERS, HEADS, GROUPS, WIDTH, PAGE, REACH = 28, 24, 8, 128, 16, 160
COLD = 200 << 20
"""Bytes that a graph reads at least: four times the L2."""
CASES = [(1, 330), (1, 2000), (8, 330), (8, 2200), (16, 330), (16, 2200), (32, 330), (32, 2200), (64, 330), (64, 2200)]
SHAPES = [
    Tuning(splits=1, block=block, warps=warps, stages=stages)
    for block, warps, stages in [
        (16, 4, 0), (32, 4, 0), (16, 2, 0), (32, 8, 0), (64, 8, 0), (64, 4, 0),
        (32, 4, 4), (32, 4, 6), (64, 4, 3), (64, 4, 4), (32, 2, 5), (128, 8, 3),
    ]
]  # fmt: skip


class Pool:
    """28 layers of keys and values, and sequences whose pages are scattered over them."""

    def __init__(self, tokens: int) -> None:
        self.pages = -(-tokens // PAGE)
        shape = ((self.pages + 1) * PAGE, GROUPS, WIDTH)
        self.k = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.v = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.frequencies = 1 / 500000.0 ** (torch.arange(0, WIDTH, 2, device="cuda") / WIDTH)
        self.qkv = torch.randn(64, (HEADS + 2 * GROUPS) * WIDTH, device="cuda", dtype=torch.bfloat16)

    def rows(self, lengths: list[int], batch: int) -> list[PagedRows]:
        """Batches over the same tables, each of `batch` rows of their own."""
        needed = [n // PAGE + 1 for n in lengths]
        order = (torch.randperm(self.pages) + 1).int().split([*needed, self.pages - sum(needed)])
        pages = torch.zeros(len(lengths), REACH, dtype=torch.int32)
        for row, held in enumerate(order[: len(lengths)]):
            pages[row, : len(held)] = held
        counts = torch.tensor(lengths, dtype=torch.int32).cuda()
        indices = torch.arange(len(lengths), dtype=torch.int32).cuda().split(batch)
        # Each at the start of an allocation, as the engine's are: kernels are compiled for how pointers are aligned.
        return [PagedRows(rows.clone(), pages.cuda(), counts, counts) for rows in indices]

    def step(self, rows: PagedRows, layer: int) -> StepArguments:
        qkv = self.qkv[: len(rows.rows)]
        return StepArguments(qkv, self.k[layer], self.v[layer], rows, self.frequencies, HEADS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="file for the best splits as Python")
    parser.add_argument("--budget", type=float, default=55, help="seconds after which no further split is tried")
    parser.add_argument("--quick", action="store_true", help="only the default splits")
    given = parser.parse_args()
    begun = time.monotonic()
    torch.manual_seed(0)
    forms = [replace(cut, overlap=overlap) for cut in SHAPES for overlap in (0, 1, 2)]
    with ProcessPoolExecutor(12, mp_context=multiprocessing.get_context("spawn")) as processes:
        broken = dict(zip(forms, processes.map(compiles, forms), strict=True))
    print(f"compiled after {time.monotonic() - begun:.0f} s", flush=True)
    pool = Pool(64 * 2300)
    errors = {name(cut): broken[cut] or check(pool, cut) for cut in forms}
    usable = [cut for cut in SHAPES if isinstance(errors[name(cut)], float)]
    print("error against float32:", json.dumps(errors))
    print("batch context | default us/layer | best us/layer TB/s cut | default without overlap | FlashInfer us/layer")
    results: list[dict[str, Any]] = []
    for at, (batch, context) in enumerate(CASES):
        # What is left of the time is shared out evenly over the cases to come.
        now = time.monotonic()
        until = now + max(0.0, begun + given.budget - now) / (len(CASES) - at)
        results.append(measure(pool, batch, context, [] if given.quick else usable, until))
        show(results[-1])
    cuts = best_cuts(results)
    table = "".join(f"    {batch * GROUPS}: {cut!r},\n" for batch, cut in cuts.items())
    print(table)
    if given.table is not None:
        given.table.write_text(f"CUTS: dict[int, Tuning] = {{\n{table}}}\n")
    chains = chained(pool, cuts)
    told = {"device": torch.cuda.get_device_name(), "errors": errors, "cases": results, "chains": chains}
    given.out.write_text(json.dumps(told, indent=1))
    print(f"all after {time.monotonic() - begun:.0f} s")


def show(r: dict[str, Any]) -> None:
    best = f"{r['best_us']:6.2f} {r['best_tbs']:.2f} {r['best']}"
    rest = f"{r['serial_us']:6.2f} | {r['flashinfer_us']}"
    print(f"{r['batch']:3} {r['context']:5} | {r['default_us']:6.2f} | {best} | {rest}", flush=True)


def best_cuts(results: list[dict[str, Any]]) -> dict[int, Tuning]:
    """By batch size, the cut whose times, over the best times of its contexts, have the least product."""
    found: dict[int, Tuning] = {}
    for batch in sorted({r["batch"] for r in results}):
        mine = [r for r in results if r["batch"] == batch]
        shared = set.intersection(*(set(r["tried"]) for r in mine))
        best = min(shared, key=lambda label: math.prod(r["tried"][label] for r in mine))
        n, block, warps, stages, overlap = (int(part[1:]) for part in best.split())
        found[batch] = Tuning(splits=n, block=block, warps=warps, stages=stages, overlap=overlap)
    return found


def chained(pool: Pool, cuts: dict[int, Tuning]) -> list[dict[str, Any]]:
    """Microseconds a layer of `qkv linear, attention, o linear`, by the cut's overlap, and of the linears alone."""
    q_width, width = HEADS * WIDTH, (HEADS + 2 * GROUPS) * WIDTH
    inward = [torch.randn(width, q_width, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]
    outward = [torch.randn(q_width, q_width, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(LAYERS)]
    norm = torch.ones(q_width, device="cuda", dtype=torch.bfloat16)
    told: list[dict[str, Any]] = []
    print("batch context | linears alone us/layer | with attention, overlap 0, 1, 2")
    for batch, context in [(1, 330), (1, 2000), (16, 330), (64, 330), (64, 2200)]:
        rows = pool.rows([context - 1] * batch, batch)[0]
        x = torch.randn(batch, q_width, device="cuda", dtype=torch.bfloat16)

        def layers(cut: Tuning | None, rows: PagedRows = rows, x: Tensor = x) -> None:
            heads = x
            for layer in range(LAYERS):
                qkv = linear(x, inward[layer], norm=norm)
                if cut is not None:
                    heads = launch(pool.step(rows, layer)._replace(qkv=qkv), cut)
                x = linear(heads, outward[layer], residual=x)

        times = [per_graph(lambda f=layers, c=cut: f(c)) / LAYERS for cut in overlaps(cuts[batch])]
        told.append({"batch": batch, "context": context, "linears_us": times[0], "chain_us": times[1:]})
        print(f"{batch:3} {context:5} | {times[0]:6.2f} | {' '.join(f'{t:6.2f}' for t in times[1:])}", flush=True)
    return told


def overlaps(cut: Tuning) -> list[Tuning | None]:
    return [None, *(replace(cut, overlap=overlap) for overlap in (0, 1, 2))]


def name(cut: Tuning) -> str:
    return f"n{cut.splits} b{cut.block} w{cut.warps} s{cut.stages} o{cut.overlap}"


def compiles(cut: Tuning) -> str | None:
    """Fills Triton's cache, in a process of its own. -> why it can't be compiled."""
    try:
        pool = Pool(256)
        launch(pool.step(pool.rows([40], 1)[0], 0), cut)
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises is a result
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


def check(pool: Pool, cut: Tuning) -> float | str:
    """Largest error of ragged rows against the plain form in float32, with one split and with five, the pad row three
    times in the batch; and of the third replay of a graph that runs a layer after another."""
    lengths = [0, 1, 15, 16, 31, 32, 64, 127, 128, 329, 700, 2200, 3]
    rows = pool.rows(lengths, len(lengths))[0]
    rows = rows._replace(rows=torch.tensor([*range(13), 12, 12], dtype=torch.int32, device="cuda"))
    step = pool.step(rows, 0)
    wanted = plain(step._replace(qkv=step.qkv.float(), slot_k=step.slot_k.float(), slot_v=step.slot_v.float()))[:12]
    worst, last = 0.0, step.slot_k
    for splits in (1, 5):
        out = launch(step, replace(cut, splits=splits))
        worst = max(worst, float((out[:12].float() - wanted).abs().max()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch(pool.step(rows, 1), replace(cut, splits=splits))
            again = launch(step, replace(cut, splits=splits))
        for _ in range(3):
            again.zero_()
            graph.replay()
        if not torch.equal(again[:12], out[:12]):
            return f"a replay differs by {float((again[:12] - out[:12]).abs().max())}"
        graph.reset()
    twin_k, twin_v = last.clone(), step.slot_v.clone()
    plain(step._replace(slot_k=twin_k, slot_v=twin_v))
    slots = [int(rows.pages[r, n // PAGE]) * PAGE + n % PAGE for r, n in enumerate(lengths[:12])]
    worst = max(worst, float((last[slots].float() - twin_k[slots].float()).abs().max()) / 2)
    worst = max(worst, float((step.slot_v[slots] - twin_v[slots]).abs().max()))
    return round(worst, 5) if worst < 0.03 else f"wrong by {worst}"


def measure(pool: Pool, batch: int, context: int, shapes: list[Tuning], until: float) -> dict[str, Any]:
    """The times of cuts, of the default one, and of FlashInfer; microseconds a layer."""
    size = batch * context * 2 * GROUPS * WIDTH * 2
    copies = max(1, min(-(-COLD // (size * LAYERS)), pool.pages // (batch * (context // PAGE + 1))))
    batches = pool.rows([context - 1] * batch * copies, batch)
    chosen = tuning(batch, GROUPS, HEADS // GROUPS, WIDTH, REACH * PAGE, present().shared)
    tried: dict[str, float] = {}

    def timed(cut: Tuning) -> float:
        def layers() -> None:
            for rows, layer in itertools.product(batches, range(LAYERS)):
                launch(pool.step(rows, layer), cut)

        return per_graph(layers) / (copies * LAYERS)

    default, serial = timed(chosen), timed(replace(chosen, overlap=0))
    # The likeliest numbers of splits of every shape first, so that the end of the time costs the least.
    ways = [[replace(s, splits=splits_for(batch, k)) for s in shapes] for k in (1, 2, 3, 4, 8, 0.5)]
    for cut in dict.fromkeys(itertools.chain(*ways)):
        if time.monotonic() < until:
            tried[name(cut)] = timed(cut)
    for cut in sorted(tried, key=tried.__getitem__)[:2]:
        n, block, warps, stages, _ = (int(part[1:]) for part in cut.split())
        eager = Tuning(splits=n, block=block, warps=warps, stages=stages, overlap=2)
        tried[name(eager)] = timed(eager)
    tried[name(chosen)] = default
    best = min(tried, key=tried.__getitem__)
    return {
        "batch": batch, "context": context, "copies": copies, "default": asdict(chosen), "default_us": default,
        "serial_us": serial, "best": best, "best_us": tried[best], "best_tbs": size / tried[best] / 1e6,
        "flashinfer_us": flashinfer(pool, batches, context), "tried": tried,
    }  # fmt: skip


def splits_for(batch: int, programs: float) -> int:
    """Splits for so many programs a processor; the same for every context, as a captured launch has them."""
    return min(32, max(1, round(132 * programs / (batch * GROUPS))))


def per_graph(work: Callable[[], None], rounds: int = 6) -> float:
    """Microseconds of one replay: the median."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    graph.replay()
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize()
    times = sorted(1000 * a.elapsed_time(b) for a, b in itertools.pairwise(events))
    graph.reset()
    return times[len(times) // 2]


def flashinfer(pool: Pool, batches: list[PagedRows], context: int) -> float | str:
    """Microseconds a layer of FlashInfer's decode wrapper, planned once; or why there is none."""
    try:
        from flashinfer import BatchDecodeWithPagedKVCacheWrapper  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        return str(error)
    space = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
    held = context // PAGE + (context % PAGE > 0)
    runs: list[Callable[[int], Tensor]] = []
    for rows in batches:
        batch = len(rows.rows)
        q = pool.qkv[:batch, : HEADS * WIDTH].unflatten(1, (HEADS, WIDTH)).contiguous()
        wrapper = BatchDecodeWithPagedKVCacheWrapper(space, "NHD")
        indices = rows.pages.cpu()[rows.rows.cpu().long(), :held].flatten()
        last = torch.full((batch,), (context - 1) % PAGE + 1, dtype=torch.int32)
        wrapper.plan(
            torch.arange(batch + 1, dtype=torch.int32) * held, indices, last, HEADS, GROUPS, WIDTH, PAGE,
            q_data_type=torch.bfloat16,
        )  # fmt: skip
        caches = [
            (k.view(-1, PAGE, GROUPS, WIDTH), v.view(-1, PAGE, GROUPS, WIDTH))
            for k, v in zip(pool.k, pool.v, strict=True)
        ]
        runs.append(lambda layer, w=wrapper, q=q, c=caches: w.run(q, c[layer]))

    def layers() -> None:
        for run, layer in itertools.product(runs, range(LAYERS)):
            run(layer)

    return round(per_graph(layers) / (len(batches) * LAYERS), 2)


if __name__ == "__main__":
    main()
