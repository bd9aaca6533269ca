"""Telemetry events of ranks and a conductor, with defaults for fields that a test doesn't set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e

WALL = 1_000_000.0
A, B, C = (RunId(letter * 32) for letter in "abc")


def packet(source: str, first: int, *told: e.Any, deployment: str = "shapes v1", dropped: int = 0) -> e.Packet:
    return e.Packet(deployment=deployment, source=source, first=first, dropped=dropped, wall=WALL, events=told)


def phase(run: RunId, name: Any, at: float, error: str | None = None, task: str = "draw") -> e.RunPhase:
    return e.RunPhase(run=run, task=task, phase=name, at=at, error=error)


def forward(
    times: Sequence[float],
    runs: Sequence[RunId] = (A,),
    nodes: Sequence[str] | None = None,
    *,
    ready: Sequence[float] | None = None,
    rank: int = 0,
    number: int = 0,
    step: int = 0,
    iteration: tuple[int, ...] = (),
    failed: tuple[int, ...] = (),
    walk: str = "draw",
    uses: Sequence[str] | None = None,
) -> e.Forward:
    """`times`: taken, launched, started, finished."""
    taken, launched, started, finished = times
    count = len(runs)
    return e.Forward(
        rank=Rank(rank),
        number=number,
        runs=tuple(runs),
        walks=(walk,) * count,
        nodes=tuple(nodes or ("llm",) * count),
        uses=tuple(uses or nodes or ("llm",) * count),
        steps=(step,) * count,
        iterations=(iteration,) * count,
        ready=tuple(ready or (taken,) * count),
        taken=taken,
        launched=launched,
        started=started,
        finished=finished,
        pages_free=100,
        failed=failed,
    )


def launch(
    times: Sequence[float],
    runs: Sequence[RunId] = (A,),
    *,
    count: int = 4,
    first: Sequence[int] = (0,),
    number: int = 0,
    rank: int = 0,
    step: int = 0,
    nodes: tuple[str, ...] = ("llm", "head"),
    ready: Sequence[float] | None = None,
    spans: bool = False,
) -> e.Launch:
    taken, launched, started, finished = times
    return e.Launch(
        rank=Rank(rank),
        number=number,
        loop="decode",
        nodes=nodes,
        uses=nodes,
        count=count,
        runs=tuple(runs),
        walks=("draw",) * len(runs),
        steps=(step,) * len(runs),
        outer=((),) * len(runs),
        first=tuple(first),
        ready=tuple(ready or (taken,) * len(runs)),
        taken=taken,
        launched=launched,
        started=started,
        finished=finished,
        pages_free=90,
        spans=spans,
    )


def activity(run: RunId, span: tuple[float, float], *, node: str = "llm", calls: int = 2, rank: int = 0) -> e.Activity:
    launched, finished = span
    return e.Activity(
        run=run,
        rank=Rank(rank),
        node=node,
        use=node,
        walk="draw",
        iteration=(3,),
        calls=calls,
        busy=(finished - launched) / 2,
        queued=0.001 * calls,
        launched=launched,
        finished=finished,
        batch=2,
    )


def looping(runs: Sequence[RunId], at: float, done: Sequence[int], busy: float) -> e.Looping:
    return e.Looping(
        rank=Rank(0),
        loop="decode",
        nodes=("llm", "head"),
        uses=("llm", "head"),
        runs=tuple(runs),
        walks=("draw",) * len(runs),
        iterations=tuple((count,) for count in done),
        launches=1,
        calls=4,
        busy=busy,
        batch=len(runs),
        at=at,
    )


def loop_work(began: float, busy: float, calls: dict[str, int], *, spans: bool = False) -> e.LoopWork:
    """The work of a loop whose nodes are each used once."""
    nodes = tuple(calls)
    return e.LoopWork(
        nodes=nodes,
        uses=nodes,
        calls=tuple(calls.values()),
        spans=spans,
        busy=busy,
        queued=0.0,
        began=began,
        batch=1,
    )


def loop_ended(
    run: RunId, at: float, iterations: int, work: e.LoopWork | None = None, *, loop: str = "decode", rank: int = 0
) -> e.LoopEnded:
    return e.LoopEnded(
        run=run,
        rank=Rank(rank),
        walk="draw",
        loop=loop,
        step=0,
        iteration=(),
        iterations=iterations,
        reason="bound",
        at=at,
        work=work,
    )


def transfer(run: RunId, at: float, *, key: tuple[int, ...] = (), edge: int = 1, nbytes: int = 64) -> e.Transfer:
    return e.Transfer(
        run=run,
        source=Rank(0),
        target=Rank(1),
        walk="draw",
        edge=edge,
        stream=False,
        step=0,
        key=key,
        transport="shm",
        count=1,
        nbytes=nbytes,
        at=at,
    )


def arrival(run: RunId, at: float, *, key: tuple[int, ...] = (), edge: int = 1) -> e.Arrival:
    return e.Arrival(run=run, rank=Rank(1), edge=edge, stream=False, step=0, key=key, at=at)


def gauge(rank: int, at: float, queue: int = 0) -> e.RankGauge:
    return e.RankGauge(
        rank=Rank(rank),
        at=at,
        runs=1,
        queue=queue,
        busy=0.5,
        memory_used=1000,
        memory_total=2000,
        pages_free=70,
        pages_total=100,
        prefix_tokens=0,
        prefix_hits=0,
        out_tickets=0,
        rejected=0,
        dropped=0,
    )


def sample(run: RunId, at: float, *, why: Any = "record", picked: tuple[float, ...] = (1.0, 2.5)) -> e.Sample:
    return e.Sample(
        why=why,
        tap="",
        run=run,
        rank=Rank(0),
        walk="draw",
        step=0,
        source="llm.text",
        iteration=(1,),
        at=at,
        modality="text",
        dtype="float32",
        shape=(2,),
        digest="0" * 16,
        picked=picked,
    )


def leave(teller: Any, send: Any) -> None:
    """A rank sends a message, and nothing holds it up."""
    teller.departed(one for one in [teller.transfer(send)] if one is not None)
