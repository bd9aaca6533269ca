"""An engine's waits when nothing can be launched, and the calls that it launches first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, plan_of
from walkgraph.abi.calls import Call
from walkgraph.engine.calls import call_scheduler
from walkgraph.engine.calls.call_times import CallTimes
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.calls.inflight import InFlightBatch, InFlightBatches, Launched
from walkgraph.engine.calls.schedule import Mix
from walkgraph.engine.calls.threads import Threads
from walkgraph.engine.device.outside import FIRSTHAND
from walkgraph.engine.device_wait import LOOK_SECONDS, SHORT_SECONDS, SURE_SECONDS, WATCH_SECONDS, DeviceWait
from walkgraph.engine.engine import Engine
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
    """An operator of its own, beside `Noop`."""


class Measured(CallTimes):
    """Times that the machine doesn't change: calls of `long` are not short, others are."""

    def of_each(self, operator: int) -> float:
        return call_scheduler.SHORT_SECONDS * (2 if operator == self._nodes["long"].index else 0.5)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Nodes `long` and `short`, one call a batch."""
    monkeypatch.setattr(synthetic, "SlowForTest", Slow, raising=False)
    kinds = {"long": "SlowForTest", "short": "Noop"}
    plan = plan_of({name: (f"{synthetic.__name__}:{kind}", {}) for name, kind in kinds.items()})
    engine = engine_of(plan, mix=Mix(1, 1, 1))
    engine.calls.times = Measured(engine.calls._nodes)
    return engine


def passed(node: str, run: str, states: dict[str, str] | None = None) -> Call:
    return call(node, {"token": torch.zeros(1, dtype=torch.int64)}, run=run, stop_at=9, states=states)


def done(engine: Engine) -> list[str]:
    """Nodes of the calls that a step has made."""
    return [event.call.node for event in engine.step() if isinstance(event, Done)]


@pytest.mark.parametrize("states", [{}, {"kv": "context"}])
def test_short_calls_go_first_unless_they_have_states(engine: Engine, states: dict[str, str]) -> None:
    engine.add(passed("long", "first"))
    engine.add(passed("short", "second", states))
    found = [node for _ in range(4) for node in done(engine)]
    assert found == (["long", "short"] if states else ["short", "long"])


def test_short_calls_starve_nobody(engine: Engine) -> None:
    engine.add(passed("long", "first"))
    for at in range(3 * call_scheduler.PASSES):
        engine.add(passed("short", f"r{at}"))
    found = [node for _ in range(4 * call_scheduler.PASSES) for node in done(engine)]
    assert len(found) == 3 * call_scheduler.PASSES + 1
    assert found.index("long") == call_scheduler.PASSES
