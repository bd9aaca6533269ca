"""Looks into runs of the graph `synthetic_loops` whose node `unload` is on another host, in each way there is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from walkgraph.client import Client

PATIENCE = 120.0
"""Seconds that a frame has to come."""
WALK, FERRY = "ferry", {"params": {"times": 4, "numbers": 4096}}


class _Frames:
    def __init__(self, client: Client, deployment: str) -> None:
        self._frames = client.telemetry(deployment, every=0.5)
        self.seen: list[dict[str, Any]] = []
        self.until(lambda frame: frame["type"] == "welcome")

    def until(self, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        for frame in self._frames:
            assert time.monotonic() < end, self.seen
            if frame is not None:
                self.seen.append(frame)
                if holds(frame):
                    return frame
        raise AssertionError("the telemetry has ended")

    def over(self, run: str) -> None:
        if not any(_over(frame, run) for frame in self.seen):
            self.until(lambda frame: _over(frame, run))

    def sample(self, tap: str) -> dict[str, Any]:
        if not any(_samples(frame, tap) for frame in self.seen):
            self.until(lambda frame: _samples(frame, tap))
        return next(sample for frame in self.seen for sample in _samples(frame, tap))


def watched(client: Client, deployment: str) -> dict[str, Any]:
    """What is seen of runs, by the way in which it is looked for."""
    client.set_level(deployment, "full")
    return {
        "traced": _traced(client, deployment),
        "tapped": _tapped(client, deployment),
        "held": _held(client, deployment),
        "replayed": _replayed(client, deployment),
        "metrics": client.metrics(),
    }


def _traced(client: Client, deployment: str) -> dict[str, Any]:
    """A run's trace, its exports, and the frames that came of it as it ran, with the time before and after."""
    frames, began = _Frames(client, deployment), time.time()
    run = client.start_run(deployment, "ferry", FERRY)["id"]
    frames.over(run)
    if not any(map(_far_work, frames.seen)):
        frames.until(_far_work)
    return {
        "trace": client.trace(run),
        "why": client.why(run),
        "files": {form: json.loads(client.trace_file(run, form)) for form in ("perfetto", "otlp")},
        "frames": [frame for frame in frames.seen if frame["type"] == "events"],
        "between": (began, time.time()),
    }


def _tapped(client: Client, deployment: str) -> list[dict[str, Any]]:
    """A sample of what leaves the node on the other host, and one of what goes to it."""
    frames = _Frames(client, deployment)
    out = client.tap(deployment, WALK, "unload.sum", interval=0.05)["id"]
    into = client.tap(deployment, WALK, "load.items", to="unload.items", interval=0.05)["id"]
    frames.over(client.start_run(deployment, "ferry", FERRY)["id"])
    found = [frames.sample(out), frames.sample(into)]
    for tap in (out, into):
        client.remove_tap(deployment, tap)
    return found


def _held(client: Client, deployment: str) -> dict[str, Any]:
    """Where a run stops that is to stop on the other host, how it goes on, and its inputs there."""
    frames = _Frames(client, deployment)
    stop = client.set_breakpoint(deployment, WALK, "unload", iteration=2)["id"]
    run = client.start_run(deployment, "ferry", FERRY)["id"]
    paused = frames.until(
        lambda frame: frame["type"] == "paused" and any(call["use"] == "unload" for call in frame["held"])
    )
    shown = next((frame for frame in frames.seen if _inputs(frame)), None) or frames.until(_inputs)
    call = next(call for call in paused["held"] if call["use"] == "unload")
    client.remove_breakpoint(deployment, stop)
    client.steer(run, "step", call)
    stepped = frames.until(lambda frame: frame["type"] == "paused" and call not in frame["held"])
    client.steer(run, "resume")
    frames.over(run)
    return {
        "stop": stop,
        "paused": paused,
        "stepped": stepped["held"],
        "input": _inputs(shown)[0],
        "outputs": client.result(run)["outputs"],
        "free": client.run(deployment, "ferry", FERRY)["outputs"],
    }


def _replayed(client: Client, deployment: str) -> dict[str, Any]:
    """What differs in a recorded run that is made again."""
    frames = _Frames(client, deployment)
    first = client.start_run(deployment, "ferry", {**FERRY, "record": True})["id"]
    frames.over(first)
    again = client.replay(first)["id"]
    frames.over(again)
    return {"differences": client.differences(first, again), "seconds": client.trace(again)["seconds"]}


def _far_work(frame: dict[str, Any]) -> bool:
    """True for work of the rank on the other host."""
    return any(event["rank"] == 1 for event in _events(frame, "forward"))


def _over(frame: dict[str, Any], run: str) -> bool:
    return frame["type"] == "run" and frame["run"] == run


def _samples(frame: dict[str, Any], tap: str) -> list[dict[str, Any]]:
    return [sample for sample in _events(frame, "sample") if sample["tap"] == tap]


def _inputs(frame: dict[str, Any]) -> list[dict[str, Any]]:
    """What a call on the other host is held with."""
    return [one for one in _events(frame, "sample") if (one["why"], one["source"]) == ("held", "unload.items")]


def _events(frame: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [event for event in frame["events"] if event["type"] == kind] if frame["type"] == "events" else []
