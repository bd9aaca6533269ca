"""Samples: their contents, and how often a tap gets one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.paged_state import CacheSummary
from walkgraph.engine.probe.value_probe import ProbedValue, ValueProbe
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Off
from walkgraph.wire.watching import Tap
from walkgraph.worker.events import ABSENT, Observe
from walkgraph.worker.observe.samples import Samples

KEY = StateKey("r", "main")


class Heard(Off):
    def __init__(self) -> None:
        self.samples: list[t.Sample] = []

    def emit(self, event: t.Any) -> None:
        assert isinstance(event, t.Sample)
        self.samples.append(event)


class States:
    def glance(self, key: StateKey) -> Any:
        return CacheSummary(1, 20, 2) if key == KEY else None


class Desk:
    def __init__(self) -> None:
        self.now, self.heard = 100.0, Heard()
        self.looking = Samples(Rank(2), States(), self.heard, lambda: self.now)
        self.armed: dict[str, Tap] = {}

    def look(self, why: Any, value: Any, *taps: Tap, modality: str = "features") -> Sequence[t.Sample]:
        """The samples that are reported for it."""
        before = len(self.heard.samples)
        self.armed |= {one.id: one for one in taps}
        self.looking.keep(self.armed.values())
        self.looking.look(Observe(why, RunId("r"), "w", 1, "llm.hidden", (3,), modality, value, taps))
        self.looking.tell()
        return self.heard.samples[before:]


def tap(interval: float = 0.25, name: str = "a", *, preview: bool = True) -> Tap:
    return Tap(id=name, walk="w", source="llm.hidden", interval=interval, preview=preview)


def test_a_sample_says_where_and_when_and_what() -> None:
    (one,) = Desk().look("tap", torch.arange(200.0).view(2, 100), tap())
    assert (one.why, one.tap, one.run, one.rank, one.walk, one.step) == ("tap", "a", "r", 2, "w", 1)
    assert (one.source, one.iteration, one.at, one.modality) == ("llm.hidden", (3,), 100.0, "features")
    assert (one.dtype, one.shape, one.digest, one.picked) == ("float32", (2, 100), "", ())
    assert one.statistics is not None
    assert sum(one.statistics.histogram) == 200
    assert isinstance(one.preview, t.HeatPreview)


def test_a_record_has_digest_and_numbers_and_no_picture() -> None:
    (one,) = Desk().look("record", torch.arange(4.0))
    assert (one.why, one.tap, one.preview, one.picked) == ("record", "", None, (0, 1, 2, 3))
    assert len(one.digest) == 16
    assert one.statistics is not None
    assert one.statistics.histogram == ()


@pytest.mark.parametrize(("interval", "every"), [(0.25, 32), (0, 7)])
def test_a_tap_is_told_as_often_as_it_wants_and_no_more_than_is_good(interval: float, every: int) -> None:
    desk = Desk()
    for i in range(129):
        desk.now = i / 128
        desk.look("tap", torch.ones(1), tap(interval))
    assert [one.at * 128 for one in desk.heard.samples] == list(range(0, 129, every))


def test_taps_of_one_place_have_each_their_own_pace_and_wish() -> None:
    desk, seldom, often = Desk(), tap(10, "seldom", preview=False), tap(0.05, "often")
    value = torch.ones(100)
    first = desk.look("tap", value, seldom, often)
    assert [(one.tap, one.preview is None) for one in first] == [("seldom", True), ("often", False)]
    desk.now += 1
    assert [one.tap for one in desk.look("tap", value, seldom, often)] == ["often"]
    desk.looking.keep((often,))
    desk.armed.clear()
    assert [one.tap for one in desk.look("tap", value, seldom)] == ["seldom"], "it is a new one"


def test_records_and_held_values_are_told_each_time() -> None:
    desk = Desk()
    for _ in range(3):
        desk.look("record", torch.ones(1))
        desk.look("held", torch.ones(100))
    assert [one.why for one in desk.heard.samples] == ["record", "held"] * 3
    assert all(one.preview for one in desk.heard.samples if one.why == "held")


def test_states_and_what_is_not_there() -> None:
    desk = Desk()
    (cache,) = desk.look("held", KEY, modality="paged_kv")
    assert (cache.dtype, cache.shape, cache.modality, cache.statistics) == ("cache", (1, 20, 2), "paged_kv", None)
    for value in (StateKey("r", "none"), ABSENT):
        (one,) = desk.look("held", value)
        assert (one.dtype, one.shape) == ("absent", ())


def test_what_is_not_there_yet_is_asked_for_soon_and_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    assert desk.looking.wait(30.0) == 30.0
    ready, real = [False], ValueProbe.ready

    def late(self: ValueProbe) -> list[ProbedValue]:
        return real(self) if ready[0] else []

    monkeypatch.setattr(ValueProbe, "ready", late)
    assert not desk.look("tap", torch.ones(1), tap())
    assert 0 < desk.looking.wait(30.0) < 0.01
    ready[0] = True
    desk.looking.tell()
    assert len(desk.heard.samples) == 1
    assert desk.looking.wait(30.0) == 30.0
    ready[0], desk.now = False, 200.0
    desk.look("tap", torch.ones(1), tap(), tap(name="b"))
    desk.looking.keep((tap(name="b"),))
    ready[0] = True
    desk.looking.tell()
    assert [one.tap for one in desk.heard.samples[1:]] == ["b"], "nothing is told of a tap that is gone"
