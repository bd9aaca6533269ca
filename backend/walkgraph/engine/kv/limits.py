"""How many tokens the paged states of a run may hold."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.errors import InvalidInput
from walkgraph.placement.capacity.demand import state_tokens
from walkgraph.placement.tables import StatePlan

_REMEMBERED = 8192
"""Runs and sessions whose limits are remembered: sessions end without a word, so the oldest are forgotten."""


class StateLimits:
    """The limits of the runs of one rank. A run that was not admitted has none but the pools'."""

    def __init__(self, states: Sequence[StatePlan] = (), pools: Collection[str] = ()) -> None:
        """`states`: the plan's. `pools`: names of the states that have a pool on this rank."""
        self._states, self._pools = states, pools
        self._most: OrderedDict[str, Mapping[str, int]] = OrderedDict()

    def admit(self, run: str, params: Mapping[str, Scalar]) -> None:
        """Hold a run (or the owner of a session's states) to its states' capacities, by the task's parameters: what was
        promised to others stays theirs."""
        most: dict[str, int] = {}
        for state in self._states:
            if state.capacity is not None and state.name in self._pools:
                # Where the task lacks a parameter of the expression, it doesn't use the state either.
                with suppress(InvalidInput):
                    most[state.name] = state_tokens(state.name, state.capacity, state.width, params)
        self._most[run] = most
        self._most.move_to_end(run)
        if len(self._most) > _REMEMBERED:
            self._most.popitem(last=False)

    def most(self, key: StateKey) -> int | None:
        """Tokens that a state may hold at most, in all its sequences; None: it has no limit."""
        return self._most.get(key.run, {}).get(key.state)

    def forget(self, run: str) -> None:
        self._most.pop(run, None)
