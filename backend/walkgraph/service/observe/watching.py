"""What is wanted to be seen of a deployment: the level of telemetry, and for a while each, taps and breakpoints. It
outlives its processes, and a switch as far as the places are still there."""

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from walkgraph.conductor.runs.watching import Places
from walkgraph.errors import Conflict, NotFound
from walkgraph.graph.problems import nearest
from walkgraph.ids import RunId
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.schemas.watch import BreakRequest, TapRequest
from walkgraph.wire import messages as m
from walkgraph.wire.answers import watching as answers
from walkgraph.wire.watching import Break, Level, Tap


class _Armed(NamedTuple):
    place: Tap | Break
    expires_at: float
    """Seconds since 1970."""


class Watched:
    """Of one deployment."""

    def __init__(self, level: Level) -> None:
        self.level: Level = level
        self._taps: dict[str, _Armed] = {}
        self._breaks: dict[str, _Armed] = {}

    def message(self, places: Places) -> m.Watch:
        """What a version's processes are told: what it has the places for."""
        found = [armed.place for armed in self._all() if places.has(armed.place)]
        return m.Watch(
            level=self.level,
            taps=tuple(place for place in found if isinstance(place, Tap)),
            breaks=tuple(place for place in found if isinstance(place, Break)),
        )

    def public(self, places: Places | None) -> answers.Watch:
        """`places`: of the version that serves; None while it is judged."""
        return {
            "level": self.level,
            "taps": [answers.Tap(**_shown(armed, places)) for armed in self._taps.values()],
            "breakpoints": [answers.Breakpoint(**_shown(armed, places)) for armed in self._breaks.values()],
        }

    def tap(self, asked: TapRequest, places: Places) -> str:
        """Its id. Raises Unprocessable for a place that isn't there, Conflict where there are too many."""
        if len(self._taps) >= limits.TAPS:
            raise Conflict(f"there are {limits.TAPS} taps already; remove one that isn't needed")
        _walk(asked.walk, places)
        if asked.source not in set(places.sources(asked.walk)):
            advice = nearest(asked.source, places.sources(asked.walk))
            raise _unknown("/source", f"no edge of the Walk `{asked.walk}` comes from `{asked.source}`; {advice}")
        targets = list(places.targets(asked.walk, asked.source))
        if asked.to and asked.to not in targets:
            advice = nearest(asked.to, targets)
            message = f"no edge of the Walk `{asked.walk}` goes from `{asked.source}` to `{asked.to}`; {advice}"
            raise _unknown("/to", message)
        fields = asked.model_dump(exclude={"seconds", "run"})
        place = Tap(id=_new_id("tap"), run=RunId(asked.run) if asked.run else None, **fields)
        self._taps[place.id] = _Armed(place, time.time() + asked.seconds)
        return place.id

    def stop_at(self, asked: BreakRequest, places: Places) -> str:
        """Its id. Raises as `tap` does."""
        if len(self._breaks) >= limits.BREAKPOINTS:
            raise Conflict(f"there are {limits.BREAKPOINTS} breakpoints already; remove one that isn't needed")
        _walk(asked.walk, places)
        if asked.use not in set(places.uses(asked.walk)):
            advice = nearest(asked.use, places.uses(asked.walk))
            raise _unknown("/use", f"the Walk `{asked.walk}` has no use `{asked.use}`; {advice}")
        if asked.iteration is not None and not places.in_loop(asked.walk, asked.use):
            raise _unknown("/iteration", f"no loop is around `{asked.use}`; leave this out", "bad_value")
        fields = asked.model_dump(exclude={"seconds", "run"})
        place = Break(id=_new_id("break"), run=RunId(asked.run) if asked.run else None, **fields)
        self._breaks[place.id] = _Armed(place, time.time() + asked.seconds)
        return place.id

    def tap_shown(self, id_: str, places: Places) -> answers.Tap:
        return answers.Tap(**_shown(self._taps[id_], places))

    def break_shown(self, id_: str, places: Places) -> answers.Breakpoint:
        return answers.Breakpoint(**_shown(self._breaks[id_], places))

    def change_tap(self, id_: str, interval: float) -> None:
        """`interval`: seconds between two samples of a rank. Raises NotFound."""
        armed = self._taps.get(id_)
        if armed is None:
            raise _gone("tap", id_)
        self._taps[id_] = armed._replace(place=msgspec.structs.replace(armed.place, interval=interval))

    def remove_tap(self, id_: str) -> None:
        """Raises NotFound."""
        if self._taps.pop(id_, None) is None:
            raise _gone("tap", id_)

    def remove_break(self, id_: str) -> None:
        """Raises NotFound."""
        if self._breaks.pop(id_, None) is None:
            raise _gone("breakpoint", id_)

    def keep_where(self, places: Places) -> bool:
        """Forget what a new version has no place for; whether there was any."""
        return self._keep(lambda armed: places.has(armed.place))

    def run_ended(self, run: str) -> bool:
        """Forget what was asked for this run alone; whether there was any."""
        return self._keep(lambda armed: armed.place.run != run)

    def expire(self, now: float) -> bool:
        """Forget what is over; whether there was any. `now`: seconds since 1970."""
        return self._keep(lambda armed: armed.expires_at > now)

    @property
    def places(self) -> int:
        """How many taps and breakpoints there are."""
        return len(self._taps) + len(self._breaks)

    @property
    def next_end(self) -> float | None:
        """When the next tap or breakpoint expires."""
        return min((armed.expires_at for armed in self._all()), default=None)

    def _all(self) -> Iterable[_Armed]:
        yield from self._taps.values()
        yield from self._breaks.values()

    def _keep(self, wanted: Callable[[_Armed], bool]) -> bool:
        before = self.places
        self._taps = {key: armed for key, armed in self._taps.items() if wanted(armed)}
        self._breaks = {key: armed for key, armed in self._breaks.items() if wanted(armed)}
        return self.places < before


def _shown(armed: _Armed, places: Places | None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(armed.place)
    del fields["type"]
    inside = places is not None and places.inside(armed.place)
    return {**fields, "expires_at": armed.expires_at, "inside": inside}


def _walk(name: str, places: Places) -> None:
    if name not in set(places.walks):
        raise _unknown("/walk", f"the graph has no Walk `{name}`; {nearest(name, places.walks)}")


def _unknown(pointer: str, message: str, code: str = "unknown_name") -> Unprocessable:
    return Unprocessable(message, [Fault(pointer, code, message)])


def _gone(kind: str, id_: str) -> NotFound:
    return NotFound(f"there is no {kind} `{id_[:64]}`: it has expired, or was removed; set it anew")


def _new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(4)}"
