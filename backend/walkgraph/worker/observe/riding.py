"""Who rides in launches of loops, as telemetry names them. The same ones ride again and again, so that what was found
for them is kept."""

from collections.abc import Sequence
from typing import NamedTuple

from walkgraph.engine.loops.riders import Rider
from walkgraph.ids import RunId


class Columns(NamedTuple):
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]


class Uses(NamedTuple):
    """Of a launch, each once."""

    names: tuple[str, ...]
    nodes: tuple[str, ...]


class Party:
    """Riders whose loops have one name, in one Walk."""

    def __init__(self, walk: str, loop: str, riders: Sequence[Rider]) -> None:
        self.walk, self.loop, self.riders = walk, loop, riders
        self._columns: Columns | None = None
        self._spans: bool | None = None
        self._uses: dict[tuple[int, ...], Uses] = {}

    def has(self, rider: Rider) -> bool:
        """Of a launch of this party."""
        return (rider.call.walk, rider.call.loop) == (self.walk, self.loop)

    def uses(self, places: tuple[int, ...]) -> Uses:
        """Those at these places of the body."""
        found = self._uses.get(places)
        if found is None:
            uses = self.riders[0].call.spec.uses
            names = tuple(dict.fromkeys([uses[place].name for place in places]))
            found = self._uses[places] = Uses(names, tuple(dict.fromkeys([uses[place].node for place in places])))
        return found

    @property
    def spans(self) -> bool:
        """Loops of one body do so alike."""
        if self._spans is None:
            self._spans = self.riders[0].call.spans
        return self._spans

    @property
    def columns(self) -> Columns:
        if self._columns is None:
            calls = [rider.call for rider in self.riders]
            self._columns = Columns(
                tuple([RunId(call.run) for call in calls]),
                tuple([call.walk for call in calls]),
                tuple([call.step for call in calls]),
                tuple([call.iteration for call in calls]),
            )
        return self._columns


class Parties:
    def __init__(self) -> None:
        self._riders: list[Rider] = []
        self._found: list[Party] = []

    def of(self, riders: Sequence[Rider]) -> Sequence[Party]:
        """Loops of one body may have several names. The same objects as the last time, if the riders are."""
        if self._riders != riders:
            self._riders = list(riders)
            named: dict[tuple[str, str], list[Rider]] = {}
            for rider in riders:
                named.setdefault((rider.call.walk, rider.call.loop), []).append(rider)
            self._found = [Party(walk, loop, found) for (walk, loop), found in named.items()]
        return self._found

    def forget(self) -> None:
        """Riders hold what their rows were entered with: it is kept from nobody."""
        self._riders, self._found = [], []
