"""Random traces of runs on several ranks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from walkgraph.telemetry.trace import CALL, FOLDED, LAUNCH, Blocks, Counters, Hops, Lane, LoopEnd, Trace

RUN = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NAMES = ("prefill", "decode", "llm.next -> vae.x", "shm", "b" * 32, "llm", "vae", "again")
"""Two Walks, an edge, a transport, another run, uses: the last one is of node `vae` too."""
WALKS, EDGE, TRANSPORT, MATE, USES = (0, 1), 2, 3, 4, ((5,), (6, 7), (-1,))


def trace(seed: int, *, ranks: int = 3, batches: int = 12, folded: bool = False, **fields: Any) -> Trace:
    """Batches of a rank follow each other on its device, calls of one batch share its times; every tenth value is of a
    stream; some arrivals are not told."""
    dice = random.Random(seed)
    lanes = tuple(
        Lane(rank=rank, name=name, nodes=nodes, loop=len(nodes) > 1)
        for rank in range(ranks)
        for name, nodes in (("llm", ("llm",)), ("vae", ("vae",)), ("generate", ("llm", "sampler")))
    )
    rows: list[dict[str, Any]] = []
    for rank in range(ranks):
        at = dice.randrange(1000, 5000)
        for number in range(batches):
            start = at + dice.choice((0, 0, 7, 500))
            at = start + dice.choice((0, 1, 90, 4000))
            rows += _batch(dice, rank, number, (start, at), folded=folded)
    rows.sort(key=lambda row: row["started"])
    end = max((row["finished"] for row in rows), default=0) + 2000
    hops = [_hop(dice, ranks, end) for _ in range(batches * ranks // 2)] if ranks > 1 else []
    counters = [_gauge(dice, rank, at) for rank in range(ranks) for at in range(0, end, 4000)]
    known = {
        "run": RUN,
        "deployment": "shapes",
        "task": "draw",
        "state": "done",
        "level": "summary" if folded else "full",
        "wall": 1.75e9,
        "seconds": end / 1e6,
        "phases": {"queued": 0, "started": 700, "first_output": end - 1500, "finished": end},
        "parent": PARENT,
        "devices": tuple(f"cuda:{rank}" for rank in range(ranks)),
        "names": NAMES,
        "lanes": lanes,
        "blocks": Blocks(**_columns(rows)),
        "hops": Hops(**_columns(sorted(hops, key=lambda hop: hop["sent"]))),
        "counters": Counters(**_columns(counters)),
        "loops": (LoopEnd(rank=0, walk="decode", loop="generate", iteration=(), iterations=9, reason="stop", at=end),),
    }
    return Trace(**{**known, **fields})


def _batch(dice: random.Random, rank: int, number: int, span: tuple[int, int], *, folded: bool) -> list[dict[str, Any]]:
    start, end = span
    in_loop = dice.random() < 0.3
    lanes = [3 * rank + 2] if in_loop else [3 * rank + dice.randrange(2) for _ in range(dice.choice((1, 1, 1, 2, 3)))]
    taken = max(0, start - dice.randrange(900))
    walk, step = dice.choice(WALKS), dice.randrange(3)
    return [
        {
            "kind": FOLDED if folded else LAUNCH if in_loop else CALL,
            "lane": lane,
            "walk": walk,
            "use": dice.choice(USES[lane % 3]),
            "step": step,
            "iteration": (number,) if in_loop else (),
            "count": 4 if in_loop else 1,
            "number": -1 if folded else number,
            "batch": len(lanes) + 1,
            "mates": (MATE,),
            "ready": max(0, taken - dice.randrange(300)),
            "taken": taken,
            "launched": max(taken, start - dice.randrange(50)),
            "started": start,
            "finished": end,
            "busy": end - start,
            "queued": dice.randrange(300),
            "pages_free": dice.choice((-1, 40)),
            "failed": dice.random() < 0.05,
        }
        for lane in lanes
    ]


def _hop(dice: random.Random, ranks: int, end: int) -> dict[str, Any]:
    source = dice.randrange(ranks)
    sent = dice.randrange(end)
    return {
        "source": source,
        "target": (source + 1 + dice.randrange(ranks - 1)) % ranks,
        "walk": dice.choice(WALKS),
        "edge": EDGE,
        "step": dice.choice((0, 1, 2, -1)),
        "key": (1,),
        "transport": TRANSPORT,
        "count": 1,
        "nbytes": dice.randrange(1 << 20),
        "sent": sent,
        "arrived": sent + dice.randrange(400) if dice.random() < 0.8 else -1,
    }


def _gauge(dice: random.Random, rank: int, at: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "at": at,
        "busy": dice.random(),
        "queue": dice.randrange(5),
        "runs": 2,
        "memory_used": 1 << 30,
        "pages_used": dice.randrange(10),
        "pages_total": 0 if rank else 10,
    }


def _columns(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(row[name] for row in rows) for name in rows[0]} if rows else {}
