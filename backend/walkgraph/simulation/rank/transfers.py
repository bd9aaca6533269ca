"""Moves of states between simulated ranks: whole, or in parts of a page while they grow."""

from typing import Any

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.simulation.rank.states import PAGE_TOKENS, Contents, StateStore
from walkgraph.simulation.simulator import Simulator

EVICTED = 0.2
"""Share of the offers of which a receiver has less than it had before."""


class SimulatedTransfers:
    """The counterpart of `engine.kv.transfer.StateTransfer` for a `StateStore`."""

    def __init__(self, simulator: Simulator, states: StateStore) -> None:
        self._simulator, self._states = simulator, states

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None:
        self._states.renew(target, source)

    def export(self, key: StateKey) -> Contents:
        self._states.before_use((key,))
        return self._states.read(key) or {}

    def import_state(self, key: StateKey, value: Contents, arriving: StateKey | None = None) -> None:
        if arriving is not None and "since" in value:
            value = {**value["rest"], "tokens": self._behind(arriving, key, value)}
            self._states.drop((arriving,))
        self._states.drop((key,))
        if value:
            self._states.write(key, value)

    def departure(self, key: StateKey) -> Departure:
        return Departure(key, len(self._tokens(key)))

    def part(self, departure: Departure, *, last: bool) -> LeavingPart | None:
        key = departure.key
        if last:
            self._states.before_use((key,))
        contents = self._states.read(key)
        if contents is None or key.state not in self._states.paged:
            return LeavingPart(contents or {}, last=True) if last else None
        tokens = self._followed(departure)
        there = min(departure.before, len(tokens))
        if there and departure.begins:
            departure.offered = True
            return LeavingPart({"names": tokens[:there]}, offers=True)
        gone = departure.tokens[0]
        more = tokens[gone : gone + PAGE_TOKENS]
        departure.tokens[0] += len(more)
        part: dict[str, Any] = {"since": gone, "tokens": more}
        if last and gone + len(more) == len(tokens):
            return LeavingPart(
                {**part, "rest": {name: one for name, one in contents.items() if name != "tokens"}}, last=True
            )
        self._simulator.counts["parts of states"] += bool(more)
        return LeavingPart(part) if more else None

    def take_part(self, arriving: StateKey, target: StateKey, value: Contents) -> int:
        tokens = (
            self._found(arriving, target, value["names"]) if "names" in value else self._behind(arriving, target, value)
        )
        if tokens:
            self._states.write(arriving, {"tokens": tokens})
        return len(tokens)

    def _followed(self, departure: Departure) -> list[int]:
        """The content of the state; if it doesn't begin with what has left, it was replaced, and leaves anew."""
        tokens, known = self._tokens(departure.key), departure.of
        gone = departure.tokens[0] if departure.tokens else 0
        if not isinstance(known, list) or tokens[:gone] != known[:gone]:
            departure.tokens, departure.offered = [0], False
        departure.of = tokens
        return tokens

    def _found(self, arriving: StateKey, target: StateKey, names: list[int]) -> list[int]:
        """The first of the offered tokens, as far as they are those that were here before and weren't evicted."""
        known, simulator = self._tokens(target), self._simulator
        held = next((i for i, pair in enumerate(zip(known, names, strict=False)) if pair[0] != pair[1]), len(known))
        held = min(held, len(names))
        if simulator.chance.random() < EVICTED:
            held = simulator.chance.randrange(held + 1)
        self._states.drop((arriving, target))
        simulator.counts["tokens that a receiver had"] += held
        return names[:held]

    def _behind(self, arriving: StateKey, target: StateKey, value: Contents) -> list[int]:
        """The content that has come, with these tokens behind it."""
        if not value["since"]:
            self._states.drop((arriving, target))
        before = self._tokens(arriving)
        if len(before) != value["since"]:
            what = f"`{target.state}` comes behind token {value['since']}, and {len(before)} are there"
            raise self._simulator.fail(f"a part of {what}", arriving.run)
        return [*before, *value["tokens"]]

    def _tokens(self, key: StateKey) -> list[int]:
        return [*(self._states.read(key) or {}).get("tokens", ())]
