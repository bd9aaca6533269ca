"""Follow a deployment by its telemetry frames: open runs, and the work of each node and rank. Nothing here prints;
times are seconds of the events' clock or of the caller's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from walkgraph.cli.show.timelines import duration

WINDOW = 5.0
"""Seconds that rates are averaged over."""
MAX_RUNS = 12
"""The most runs listed."""

Frame = Mapping[str, Any]


@dataclass(slots=True)
class _Run:
    task: str
    phase: str
    began: float
    """When its first event came, by the caller's clock."""
    paused: bool = False


@dataclass(slots=True)
class _Node:
    work: deque[tuple[float, int, float, float]] = field(default_factory=deque[tuple[float, int, float, float]])
    """When it came, calls, busy seconds, queued seconds."""
    iteration: str = ""


class Board:
    def __init__(self, deployment: str) -> None:
        self._deployment = deployment
        self._state = ""
        self._runs: dict[str, _Run] = {}
        self._nodes: dict[tuple[int, str], _Node] = {}
        self._ranks: dict[int, Frame] = {}
        self._dropped = 0
        self._ended = 0

    def take(self, frame: Frame, now: float) -> Iterator[str]:
        """Take a frame; yields the lines that are worth printing on their own."""
        match frame["type"]:
            case "events":
                for event in frame["events"]:
                    yield from self._event(event, now)
            case "run":
                yield from self._over(frame)
            case "paused" | "resumed":
                yield from self._halted(frame)
            case "deployment":
                if frame["state"] != self._state:
                    self._state = frame["state"]
                    yield f"{self._deployment} is {self._state}"
            case "dropped":
                self._dropped += frame["count"]
            case _:
                pass

    def lines(self, now: float) -> Iterator[str]:
        """The whole state at this moment, as lines."""
        missed = f", {self._dropped} frames missed" if self._dropped else ""
        yield f"{self._deployment}: {self._state or 'unknown'}, {len(self._runs)} runs, {self._ended} over{missed}"
        for rank, gauges in sorted(self._ranks.items()):
            yield f"  rank {rank}  {_rank(gauges)}"
        yield ""
        yield f"  {'NODE':24} {'RANK':>4} {'CALLS/S':>9} {'MS/CALL':>9} {'QUEUED MS':>9}  ITERATION"
        for (rank, name), node in sorted(self._nodes.items()):
            yield f"  {name:24} {rank:>4} {_rates(node, now)}  {node.iteration}"
        yield ""
        shown = list(self._runs.items())
        for id_, run in shown[:MAX_RUNS]:
            state = "paused" if run.paused else run.phase.replace("_", " ")
            yield f"  {id_[:8]}  {run.task:24} {state:14} {duration(now - run.began)}"
        if len(shown) > MAX_RUNS:
            yield f"  and {len(shown) - MAX_RUNS} more"

    def _event(self, event: Frame, now: float) -> Iterator[str]:
        match event["type"]:
            case "run":
                yield from self._phase(event, now)
            case "activity":
                node = self._node(event["rank"], event["node"])
                node.iteration = _indices(event["iteration"])
                self._work(node, now, event["calls"], event["busy"], event["queued"])
            case "forward":
                self._forward(event, now)
            case "launch":
                self._loop(event, now, event["count"] * len(event["runs"]), event["finished"] - event["started"])
                done = [_indices((*outer, first)) for outer, first in zip(event["outer"], event["first"], strict=True)]
                self._node(event["rank"], event["loop"]).iteration = ", ".join(done[:4])
            case "looping":
                self._loop(event, now, event["calls"], event["busy"])
                at = ", ".join(map(_indices, event["iterations"][:4]))
                self._node(event["rank"], event["loop"]).iteration = at
            case "rank":
                self._ranks[event["rank"]] = event
            case _:
                pass

    def _phase(self, event: Frame, now: float) -> Iterator[str]:
        id_, phase = event["run"], event["phase"]
        if phase == "finished":
            # A run's end has a frame of its own, which may have come first.
            self._runs.pop(id_, None)
            return
        run = self._runs.setdefault(id_, _Run(event["task"], phase, now))
        run.phase = phase
        yield f"{id_[:8]}  {run.task}: {phase.replace('_', ' ')}"

    def _over(self, frame: Frame) -> Iterator[str]:
        self._runs.pop(frame["run"], None)
        self._ended += 1
        yield f"{frame['run'][:8]}  {frame['task']}: {frame['state']} in {duration(frame['seconds'])}"

    def _halted(self, frame: Frame) -> Iterator[str]:
        run, paused = self._runs.get(frame["run"]), frame["type"] == "paused"
        if run is not None and run.paused != paused:
            run.paused = paused
            yield f"{frame['run'][:8]}  {run.task}: {frame['type']}"

    def _forward(self, event: Frame, now: float) -> None:
        seconds = event["finished"] - event["started"]
        for name, ready, iteration in zip(event["nodes"], event["ready"], event["iterations"], strict=True):
            node = self._node(event["rank"], name)
            node.iteration = _indices(iteration)
            self._work(node, now, 1, seconds, max(0.0, event["started"] - ready))

    def _loop(self, event: Frame, now: float, calls: int, busy: float) -> None:
        self._work(self._node(event["rank"], event["loop"]), now, calls, busy, 0.0)

    def _node(self, rank: int, name: str) -> _Node:
        return self._nodes.setdefault((rank, name), _Node())

    def _work(self, node: _Node, now: float, calls: int, busy: float, queued: float) -> None:
        node.work.append((now, calls, busy, queued))
        _forget(node, now)


def _forget(node: _Node, now: float) -> None:
    while node.work and node.work[0][0] < now - WINDOW:
        node.work.popleft()


def _rates(node: _Node, now: float) -> str:
    _forget(node, now)
    calls = sum(work[1] for work in node.work)
    if not calls:
        return f"{'-':>9} {'-':>9} {'-':>9}"
    busy, queued = sum(work[2] for work in node.work), sum(work[3] for work in node.work)
    return f"{calls / WINDOW:>9.1f} {busy / calls * 1e3:>9.2f} {queued / calls * 1e3:>9.2f}"


def _rank(gauges: Frame) -> str:
    words = [f"busy {gauges['busy']:4.0%}", f"queue {gauges['queue']}", f"runs {gauges['runs']}"]
    if gauges["pages_total"]:
        words.append(f"KV {1 - gauges['pages_free'] / gauges['pages_total']:.0%}")
    if gauges["memory_total"]:
        words.append(f"memory {gauges['memory_used'] / 2**30:.1f} of {gauges['memory_total'] / 2**30:.1f} GiB")
    return "  ".join(words)


def _indices(iteration: Any) -> str:
    return ".".join(map(str, iteration))
