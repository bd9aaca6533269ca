"""Measures a layer's mixture of experts by itself: a decode step by batch, and many rows by grouped products.

    python benchmarks/gpu_experts.py [--model MODEL] [--batches 1 8 16 32 64] [--rows 512 4096] [--fp8] [--sweep]
        [--budget 120] [--out FILE] [--check]

A step is one CUDA graph that runs as many layers with weights of their own as don't fit into
the GPU's cache; `us` is the time of one layer, with router, norm and residual. `distinct` is the number of experts that
the step's rows have chosen, and `TB/s` the speed at which their weights and the router's are read. `off` is the
distance from float32 (relative L2). `--sweep` tries other tiles and prints the fastest as entries of
`layers.kernels.experts_config.TABLE`. `--check` runs tiny sizes on the CPU.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from _common import READ, Budget, Row, show, write
from _runtime import device_name
from torch import Tensor
from triton.runtime.errors import TritonError

from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.layers.kernels import experts as kernels
from walkgraph.layers.kernels.experts_config import TABLE, Blocks, Sizes
from walkgraph.layers.linear.fp8_format import FP8
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.moe.routing import route
from walkgraph.layers.moe.sparse_mlp import SparseMLP, masked_experts
from walkgraph.layers.norm.rms_norm import RMSNorm

MODELS = {
    "qwen3-30b-a3b": (2048, ExpertSizes(experts=128, chosen=8, hidden=768, renormed=True)),
    "qwen3-omni-talker": (1024, ExpertSizes(experts=128, chosen=6, hidden=384, renormed=True)),
}
TINY = (48, ExpertSizes(experts=8, chosen=2, hidden=32, renormed=True))
LAYERS, ROUNDS = 4, 20
"""Four layers of experts are 4.8 and 1.2 GB."""
WORKERS = max(1, (os.cpu_count() or 1) - 2)


@dataclass
class Stack:
    """Layers of experts, and the norm before each."""

    layers: list[SparseMLP]
    norm: RMSNorm
    device: torch.device

    def rows(self, count: int) -> Tensor:
        dice = torch.Generator().manual_seed(count)
        return torch.randn(count, self.norm.weight.shape[0], generator=dice).to(self.device, self.norm.weight.dtype)

    def step(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer.step(x, self.norm, x)
        return x

    def many(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x


def main() -> None:
    given = options()
    device, budget = device_name(), Budget(given.budget)
    width, sizes = TINY if given.check else MODELS[given.model]
    stack = made(width, sizes, torch.device(device), fp8=given.fp8, layers=1 if given.check else LAYERS)
    batches, many = ([1, 3], [70]) if given.check else (given.batches, given.rows)
    with torch.inference_mode():
        steps = [step_row(stack, batch) for batch in batches if budget.allows(f"batch {batch}")]
        show(f"a layer's step on {device}", steps)
        rows = [many_row(stack, count) for count in many if budget.allows(f"{count} rows")]
        show("many rows of a layer", rows)
        best = sweep(stack, batches, budget) if given.sweep and not given.check else {}
    for batch, found in best.items():
        print(f"batch {batch}: {found}")
    write(None if given.check else given.out, device, {"steps": steps, "many": rows, "sweep": best})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="qwen3-30b-a3b")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16, 32, 64])
    parser.add_argument("--rows", type=int, nargs="*", default=[512, 4096])
    parser.add_argument("--fp8", action="store_true", help="experts in eight bits")
    parser.add_argument("--sweep", action="store_true", help="also try other tiles")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds; later cases are skipped")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="run tiny sizes and write nothing")
    return parser.parse_args()


def made(width: int, sizes: ExpertSizes, device: torch.device, *, fp8: bool, layers: int) -> Stack:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    found: list[SparseMLP] = []
    for index in range(layers):
        layer = drawn(lambda: SparseMLP(width, sizes), index, device=device, dtype=dtype)
        layer.pack()
        if fp8:
            layer.quantise()
        found.append(layer)
    return Stack(found, drawn(lambda: RMSNorm(width, 1e-6), 9, device=device, dtype=dtype), device)


def step_row(stack: Stack, batch: int) -> Row:
    x = stack.rows(batch)
    layer, sizes = stack.layers[0], stack.layers[0].sizes
    assert layer.packed is not None
    normed = stack.norm(x).float()
    routing = route(normed, layer.gate.weight.float(), sizes.chosen, renormed=sizes.renormed)
    plain = layer.packed.plain(torch.float32)
    wanted = x + masked_experts(normed, routing, PackedExperts(plain.gate_up.float(), plain.down.float()))
    off = float((layer.step(x, stack.norm, x).float() - wanted).norm() / wanted.norm())
    distinct = len(routing.experts.unique())
    expert = 3 * layer.gate.in_features * sizes.hidden * layer.packed.down.element_size()
    nbytes = distinct * expert + layer.gate.weight.nbytes
    took = timed(lambda: stack.step(x), stack.device) / len(stack.layers)
    row: dict[str, Any] = {"batch": batch, "distinct": distinct, "us": 1e6 * took, "floor us": 1e6 * nbytes / READ}
    return row | {"TB/s": nbytes / took / 1e12, "off": off}


def many_row(stack: Stack, count: int) -> Row:
    x, layer = stack.rows(count), stack.layers[0]
    took = timed(lambda: stack.many(x), stack.device) / len(stack.layers)
    flops = 2 * count * 3 * layer.gate.in_features * layer.sizes.hidden * layer.sizes.chosen
    return {"rows": count, "us": 1e6 * took, "TFLOP/s": flops / took / 1e12}


def timed(work: Callable[[], Tensor], device: torch.device) -> float:
    """Seconds of one call: on a GPU of a replayed graph, the median of groups of replays."""
    if device.type != "cuda":
        work()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
        work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    found: list[float] = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(ROUNDS):
            graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / ROUNDS / 1e3)
    return statistics.median(found)


def sweep(stack: Stack, batches: Sequence[int], budget: Budget) -> dict[int, str]:
    """The fastest tiles for each batch: of gate and up first, then of down. Compiled in a pool of processes."""
    layer = stack.layers[0]
    assert layer.packed is not None
    eight = layer.packed.dtype == FP8
    one = [Sizes(batch, layer.gate.in_features, *sizes_of(layer), eight) for batch in batches]
    tasks = [(sizes, blocks, layer.packed.dtype) for sizes in one for blocks in candidates(sizes)]
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        failed = [message for message in pool.map(compile_one, tasks) if message]
    print(f"compiled {len(tasks)}, failed {len(failed)}", *failed[:3], sep="\n", flush=True)
    return {sizes.rows: fastest(stack, sizes) for sizes in one if budget.allows(f"batch {sizes.rows}: tiles")}


def sizes_of(layer: SparseMLP) -> tuple[int, int, int]:
    return layer.sizes.hidden, layer.sizes.experts, layer.sizes.chosen


def candidates(sizes: Sizes) -> Iterator[Blocks]:
    """All but the depths, which decide the order of sums and must be equal for all batches."""
    now = sizes.blocks
    for stages, warps, sharing in product((3, 4, 6), (4, 8), (0, 1, 2)):
        for rows in (n for n in (16, 32, 64) if not sizes.hidden % n):
            yield now._replace(inner=rows, inner_stages=stages, inner_warps=warps, inner_sharing=sharing)
        for rows in (n for n in (32, 64, 128) if not sizes.width % n):
            yield now._replace(outer=rows, outer_stages=stages, outer_warps=warps, outer_sharing=sharing)


def compile_one(task: tuple[Sizes, Blocks, torch.dtype]) -> str:
    """Compile into Triton's cache, from which the main process then loads."""
    try:
        kernels.warm(*task)
    except Exception as error:  # noqa: BLE001 - what can't be compiled is no candidate, whatever the reason
        return f"{task[1]}: {type(error).__name__}: {error}"[:200]
    return ""


def fastest(stack: Stack, sizes: Sizes) -> str:
    x, first = stack.rows(sizes.rows), sizes.blocks
    table = TABLE.setdefault((sizes.width, sizes.hidden, sizes.eight), {})
    before = dict(table)

    def time_of(blocks: Blocks) -> float:
        table[sizes.rows] = blocks
        try:
            return timed(lambda: stack.step(x), stack.device) / len(stack.layers)
        except (RuntimeError, ValueError, TritonError):  # tiles that don't fit
            return float("inf")

    best, least = first, time_of(first)
    began = least
    for prefix in ("inner", "outer"):
        fields = (prefix, f"{prefix}_stages", f"{prefix}_warps", f"{prefix}_sharing")
        for one in candidates(sizes):
            tried = best._replace(**{name: getattr(one, name) for name in fields})
            if tried != best and (took := time_of(tried)) < 0.998 * least:
                best, least = tried, took
    table.clear()
    table.update(before)
    return f"{1e6 * began:.1f} -> {1e6 * least:.1f} us, {sizes.rows}: {best}"


if __name__ == "__main__":
    main()
