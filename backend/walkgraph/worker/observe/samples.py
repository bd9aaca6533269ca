"""Sends the values that somebody looks at as `Sample`s, for each tap no more often than it asks."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, NamedTuple, Protocol

from walkgraph.abi.calls import StateKey
from walkgraph.engine.probe.value_probe import ProbedValue, ProbeRequest, ValueProbe
from walkgraph.ids import Rank
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire.watching import Tap
from walkgraph.worker.events import ABSENT, Observe

LEAST = 0.05
"""The fewest seconds between two samples of a tap, whatever it asks for."""
_SOON = 0.002
"""Seconds until the device is checked again for results."""


class StateReader(Protocol):
    """The engine's states, as far as samples need them."""

    def glance(self, key: StateKey) -> Any: ...


class _SampleRequest(NamedTuple):
    observe: Observe
    taps: tuple[Tap, ...]
    at: float


class Samples:
    def __init__(self, rank: Rank, states: StateReader, emitter: Emitter, clock: Callable[[], float]) -> None:
        self._rank, self._states, self._emitter, self._clock = rank, states, emitter, clock
        self._looker = ValueProbe()
        self._armed: frozenset[str] = frozenset()
        """Ids of the current taps. A sample of a removed tap is dropped, even if its value was probed."""
        self._last: dict[str, float] = {}
        """Tap -> time of its last sample."""

    def look(self, observe: Observe) -> None:
        now, taps = self._clock(), observe.taps
        if observe.why == "tap":
            taps = tuple(tap for tap in taps if now - self._last.get(tap.id, -inf) >= max(LEAST, tap.interval))
            if not taps:
                return
            self._last.update((tap.id, now) for tap in taps)
        value = self._states.glance(observe.value) if isinstance(observe.value, StateKey) else observe.value
        record = observe.why == "record"
        preview = observe.why == "held" or any(tap.preview for tap in taps)
        wants = ProbeRequest(histogram=not record, preview=preview, record=record)
        asked = _SampleRequest(observe, taps, now)
        self._looker.take(asked, None if value is ABSENT else value, observe.modality, wants)

    def keep(self, taps: Iterable[Tap]) -> None:
        """Set the current taps; all others are removed."""
        self._armed = frozenset(tap.id for tap in taps)
        self._last = {tap: at for tap, at in self._last.items() if tap in self._armed}

    def wait(self, longest: float) -> float:
        """Seconds until `tell` should be called, at most `longest`."""
        return min(longest, _SOON) if self._looker.pending else longest

    def tell(self) -> None:
        if self._looker.pending:
            for looked in self._looker.ready():
                asked: _SampleRequest = looked.token
                if asked.observe.why == "tap":
                    for tap in [tap for tap in asked.taps if tap.id in self._armed]:
                        self._tell(asked, looked, tap.id, preview=tap.preview)
                else:
                    self._tell(asked, looked, "", preview=True)

    def _tell(self, asked: _SampleRequest, looked: ProbedValue, tap: str, *, preview: bool) -> None:
        observe = asked.observe
        self._emitter.emit(
            t.Sample(
                why=observe.why,
                tap=tap,
                run=observe.run,
                rank=self._rank,
                walk=observe.walk,
                step=observe.step,
                source=observe.source,
                iteration=observe.iteration,
                at=asked.at,
                modality=observe.modality,
                dtype=looked.dtype,
                shape=looked.shape,
                statistics=looked.statistics,
                preview=looked.preview if preview else None,
                digest=looked.digest,
                picked=looked.picked,
            )
        )
