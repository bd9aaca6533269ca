"""Who rides in launches of loops, as telemetry names them. The same ones ride again and again, so that what was found
for them is kept."""

from collections.abc import Sequence
from typing import NamedTuple

from walkgraph.engine.riders import Rider
from walkgraph.ids import RunId


class Columns(NamedTuple):
    runs: tuple[RunId, ...]
    walks: tuple[str, ...]
    steps: tuple[int, ...]
    outer: tuple[tuple[int, ...], ...]


class Party:
    """Riders whose loops have one name."""

    def __init__(self, loop: str, riders: Sequence[Rider]) -> None:
        self.loop, self.riders = loop, riders
        self._columns: Columns | None = None

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
            names = dict.fromkeys([rider.call.loop for rider in riders])
            self._found = [Party(name, [rider for rider in riders if rider.call.loop == name]) for name in names]
        return self._found

    def forget(self) -> None:
        """Riders hold what their rows were entered with: it is kept from nobody."""
        self._riders, self._found = [], []
