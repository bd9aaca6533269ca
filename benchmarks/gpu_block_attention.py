"""Measures one layer's attention of whole blocks behind their contexts: dense contexts and other kernels, on one GPU.

    python benchmarks/gpu_block_attention.py --out blocks.json [--quick]

Shapes are BAGEL's: 28 query heads, 4 key heads of 128 numbers, bfloat16; blocks of 4098 (1024x1024), 1026 (512x512) and
4902 (an encoded picture) tokens. `room` is the engine's kernel: FlashInfer's kernel for Hopper over dense keys, planned
for lengths that can change under a captured graph. The others are planned for these lengths alone: FlashInfer's older
kernel, its newer one over pages of 16, and torch's, with keys in the layout that it prefers. All times are of replayed
graphs. The last table has the cost of a change of rows: the host's time in `place`, and the time until its copies of 28
layers are complete.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common

from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.engine.kv.dense_context import GAP, ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool

HEADS, GROUPS, WIDTH, LAYERS = 28, 4, 128, 28
CASES = [
    *((4098, [context] * batch) for context in (0, 32, 9000, 13000) for batch in (1, 2, 3)),
    (4098, [13000, 9000, 32]),
    (4902, [0]),
    (4902, [100] * 4),
    *((1026, [context] * batch) for context in (32, 4000) for batch in (2, 3, 4, 6, 8)),
    (258, [32] * 8),
]
QUICK = [(4098, [32]), (4098, [32, 32]), (4098, [13000] * 3), (1026, [32] * 4)]
Run = Callable[[], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="run only a few cases")
    given = parser.parse_args()
    torch.manual_seed(0)
    rows = [measured(tokens, contexts) for tokens, contexts in (QUICK if given.quick else CASES)]
    common.show("ms of one layer, and TFLOP/s", rows)
    places = [placed(contexts) for contexts in ([32], [13000], [13000] * 3)]
    common.show("a change of rows, ms", places)
    common.write(given.out, "cuda", {"cases": rows, "places": places})


class Case:
    """The same numbers for every kernel."""

    def __init__(self, tokens: int, contexts: list[int]) -> None:
        self.tokens, self.contexts, self.batch = tokens, contexts, len(contexts)
        self.lengths = [context + tokens for context in contexts]
        self.q = torch.randn(self.batch * tokens, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
        sizes = (sum(self.lengths), GROUPS, WIDTH)
        self.k, self.v = (torch.randn(sizes, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.flops = 4 * HEADS * WIDTH * tokens * sum(self.lengths)

    def runs(self) -> dict[str, Callable[[], Run]]:
        return {
            "room": self.room,
            "paged fa3": self.paged,
            "ragged fa2": self.older,
            "cudnn": lambda: self.torches(SDPBackend.CUDNN_ATTENTION),
            "torch flash": lambda: self.torches(SDPBackend.FLASH_ATTENTION),
        }

    def room(self) -> Run:
        shape = CacheShape(layers=1, kv_heads=GROUPS, head_dim=WIDTH, dtype=torch.bfloat16)
        pool = Pool(shape, sum(pages_for(n) for n in self.contexts) + 1, torch.device("cuda"))
        room = DenseContext(pool, self.batch, self.tokens, capacity_for(self.contexts, self.batch, self.tokens))
        held, taken = [], 1
        for i, length in enumerate(self.contexts):
            held.append(ContextSequence(range(taken, taken + pages_for(length)), length, length, i))
            taken += pages_for(length)
        room.place(held)
        start = 0
        for k, v in zip(self.k.split(self.lengths), self.v.split(self.lengths), strict=True):
            room.k[0][start : start + len(k)], room.v[0][start : start + len(v)] = k, v
            start += len(k) + GAP
        if not room.captures:
            raise RuntimeError("needs FlashInfer and a GPU of compute capability 9")
        return lambda: room(0, self.q)

    def paged(self) -> Run:
        import flashinfer  # pyright: ignore[reportMissingImports]

        held = [pages_for(length) for length in self.lengths]
        pages = torch.randperm(sum(held), dtype=torch.int32)
        k, v = (torch.zeros(sum(held) * PAGE, GROUPS, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        at = (pages.long()[:, None] * PAGE + torch.arange(PAGE)).cuda()
        firsts = torch.tensor([0, *held]).cumsum(0)
        pieces = zip(
            self.lengths, firsts.tolist(), held, self.k.split(self.lengths), self.v.split(self.lengths), strict=False
        )
        for length, first, count, mine_k, mine_v in pieces:
            slots = at[first : first + count].flatten()[:length]
            k[slots], v[slots] = mine_k, mine_v
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space(), "NHD", backend="fa3")
        last = torch.tensor([(length - 1) % PAGE + 1 for length in self.lengths], dtype=torch.int32)
        wrapper.plan(
            self.starts([self.tokens] * self.batch), firsts.int(), pages, last, HEADS, GROUPS, WIDTH, PAGE,
            q_data_type=torch.bfloat16,
        )  # fmt: skip
        caches = k.unflatten(0, (-1, PAGE)), v.unflatten(0, (-1, PAGE))
        return lambda: wrapper.run(self.q, caches)

    def older(self) -> Run:
        import flashinfer  # pyright: ignore[reportMissingImports]

        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(space(), "NHD", backend="fa2")
        starts = self.starts([self.tokens] * self.batch), self.starts(self.lengths)
        wrapper.plan(*starts, HEADS, GROUPS, WIDTH, q_data_type=torch.bfloat16)
        return lambda: wrapper.run(self.q, self.k, self.v)

    def torches(self, backend: SDPBackend) -> Run:
        """One call where all lengths are equal, otherwise one for each row."""
        equal = len(set(self.lengths)) == 1
        counts = [self.tokens] * self.batch, self.lengths
        q, k, v = (
            [tensor.unflatten(0, (self.batch, -1)).transpose(1, 2)]
            if equal
            else [part.transpose(0, 1)[None] for part in tensor.split(counts[at])]
            for tensor, at in ((self.q, 0), (self.k, 1), (self.v, 1))
        )

        def run() -> Tensor:
            with sdpa_kernel(backend):
                parts = [F.scaled_dot_product_attention(*part, enable_gqa=True) for part in zip(q, k, v, strict=True)]
            return parts[0].transpose(1, 2).flatten(0, 1) if equal else torch.cat([p[0].transpose(0, 1) for p in parts])

        return run

    def starts(self, counts: list[int]) -> Tensor:
        return torch.tensor([0, *counts], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def measured(tokens: int, contexts: list[int]) -> dict[str, Any]:
    case = Case(tokens, contexts)
    row: dict[str, Any] = {"tokens": tokens, "contexts": " ".join(map(str, contexts))}
    reference: Tensor | None = None
    for name, made in case.runs().items():
        try:
            run = made()
            out = run()
            reference = out if reference is None else reference
            wrong = float((out.float() - reference.float()).abs().max())
            ms = per_graph(run)
            row |= {name: ms, f"{name} TF": case.flops / ms / 1e9}
            if wrong > 0.01:
                row[f"{name} differs"] = wrong
        except (RuntimeError, ValueError, ImportError) as raised:
            row[name] = str(raised).splitlines()[0][:40]
    torch.cuda.empty_cache()
    return row


def per_graph(run: Run, calls: int = 4, rounds: int = 5) -> float:
    """Milliseconds of one call: the median over replays of several."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    graph.replay()
    times: list[float] = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    graph.reset()
    return sorted(times)[rounds // 2]


def placed(contexts: list[int]) -> dict[str, Any]:
    """Times placing the contexts of a batch, for all layers of a 7B model."""
    shape = CacheShape(layers=LAYERS, kv_heads=GROUPS, head_dim=WIDTH, dtype=torch.bfloat16)
    count = pages_for(max(contexts))
    pool = Pool(shape, count, torch.device("cuda"))
    room = DenseContext(pool, len(contexts), 4098, capacity_for(contexts, len(contexts), 4098))
    q = torch.randn(room.batch * 4098, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16)
    room(0, q)
    host: list[float] = []
    device: list[float] = []
    for turn in range(5):
        held = [
            ContextSequence(range(1, count + 1), length - turn % 2, length, (turn, i))
            for i, length in enumerate(contexts)
        ]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        room.place(held)
        host.append(1e3 * (time.perf_counter() - begun))
        torch.cuda.synchronize()
        device.append(1e3 * (time.perf_counter() - begun))
    return {"contexts": " ".join(map(str, contexts)), "host": sorted(host)[2], "arrived": sorted(device)[2]}


def space() -> Tensor:
    return torch.zeros(512 << 20, dtype=torch.uint8, device="cuda")


if __name__ == "__main__":
    main()
