"""How long a layer's one-token attention takes over a paged cache: 28 layers in one captured graph, on one GPU.

    python benchmarks/gpu_attention.py --out attention.json [--budget 140] [--quick]

Every cut is compiled in a pool of processes, checked against float32, then timed at Orpheus' shape for several batch
sizes and contexts. Layers have pools of their own, and small batches go through copies of their sequences in turn, so
that no key lies in L2 before its turn. FlashInfer's decode wrapper, where it can be imported, only attends: it neither
rotates nor appends. The last lines are a short table; the JSON holds everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
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

from walkgraph.layers.kernels.step_attention import Tuning, launch, tuning
from walkgraph.layers.step_attention import Step, plain
from walkgraph.networks.base import PagedRows

LAYERS, HEADS, GROUPS, WIDTH, PAGE, REACH = 28, 24, 8, 128, 16, 160
COLD = 200 << 20
"""Bytes that a graph reads at least: four times the L2."""
CASES = [(1, 330), (1, 2000), (8, 330), (8, 2200), (16, 330), (16, 2200), (32, 330), (32, 2200), (64, 330), (64, 2200)]
SHAPES = [
    Tuning(splits=1, block=block, warps=warps, stages=stages, early=early, overlap=True)
    for block, warps, stages, early in [
        (32, 4, 3, True), (32, 4, 5, False), (32, 4, 7, False), (32, 2, 5, True), (64, 4, 3, True), (64, 4, 5, False),
        (64, 4, 7, False), (64, 8, 5, False), (64, 8, 3, True), (128, 8, 3, False), (128, 8, 5, False),
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
        return [PagedRows(rows, pages.cuda(), counts, counts) for rows in indices]

    def step(self, rows: PagedRows, layer: int) -> Step:
        qkv = self.qkv[: len(rows.rows)]
        return Step(qkv, self.k[layer], self.v[layer], rows, self.frequencies, HEADS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=140, help="seconds after which no further cut is tried")
    parser.add_argument("--quick", action="store_true", help="only the cuts that are chosen by default")
    given = parser.parse_args()
    until = time.monotonic() + given.budget
    torch.manual_seed(0)
    with ProcessPoolExecutor(8, mp_context=multiprocessing.get_context("spawn")) as processes:
        broken = dict(zip(SHAPES, processes.map(compiles, SHAPES), strict=True))
    pool = Pool(64 * 2300)
    errors = {name(cut): broken[cut] or check(pool, cut) for cut in SHAPES}
    usable = [cut for cut in SHAPES if errors[name(cut)] is not None and not isinstance(errors[name(cut)], str)]
    results = [measure(pool, batch, context, [] if given.quick else usable, until) for batch, context in CASES]
    given.out.write_text(
        json.dumps({"device": torch.cuda.get_device_name(), "errors": errors, "cases": results}, indent=1)
    )
    print("error against float32:", json.dumps(errors))
    print("batch context | default us/layer | best us/layer TB/s cut | without overlap | FlashInfer us/layer")
    for r in results:
        best = f"{r['best_us']:6.2f} {r['best_tbs']:.2f} {r['best']}"
        rest = f"{r['serial_us']:6.2f} | {r['flashinfer_us']}"
        print(f"{r['batch']:3} {r['context']:5} | {r['default_us']:6.2f} | {best} | {rest}")


def name(cut: Tuning) -> str:
    return f"n{cut.splits} b{cut.block} w{cut.warps} s{cut.stages}{' early' if cut.early else ''}"


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
    """Largest error of ragged rows against the plain form in float32, with one split and with five."""
    worst = 0.0
    lengths = [0, 1, 15, 16, 31, 32, 64, 127, 128, 329, 700, 2200]
    rows = pool.rows(lengths, len(lengths))[0]
    step = pool.step(rows, 0)
    k, v = step.slot_k.float(), step.slot_v.float()
    wanted = plain(step._replace(qkv=step.qkv.float(), slot_k=k, slot_v=v))
    for splits in (1, 5, 5):
        out = launch(step, replace(cut, splits=splits))
        worst = max(worst, float((out.float() - wanted).abs().max()))
    return round(worst, 5) if worst < 0.03 else f"wrong by {worst}"


def measure(pool: Pool, batch: int, context: int, shapes: list[Tuning], until: float) -> dict[str, Any]:
    size = batch * context * 2 * GROUPS * WIDTH * 2
    copies = max(1, min(-(-COLD // (size * LAYERS)), pool.pages // (batch * (context // PAGE + 1))))
    batches = pool.rows([context - 1] * batch * copies, batch)
    chosen = tuning(batch, GROUPS, WIDTH, REACH * PAGE)
    tried: dict[str, float] = {}

    def timed(cut: Tuning) -> float:
        def layers() -> None:
            for rows, layer in itertools.product(batches, range(LAYERS)):
                launch(pool.step(rows, layer), cut)

        return per_graph(layers) / (copies * LAYERS)

    default, serial = timed(chosen), timed(replace(chosen, overlap=False))
    cuts = [replace(s, splits=n) for s in shapes for n in splits_for(batch, context, s.block)]
    for cut in cuts:
        if time.monotonic() < until:
            tried[name(cut)] = timed(cut)
    tried[name(chosen)] = default
    best = min(tried, key=tried.__getitem__)
    return {
        "batch": batch, "context": context, "copies": copies, "default": asdict(chosen), "default_us": default,
        "serial_us": serial, "best": best, "best_us": tried[best], "best_tbs": size / tried[best] / 1e6,
        "flashinfer_us": flashinfer(pool, batches, context), "tried": tried,
    }  # fmt: skip


def splits_for(batch: int, context: int, block: int) -> list[int]:
    """Around one and two programs a processor; no more than there are blocks."""
    most = -(-context // block)
    return sorted({min(most, 48, max(1, round(132 * k / (batch * GROUPS)))) for k in (0.7, 1, 1.5, 2, 3, 5, 8)})


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
