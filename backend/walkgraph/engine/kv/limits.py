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
        self._states, self._pools, self._shared = states, pools, shared_pages
        self._most: OrderedDict[str, Mapping[str, int]] = OrderedDict()
        self._salts: dict[str, str] = {}
        self._forgot = False
        """Some that may still run were forgotten."""

    def admit(self, run: str, params: Mapping[str, Scalar], salt: str = "") -> None:
        """Limit the states of a run (or of a session) to their capacities under these parameters, so that pages
        promised to others stay free. `salt`: whose run it is, so that it shares pages and kept calls with that owner's
        runs alone."""
        most: dict[str, int] = {}
        for state in self._states:
            if state.capacity is not None and state.name in self._pools:
                # A task that lacks a parameter of the expression doesn't use the state.
                with suppress(InvalidInput):
                    most[state.name] = state_tokens(state.name, state.capacity, state.width, params)
        self._most[run] = most
        self._most.move_to_end(run)
        self._salts[run] = salt
        if len(self._most) > _REMEMBERED:
            self._salts.pop(self._most.popitem(last=False)[0], None)
            self._forgot = True

    def most(self, key: StateKey) -> int | None:
        """The most tokens that a state may hold, in all its sequences; None if it has no limit."""
        return self._most.get(key.run, {}).get(key.state)

    def advice(self, key: StateKey) -> str:
        """Advice for a client whose state is full: the parameters that its capacity follows from."""
        capacity = next((state.capacity for state in self._states if state.name == key.state), None)
        names = sorted(parse(capacity).names) if capacity is not None else []
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
        self._most.pop(run, None)
        self._salts.pop(run, None)
