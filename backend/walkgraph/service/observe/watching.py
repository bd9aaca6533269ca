"""The telemetry level, taps and breakpoints of a deployment. Taps and breakpoints expire. They outlive the deployment's
processes, and a switch if the new version still has their places."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
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
    """Seconds since 1970, for people: the wall clock may jump."""
    ends: float
    """By the monotonic clock."""


class Watched:
    """The level, taps and breakpoints of one deployment."""

    def __init__(self, level: Level) -> None:
        self.level: Level = level
        self._taps: dict[str, _Armed] = {}
        self._breaks: dict[str, _Armed] = {}

    def message(self, places: Places) -> m.Watch:
        """The message to a version's processes, with the taps and breakpoints that it has places for."""
        found = [armed.place for armed in self._all() if places.has(armed.place)]
        return m.Watch(
            level=self.level,
            taps=tuple(place for place in found if isinstance(place, Tap)),
            breaks=tuple(place for place in found if isinstance(place, Break)),
        )

    def public(self, places: Places | None) -> answers.Watch:
        """The answer for clients. `places`: of the serving version; None while that is judged."""
        return {
            "level": self.level,
            "taps": [answers.Tap(**_shown(armed, places)) for armed in self._taps.values()],
            "breakpoints": [answers.Breakpoint(**_shown(armed, places)) for armed in self._breaks.values()],
        }

    def tap(self, asked: TapRequest, places: Places) -> str:
        """Adds a tap and returns its id. Raises Unprocessable if the place doesn't exist, Conflict if there are too
        many taps."""
        _check_count(self._taps, limits.TAPS, "taps")
        _check_name("/walk", asked.walk, places.walks, f"the graph has no Walk `{asked.walk}`")
        message = f"no edge of the Walk `{asked.walk}` comes from `{asked.source}`"
        _check_name("/source", asked.source, places.sources(asked.walk), message)
        if asked.to:
            message = f"no edge of the Walk `{asked.walk}` goes from `{asked.source}` to `{asked.to}`"
            _check_name("/to", asked.to, places.targets(asked.walk, asked.source), message)
        place = Tap(**_fields(asked, "tap"))
        self._taps[place.id] = _armed(place, asked.seconds)
        return place.id

    def stop_at(self, asked: BreakRequest, places: Places) -> str:
        """Adds a breakpoint and returns its id. Raises as `tap` does."""
        _check_count(self._breaks, limits.BREAKPOINTS, "breakpoints")
        _check_name("/walk", asked.walk, places.walks, f"the graph has no Walk `{asked.walk}`")
        _check_name("/use", asked.use, places.uses(asked.walk), f"the Walk `{asked.walk}` has no use `{asked.use}`")
        if asked.iteration is not None and not places.in_loop(asked.walk, asked.use):
            raise _unknown("/iteration", f"no loop is around `{asked.use}`; leave this out", "bad_value")
        place = Break(**_fields(asked, "break"))
        self._breaks[place.id] = _armed(place, asked.seconds)
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
        """Drops taps and breakpoints whose places a new version lacks. Returns True if there were any."""
        return self._keep(lambda armed: places.has(armed.place))

    def run_ended(self, run: str) -> bool:
        """Drops the taps and breakpoints of this run. Returns True if there were any."""
        return self._keep(lambda armed: armed.place.run != run)

    def expire(self, now: float) -> bool:
        """Drops expired taps and breakpoints. Returns True if there were any. `now`: by the monotonic clock."""
        return self._keep(lambda armed: armed.ends > now)

    @property
    def places(self) -> int:
        """Number of taps and breakpoints."""
        return len(self._taps) + len(self._breaks)

    @property
    def next_end(self) -> float | None:
        """When the next tap or breakpoint expires, by the monotonic clock."""
        return min((armed.ends for armed in self._all()), default=None)

    def _all(self) -> Iterable[_Armed]:
        yield from self._taps.values()
        yield from self._breaks.values()

    def _keep(self, wanted: Callable[[_Armed], bool]) -> bool:
        before = self.places
        self._taps = {key: armed for key, armed in self._taps.items() if wanted(armed)}
        self._breaks = {key: armed for key, armed in self._breaks.items() if wanted(armed)}
        return self.places < before


def _armed(place: Tap | Break, seconds: float) -> _Armed:
    return _Armed(place, time.time() + seconds, time.monotonic() + seconds)


def _shown(armed: _Armed, places: Places | None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(armed.place)
    del fields["type"]
    inside = places is not None and places.inside(armed.place)
    return {**fields, "expires_at": armed.expires_at, "inside": inside}


def _check_name(pointer: str, name: str, names: Iterable[str], message: str) -> None:
    known = list(names)
    if name not in known:
        raise _unknown(pointer, f"{message}; {nearest(name, known)}")


def _unknown(pointer: str, message: str, code: str = "unknown_name") -> Unprocessable:
    return Unprocessable(message, [Fault(pointer, code, message)])


def _gone(kind: str, id_: str) -> NotFound:
    return NotFound(f"there is no {kind} `{id_[:64]}`: it has expired, or was removed; set it anew")


def _check_count(armed: Mapping[str, _Armed], most: int, kind: str) -> None:
    if len(armed) >= most:
        raise Conflict(f"there are {most} {kind} already; remove one that isn't needed")


def _fields(asked: TapRequest | BreakRequest, kind: str) -> dict[str, Any]:
    """Fields of a new tap or breakpoint, with a new id."""
    run = RunId(asked.run) if asked.run else None
    return {**asked.model_dump(exclude={"seconds"}), "id": f"{kind}-{secrets.token_hex(4)}", "run": run}
