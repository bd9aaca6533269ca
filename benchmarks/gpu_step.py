"""Finds the fastest splits of a whole decode step: attention and linears, chosen one by one inside the captured model.

    python benchmarks/gpu_step.py [--batches 1 16 64] [--contexts 330] [--budget 90] [--out FILE]

The fastest kernel alone need not be the fastest between its neighbours, whose ends it overlaps. For each batch the
script starts from the tables of `layers.kernels` and tries other splits of attention and other overlaps of each linear,
one by one; it keeps those that make the whole model's step faster. The last lines have the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.layers.kernels import linear_config, step_attention
from walkgraph.models.orpheus.presets import ORPHEUS

PAGE = 16
GAIN = 0.998
"""Share of the previous time; a smaller gain is noise."""


class Step:
    """The model's step for a batch at a context, captured anew for whatever the tables say."""

    def __init__(self, model: LanguageModel, batch: int, context: int) -> None:
        config, device = model.config, torch.device("cuda")
        pages = -(-(context + 1) // PAGE)
        slots = (batch * pages + 2) * PAGE
        shape = (slots, config.kv_heads, config.head_dim)
        caches = [torch.randn(2, *shape, dtype=torch.bfloat16, device=device) for _ in range(config.layers)]
        index = torch.arange(batch, dtype=torch.int32, device=device)
        table = (torch.randperm(batch * pages, device=device) + 1).int().view(batch, pages)
        full = torch.full((batch,), context, dtype=torch.int32, device=device)
        rows = PagedRows(index, table, full, full)
        self.slot = PagedSlot([c[0] for c in caches], [c[1] for c in caches], rows)
        self.token = torch.randint(0, config.vocab, (batch,), device=device)
        self.model = model

    def time(self) -> float:
        """Microseconds of a replay, the median of seven groups."""
        work = lambda: self.model.step(self.token, self.slot)  # noqa: E731 (the one thing that is timed)
        graph = captured(work)
        found: list[float] = []
        for _ in range(7):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(12):
                graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) / 12 * 1000)
        return statistics.median(found)


def captured(work: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            work()
            work()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
    return graph


Change = tuple[str, Callable[[], None], Callable[[], None]]
"""Name, how to apply it, and how to undo it."""


def attention_changes(batch: int, groups: int) -> Iterator[Change]:
    table = step_attention.CUTS
    most = min((n for n in table if n >= batch * groups), default=max(table))
    for splits in {1: (8, 16, 32), 4: (4, 8), 8: (4, 8)}.get(batch, (1, 2, 3)):
        for block, stages in ((32, 4), (64, 3), (64, 4), (128, 3), (32, 0), (64, 0)):
            for overlap in (0, 1, 2):
                warps = 4 if block < 128 else 8
                cut = {"splits": splits, "block": block, "warps": warps, "stages": stages}
                tuned = step_attention.Tuning(**cut, overlap=overlap)
                yield _swap(table, most, tuned, f"attention {tuned}")


def linear_changes(batch: int) -> Iterator[Change]:
    for case, table in linear_config.TABLE.items():
        most = min(n for n in table if n >= batch)
        for pdl in (0, 1, 2):
            for prefetch in (0, 256, 512, 1024):
                if pdl or not prefetch:
                    now = replace(table[most], pdl=pdl, prefetch=prefetch)
                    yield _swap(table, most, now, f"linear {case} {most}: {now}")


def _swap(table: dict[int, Any], key: int, new: Any, name: str) -> Change:
    old: list[Any] = []

    def make() -> None:
        old.append(table[key])
        table[key] = new

    def undo() -> None:
        table[key] = old.pop()

    return name, make, undo


def descend(step: Step, batch: int, groups: int, until: float) -> dict[str, Any]:
    best = first = step.time()
    kept: list[tuple[str, float]] = []
    tried: dict[str, float] = {}
    for changes in (attention_changes(batch, groups), linear_changes(batch)):
        for name, make, undo in changes:
            if time.monotonic() > until:
                return {"first": first, "best": best, "kept": kept, "tried": tried, "cut short": True}
            make()
            try:
                found = step.time()
            except (RuntimeError, ValueError, KeyError) as error:  # a cut that doesn't fit this shape
                tried[name] = float("inf")
                print(f"{name}: {str(error).splitlines()[0][:100]}")
                undo()
                continue
            tried[name] = found
            if found < best * GAIN:
                best = found
                kept.append((name, found))
            else:
                undo()
    return {"first": first, "best": best, "kept": kept, "tried": tried}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[330])
    parser.add_argument("--budget", type=float, default=90.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    config = ORPHEUS["orpheus-3b"].llm
    model = drawn(lambda: LanguageModel(config), 0, device=torch.device("cuda"), dtype=torch.bfloat16).pack()
    results: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    cases = [(batch, context) for context in given.contexts for batch in given.batches]
    began = time.monotonic()
    for number, (batch, context) in enumerate(cases):
        until = began + given.budget * (number + 1) / len(cases)
        results[f"{batch}:{context}"] = descend(Step(model, batch, context), batch, config.kv_heads, until)
        torch.cuda.empty_cache()
    if given.out:
        given.out.write_text(json.dumps(results, indent=1))
    for name, found in results.items():
        if isinstance(found, dict):
            print(f"\n{name}: {found['first']:.0f} us -> {found['best']:.0f} us, {len(found['tried'])} tried")
            for change, took in found["kept"]:
                print(f"  {took:.0f}  {change}")


if __name__ == "__main__":
    main()
