"""Measures a window of SNAC on one GPU: whole or cut, eager or captured, in float32 or TF32.

    python benchmarks/gpu_snac.py --out snac.json [--batches 1 2 4 8 16 32] [--seconds 0.15]

Windows have four frames; a cut one keeps the second, as in streaming. Errors of TF32 and of capturing are relative to
float32, eager and whole. The last lines are a short table; the JSON has everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.models.snac.model import Snac, counter_noise, precision, random_snac

FRAME = 2048
INSIDE = (1, 2)
WHOLE = (0, 4)


def timed(work: Callable[[], object], seconds: float) -> float:
    """Median milliseconds of one call, launched one after the other."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 4)
    return statistics.median(times)


def captured(work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """(what replays it, the tensor that it writes)"""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()
    return graph.replay, made


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made - wanted).norm() / wanted.norm())


def flops(model: Snac, keep: tuple[int, int]) -> int:
    with FlopCounterMode(display=False) as counter:
        model.decode(torch.zeros(1, 28, dtype=torch.int64, device="cuda"), keep)
    return counter.get_total_flops()


def measure(model: Snac, batch: int, seconds: float) -> list[dict[str, Any]]:
    generator = torch.Generator("cuda").manual_seed(batch)
    codes = torch.randint(0, 4096, (batch, 28), device="cuda", generator=generator)
    seed = torch.arange(batch, device="cuda")
    rows: list[dict[str, Any]] = []
    with precision(tf32=False):
        wanted = model.decode(codes, noise=counter_noise(model.config, seed, seed))
    for tf32, keep in itertools.product((False, True), (WHOLE, INSIDE)):

        def work(tf32: bool = tf32, keep: tuple[int, int] = keep) -> Tensor:
            with precision(tf32=tf32):
                return model.decode(codes, keep, counter_noise(model.config, seed, seed))

        expected = wanted[:, keep[0] * FRAME : keep[1] * FRAME]
        row = {"batch": batch, "tf32": tf32, "cut": keep == INSIDE}
        rows.append(row | {"captured": False, "ms": timed(work, seconds), "error": off(work(), expected)})
        replay, made = captured(work)
        ms = timed(replay, seconds)
        rows.append(row | {"captured": True, "ms": ms, "error": off(made, expected)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    kinds = list(itertools.product((False, True), (False, True), (False, True)))
    names = [f"{'tf32' if t else 'fp32'} {'cut' if c else 'whole'} {'graph' if g else 'eager'}" for t, c, g in kinds]
    lines = ["ms       " + " ".join(f"{name:>16}" for name in names)]
    for batch in sorted({row["batch"] for row in rows}):
        found = {(row["tf32"], row["cut"], row["captured"]): row["ms"] for row in rows if row["batch"] == batch}
        lines.append(f"batch {batch:<3}" + " ".join(f"{found[kind]:16.3f}" for kind in kinds))
    worst = {kind: max(row["error"] for row in rows if row["tf32"] == kind) for kind in (False, True)}
    lines.append(f"largest error, relative: float32 {worst[False]:.1e}, TF32 {worst[True]:.1e}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--seconds", type=float, default=0.15, help="seconds per timing")
    options = parser.parse_args()
    with torch.inference_mode():
        model = random_snac("snac-24khz", 0, device=torch.device("cuda"))
        work = {"whole": flops(model, WHOLE), "cut": flops(model, INSIDE)}
        rows = [row for batch in options.batches for row in measure(model, batch, options.seconds)]
    result = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "flops": work, "rows": rows}
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    shares = f"{work['whole'] / 1e9:.2f} GFLOP whole, {work['cut'] / 1e9:.2f} cut ({work['cut'] / work['whole']:.0%})"
    sys.stdout.write(f"a window: {shares}\n{table(rows)}\n")


if __name__ == "__main__":
    main()
