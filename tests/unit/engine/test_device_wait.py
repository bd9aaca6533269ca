"""What an engine waits for when nothing can be launched, and which calls it launches first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, plan_of
from walkgraph.engine.calls import call_scheduler
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.calls.inflight import InFlightBatch, InFlightBatches, Launched
from walkgraph.engine.calls.threads import Threads
from walkgraph.engine.device.outside import FIRSTHAND
from walkgraph.engine.device_wait import LOOK_SECONDS, SHORT_SECONDS, SURE_SECONDS, WATCH_SECONDS, DeviceWait
from walkgraph.models.synthetic import operators as synthetic

CPU = torch.device("cpu")


class Clock:
    now = 1.0

    def __call__(self) -> float:
        return self.now


class Waiting:
    """A batch in turn and a launch of loops, both in flight: the calls and the loops of an engine."""

    def __init__(self, *, loops_first: bool = False, seconds: float = 0.0) -> None:
        """`seconds`: until the batch is probably over."""
        self.clock, self.waited, self.heard = Clock(), list[str](), list[float]()
        self.in_flight, self.over, self.comes = InFlightBatches(), False, False
        self.in_flight.turns.append(self.batch("turns", seconds))
        self.launcher = SimpleNamespace(
            since=0.5 if loops_first else 1.5, left=lambda: SURE_SECONDS / 2, oldest=(SURE_SECONDS / 2, self)
        )
        self.waits_for_peers, self.threads = False, Threads(FIRSTHAND)

    def batch(self, name: str, seconds: float) -> InFlightBatch:
        queued = self.in_flight.backlog.launched(1.0, seconds) if name == "turns" else None
        launched = Launched(cast(Any, self), list, [])
        return InFlightBatch([call(name)], frozenset("r"), launched, 1.0, 1.0, 1.0 + seconds, CPU, 1, queued)

    def query(self) -> bool:
        return self.over

    def synchronize(self) -> None:
        self.waited.append("device")
        self.over = True

    def hears(self, seconds: float, wakes: int | None) -> bool:
        self.heard.append(seconds)
        self.clock.now += seconds + 1e-9
        return self.comes

    def wait(self, *, hears: bool = True) -> bool:
        asked = cast(Any, self)
        return DeviceWait(asked, asked, self.clock, self.hears if hears else None).wait()


@pytest.mark.parametrize("loops_first", [True, False])
def test_the_oldest_launch_is_waited_for(*, loops_first: bool) -> None:
    waiting = Waiting(loops_first=loops_first, seconds=SURE_SECONDS / 2)
    assert waiting.wait() == loops_first
    assert waiting.waited == ([] if loops_first else ["device"])
    assert waiting.heard == []


def test_messages_are_waited_for_while_the_device_surely_works() -> None:
    waiting = Waiting(seconds=0.004)
    waiting.comes = True
    assert not waiting.wait()
    assert (len(waiting.heard), waiting.waited) == (1, [])
    waiting.comes = False
    assert not waiting.wait()
    assert waiting.waited == ["device"]
    assert sum(waiting.heard) == pytest.approx(0.004 - SURE_SECONDS, abs=1e-6)
    assert max(waiting.heard) <= LOOK_SECONDS


@pytest.mark.parametrize("why", ["unknown", "late", "slowed", "short"])
def test_a_device_whose_end_is_unsure_is_waited_for_with_messages(why: str) -> None:
    seconds = {"unknown": 0.0, "short": SHORT_SECONDS / 2}.get(why, 2 * SHORT_SECONDS)
    waiting = Waiting(seconds=seconds)
    waiting.clock.now += seconds + (1 if why in ("unknown", "late") else -SURE_SECONDS / 2)
    if why in ("slowed", "short"):
        waiting.in_flight.beside.append(waiting.batch("beside", 1.0))
    assert not waiting.wait()
    assert waiting.heard == ([] if why == "short" else [WATCH_SECONDS])


def test_an_engine_that_hears_nothing_waits_for_its_device() -> None:
    waiting = Waiting()
    assert not waiting.wait(hears=False)
    assert (waiting.waited, waiting.heard) == (["device"], [])


class Slow(synthetic.Noop):
    """Takes no time of the clock, and has another index than `Noop`."""


@pytest.mark.parametrize("states", [{}, {"kv": "context"}])
def test_short_calls_go_first_unless_they_have_states(states: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "SlowForTest", Slow, raising=False)
    kinds = {"long": "SlowForTest", "short": "Noop"}
    engine = engine_of(plan_of({name: (f"{synthetic.__name__}:{kind}", {}) for name, kind in kinds.items()}))
    engine.calls.times.note("long", 1, 1, call_scheduler.SHORT_SECONDS * 2)
    engine.calls.times.note("short", 1, 1, call_scheduler.SHORT_SECONDS / 2)
    token = {"token": torch.zeros(1, dtype=torch.int64)}
    engine.add(call("long", token, run="first", stop_at=9))
    engine.add(call("short", token, run="second", stop_at=9, states=states))
    done = [event.call.node for _ in range(4) for event in engine.step() if isinstance(event, Done)]
    assert done == (["long", "short"] if states else ["short", "long"])
