"""States of the runs of one simulated rank, and the cache pages that they take."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.simulation.simulator import Simulator

PAGE_TOKENS = 4
"""Small, so that short runs take several pages."""

Contents = Mapping[str, Any]
"""Contents of one state; never changed in place, so that forks can share them."""


class OwnerLimits(StateLimits):
    """Knows the owner of every run, also of one that is over. There are no limits on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._owners: dict[str, str] = {}

    def admit(self, run: str, params: Mapping[str, Scalar], salt: str = "") -> None:
        self._owners[run] = salt

    def owner(self, run: str) -> str:
        return self._owners[run]


class StateStore:
    """Implements `worker.interfaces.StateTableLike` and `PoolsLike`."""

    def __init__(self, simulator: Simulator, paged: tuple[str, ...], pages: int) -> None:
        """`paged`: names of states that take pages."""
        self.total, self.limits = pages, OwnerLimits()
        self.paged, self._simulator = paged, simulator
        self._here: dict[StateKey, Contents] = {}
        self._away: dict[str, dict[StateKey, Contents]] = {}
        """States of suspended runs."""
        self._taken = 0
        self.before_use: Callable[[Iterable[StateKey]], None] = lambda keys: None
        """As that of `engine.kv.states.StateTable`."""

    def read(self, key: StateKey) -> Contents | None:
        return self._here.get(key)

    def write(self, key: StateKey, contents: Contents) -> None:
        self._give(key)
        self._here[key] = contents
        self._taken += self._pages(key, contents)
        if self._taken > self.total:
            raise self._simulator.fail(
                f"`{key.state}` needs a page and none is free, though its run was admitted", key.run
            )

    def drop(self, keys: Iterable[StateKey]) -> None:
        keys = tuple(keys)
        self.before_use(keys)
        for key in keys:
            self._give(key)

    def drop_run(self, run: str) -> None:
        self._away.pop(run, None)
        self.drop([key for key in self._here if key.run == run])

    def renew(self, key: StateKey, source: StateKey | None) -> None:
        """Replaces a state by a copy of `source`, or empties it."""
        self.before_use((key,) if source is None else (source, key))
        found = self._here.get(source) if source is not None else None
        self.drop((key,))
        if found is not None:
            self.write(key, found)

    def glance(self, key: StateKey) -> None:
        """Does nothing: a simulated state has nothing to show."""

    def audit(self) -> None:
        """Checks that no page is taken if there is no run."""
        if not self.runs and self._taken:
            raise self._simulator.fail(f"{self._taken} pages are taken and no state holds them")

    def count(self, what: str, times: int) -> None:
        """Counts occurrences in the functions of nodes."""
        self._simulator.counts[what] += times

    # ── suspended runs ──

    def move_out(self, run: str) -> None:
        keys = [key for key in self._here if key.run == run]
        self._away[run] = {key: self._here[key] for key in keys}
        self.drop(keys)

    def move_back(self, run: str) -> None:
        for key, contents in self._away.pop(run).items():
            self.write(key, contents)

    # ── pages ──

    def pages(self) -> tuple[int, int]:
        """(free, total) pages."""
        return self.total - self._taken, self.total

    @property
    def runs(self) -> set[str]:
        return {key.run for key in self._here} | self._away.keys()

    def _give(self, key: StateKey) -> None:
        contents = self._here.pop(key, None)
        if contents is not None:
            self._taken -= self._pages(key, contents)

    def _pages(self, key: StateKey, contents: Contents) -> int:
        return -(-len(contents.get("tokens", ())) // PAGE_TOKENS) if key.state in self.paged else 0
