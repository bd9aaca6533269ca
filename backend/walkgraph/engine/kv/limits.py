"""Limits on the paged states of a run: the tokens that they hold, and the runs that they share pages with."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.errors import InvalidInput
from walkgraph.graph.language.expressions import parse
from walkgraph.placement.capacity.demand import state_tokens
from walkgraph.placement.tables import StatePlan

_REMEMBERED = 8192
"""The most runs and sessions whose limits are remembered. Sessions end without notice, so the oldest are forgotten."""


class StateLimits:
    """The limits of the runs of one rank. A run that was not admitted is limited only by its pools."""

    def __init__(
        self, states: Sequence[StatePlan] = (), pools: Collection[str] = (), *, shared_pages: bool = False
    ) -> None:
        """`states`: those of the plan. `pools`: names of the states that have a pool on this rank. `shared_pages`: all
        runs share pages, whatever their salts."""
        self._pools, self._shared = pools, shared_pages
        self._states = {state.name: state for state in states if state.capacity is not None}
        self._params: OrderedDict[str, Mapping[str, Scalar]] = OrderedDict()
        self._most: dict[str, dict[str, int | None]] = {}
        """Run -> state -> its limit, once somebody has asked for it: a run may use few of a graph's states."""
        self._salts: dict[str, str] = {}
        self._forgot = False
        """Some that may still run were forgotten."""

    def admit(self, run: str, params: Mapping[str, Scalar], salt: str = "") -> None:
        """Limit the states of a run (or of a session) to their capacities under these parameters, so that pages
        promised to others stay free. `salt`: whose run it is, so that it shares pages and kept calls with that owner's
        runs alone."""
        self._params[run] = params
        self._params.move_to_end(run)
        self._most[run] = {}
        self._salts[run] = salt
        if len(self._params) > _REMEMBERED:
            self.forget(next(iter(self._params)))
            self._forgot = True

    def most(self, key: StateKey) -> int | None:
        """The most tokens that a state may hold, in all its sequences; None if it has no limit."""
        limits = self._most.get(key.run)
        if limits is None:
            return None
        if key.state not in limits:
            limits[key.state] = self._limit(key.state, self._params[key.run])
        return limits[key.state]

    def _limit(self, name: str, params: Mapping[str, Scalar]) -> int | None:
        state = self._states.get(name)
        if state is None or name not in self._pools:
            return None
        # A task that lacks a parameter of the expression doesn't use the state.
        with suppress(InvalidInput):
            return state_tokens(name, state.capacity, state.width, params)
        return None

    def advice(self, key: StateKey) -> str:
        """Advice for a client whose state is full: the parameters that its capacity follows from."""
        state = self._states.get(key.state)
        names = sorted(parse(state.capacity).names) if state is not None and state.capacity is not None else []
        raised = " or ".join(f"`{name}`" for name in names) or "its `capacity`"
        return f"raise {raised} or, in a session, start a new one"

    def salt(self, run: str) -> str:
        """The beginning of the prefix keys of a run's states, beside the operator. A run that was forgotten shares with
        nobody."""
        return "" if self._shared else self.owner(run)

    def owner(self, run: str) -> str:
        """Whose run it is, for what is kept of its calls. A run that was forgotten is its own owner."""
        return self._salts.get(run, run if self._forgot else "")

    def forget(self, run: str) -> None:
        self._params.pop(run, None)
        self._most.pop(run, None)
        self._salts.pop(run, None)
