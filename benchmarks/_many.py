"""The attention of very many rollouts, as it can be cut: beside float32, alone, and in a stack of layers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from typing import Any

import _common as common
import torch
from _world import HEADS, PAGE, ROLLOUTS, TOKENS, WIDTH, Room, attempt, normal, per_call, predictor, weights, wrong

from walkgraph.layers.kernels.paged_blocks import CUTS, Cut, attend, attend_turning, place
from walkgraph.layers.paged_blocks import plain_attention

CONTEXTS = (0, 258)


def cuts() -> list[Cut]:
    wide, narrow = Cut(m=128, warps=8, joined=True), Cut(m=64, joined=True)
    return [
        Cut(m=64),
        *(replace(wide, few=few, registers=128, stages=stages) for few in (8, 16) for stages in (2, 3, 4)),
        *(replace(wide, few=few, registers=128, stages=stages, block=32) for few in (8, 16) for stages in (3, 4)),
        *(replace(wide, few=few) for few in (8, 16)),
        replace(wide, few=8, block=128, stages=2),
        *(replace(narrow, few=few, registers=128, stages=stages) for few in (8, 16) for stages in (2, 3)),
        *(replace(narrow, few=few) for few in (8, 16)),
        replace(narrow, few=8, block=32, registers=128, stages=4),
        replace(narrow, few=8, block=32, registers=96, stages=4),
        *(Cut(m=256, warps=8, joined=True, few=few, stages=stages) for few in (8, 16) for stages in (2, 3)),
        *(Cut(m=256, warps=8, joined=True, few=8, block=32, stages=stages) for stages in (3, 4)),
        *(Cut(m=128, joined=True, few=8, stages=stages) for stages in (2, 3)),
        Cut(m=128, joined=True, few=8, stages=3, block=32),
        Cut(m=128, joined=True, few=8, stages=3, block=32, registers=168),
        Cut(m=256, warps=16, joined=True, few=16, registers=128),
        Cut(m=256, warps=16, joined=True, few=8, registers=128, block=32),
    ]


def told(cut: Cut) -> str:
    """What of a cut isn't as ever."""
    ever = asdict(Cut(m=0))
    return " ".join(f"{name}{value}" for name, value in asdict(cut).items() if value != ever[name])


def many(budget: common.Budget, workers: int) -> list[common.Row]:
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    try:
        rows, best = sweep(pool, cuts())
        common.show("attention of 400 rollouts", rows)
        turning, best_turning = sweep(pool, [replace(cut, turns=True) for cut in best if cut.joined][:8])
        common.show("attention of 400 rollouts that turns its queries", turning)
    finally:
        pool.shutdown(cancel_futures=True)
    rows += turning + placing()
    made = [weights(1024, 4096) for _ in range(24)]
    for cut in (Cut(m=64), *best[:1], *best_turning[:2], *best[1:2]):
        if budget.allows(told(cut)):
            print(f"\n{told(cut)}", flush=True)
            CUTS[max(CUTS)] = cut
            rows += attempt(lambda: predictor(made, ROLLOUTS, CONTEXTS)) or []
    return rows


def sweep(pool: ProcessPoolExecutor, given: list[Cut]) -> tuple[list[common.Row], list[Cut]]:
    """What cuts take, and those that are right, the fastest first."""
    checked: dict[Cut, Future[float]] = {cut: pool.submit(check, cut) for cut in given}
    rooms = [Room(ROLLOUTS, context, 2) for context in CONTEXTS]
    works = [work(room) for room in rooms]
    rows: list[common.Row] = []
    found: dict[Cut, float] = {}
    for cut in given:
        try:
            off = checked[cut].result(60)
            times = [per_call(make(cut)) for make in works] if off < 0.01 else [float("nan")] * 2
        except Exception as raised:  # noqa: BLE001 - a cut that can't be launched is no result
            print(told(cut), f"{type(raised).__name__}: {raised}"[:200], flush=True)
            continue
        flops = [4 * ROLLOUTS * TOKENS * (TOKENS + context) * HEADS * WIDTH / 1e6 for context in CONTEXTS]
        row = {"us 0": times[0], "us 258": times[1], "TFLOP/s 0": flops[0] / times[0]}
        rows.append({**row, "TFLOP/s 258": flops[1] / times[1], "wrong by": off, "cut": told(cut)})
        print(told(cut), *times, off, flush=True)
        if off < 0.01:
            found[cut] = sum(times)
    return sorted(rows, key=lambda row: row["us 0"] + row["us 258"]), sorted(found, key=found.__getitem__)


def work(room: Room) -> Callable[[Cut], list[Callable[[], Any]]]:
    qkv = normal(ROLLOUTS * TOKENS, 3 * HEADS * WIDTH)
    q = qkv[:, : HEADS * WIDTH].unflatten(1, (HEADS, WIDTH)).contiguous()

    def one(cut: Cut, layer: int) -> Callable[[], Any]:
        k, v = room.k[layer], room.v[layer]
        if cut.turns:
            return lambda: attend_turning(qkv, room.cos, room.sin, k, v, room.rows, TOKENS, PAGE, cut)
        return lambda: attend(q, k, v, room.rows, TOKENS, PAGE, cut)

    return lambda cut: [one(cut, layer) for layer in range(len(room.k))]


def check(cut: Cut) -> float:
    """Relative distance to float32 of sequences of several lengths, which are bound to be equal twice; it fills
    Triton's cache too."""
    torch.manual_seed(0)
    with torch.inference_mode():
        room = Room(4, 600, 1)
        room.rows.lengths.copy_(torch.tensor([600, 0, 258, 17]))
        k, v, qkv = room.k[0], room.v[0], normal(4 * TOKENS, 3 * HEADS * WIDTH)
        q = place(qkv, room.cos, room.sin, k, v, room.rows, TOKENS, PAGE)
        exact = plain_attention(q.float(), k.float(), v.float(), room.rows, TOKENS)

        def out() -> torch.Tensor:
            if cut.turns:
                return attend_turning(qkv, room.cos, room.sin, k, v, room.rows, TOKENS, PAGE, cut)
            return attend(q, k, v, room.rows, TOKENS, PAGE, cut)

        outs = [out() for _ in range(4)]
        same = all(torch.equal(one, outs[0]) for one in outs)
        return max(wrong(*pair) for pair in zip(outs[0].split(TOKENS), exact.split(TOKENS), strict=True)) if same else 9


def placing() -> list[common.Row]:
    room, qkv = Room(ROLLOUTS, 0, 2), normal(ROLLOUTS * TOKENS, 3 * HEADS * WIDTH)

    def one(queries: bool, layer: int) -> Callable[[], Any]:
        k, v = room.k[layer], room.v[layer]
        return lambda: place(qkv, room.cos, room.sin, k, v, room.rows, TOKENS, PAGE, queries)

    def times() -> Iterator[common.Row]:
        for queries in (True, False):
            yield {"placed with queries": queries, "us": per_call([one(queries, layer) for layer in range(2)])}

    rows = [*times()]
    common.show("placing 400 blocks", rows)
    return rows
