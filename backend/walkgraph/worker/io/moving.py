"""Moves of states within and between ranks: performs commands on the engine, and returns what follows.

A state that grows leaves for another rank in parts, of which a few may be on their way at once:

    BeginMove ──> PartLeaves ... LetPart ──> PartLeaves ... MoveState (export) ──> CallDone, with the last part
    TakePart ──> PartStored                                 MoveState (import) ──> CallDone
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.engine.failures import is_memory
from walkgraph.engine.kv.departure import Departure, LeavingPart
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.worker.events import (
    BeginMove,
    CallDone,
    LetPart,
    MoveState,
    PartLeaves,
    PartStored,
    Ref,
    StateMove,
    TakePart,
)

PARTS = 4
"""The most parts of a state that are on their way at once. What grows meanwhile leaves with the next one."""

T = TypeVar("T")
Followed = CallDone | PartLeaves | PartStored


class StateMover(Protocol):
    """The engine's state transfers, as far as they are needed here."""

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None: ...

    def export(self, key: StateKey) -> Mapping[str, Any]: ...

    def departure(self, key: StateKey) -> Departure: ...

    def part(self, departure: Departure, *, last: bool) -> LeavingPart | None: ...

    def take_part(self, arriving: StateKey, target: StateKey, value: Mapping[str, Any]) -> int: ...

    def import_state(self, key: StateKey, value: Mapping[str, Any], arriving: StateKey | None = None) -> None: ...


@dataclass(slots=True)
class _OpenMove:
    """A state that leaves in parts."""

    departure: Departure
    credit: int = PARTS
    asked: bool = False
    """The receiver has not yet answered an offer."""
    ends: bool = False
    """The export has come: the state grows no more."""


class StateMoves:
    """The moves of states of one rank."""

    def __init__(self, states: StateMover, away: Callable[[str], bool], fail: Callable[[str, ErrorInfo], None]) -> None:
        """`away`: true for runs that are suspended. `fail` ends a run."""
        self._states, self._away, self._fail = states, away, fail
        self._leaving: dict[Ref, _OpenMove] = {}

    @property
    def leaving(self) -> int:
        """The number of states that leave in parts."""
        return len(self._leaving)

    def perform(self, command: StateMove) -> Iterator[Followed]:
        match command:
            case BeginMove():
                self._leaving[command.ref] = _OpenMove(self._states.departure(command.source))
            case LetPart(ref=ref) if ref in self._leaving:
                one = self._leaving[ref]
                one.credit += 1
                if one.asked:
                    one.departure.answer(command.held)
                    one.asked = False
                yield from self._advanced(ref, one)
            case LetPart():
                pass
            case MoveState(op="export", ref=ref) if ref in self._leaving:
                self._leaving[ref].ends = True
                yield from self._advanced(ref, self._leaving[ref])
            case MoveState():
                yield self._moved(command)
            case TakePart():
                yield from self._taken(command)

    def grown(self) -> Iterator[Followed]:
        """Parts of states that have grown."""
        for ref, one in list(self._leaving.items()):
            if not self._away(ref.run):
                yield from self._advanced(ref, one)

    def forget(self, run: str) -> None:
        for ref in [ref for ref in self._leaving if ref.run == run]:
            del self._leaving[ref]

    def _advanced(self, ref: Ref, one: _OpenMove) -> Iterator[PartLeaves | CallDone]:
        while one.credit and not one.asked:
            part, error = _attempted(partial(self._states.part, one.departure, last=one.ends))
            if error is not None:
                del self._leaving[ref]
                self._fail(ref.run, error)
            if part is None:
                return
            if part.last:
                del self._leaving[ref]
                yield CallDone(ref, {"state": part.value})
                return
            one.credit -= 1
            one.asked = part.offers
            yield PartLeaves(ref, part.value)

    def _taken(self, command: TakePart) -> Iterator[PartStored]:
        take = partial(self._states.take_part, command.arriving, command.target, command.value)
        held, error = _attempted(take)
        if error is not None:
            self._fail(command.run, error)
        if held is not None:
            yield PartStored(command.run, command.step, command.rank, held)

    def _moved(self, command: MoveState) -> CallDone:
        """Perform a whole move. A failure ends only its run."""
        outputs, error = _attempted(partial(self._outputs, command))
        return CallDone(command.ref, outputs, error)

    def _outputs(self, command: MoveState) -> dict[str, Any]:
        if command.op == "fork" and command.source and command.target:
            self._states.fork(command.source, command.target, command.width)
        elif command.op == "export" and command.source:
            return {"state": self._states.export(command.source)}
        elif command.target and isinstance(command.value, Mapping):
            self._states.import_state(command.target, command.value, command.source)
        return {}


def _attempted(act: Callable[[], T]) -> tuple[T | None, ErrorInfo | None]:
    """Return what an act gives, or the error of the run whose states can't be moved. Raises whatever is no fault of a
    run."""
    try:
        return act(), None
    except WalkgraphError as error:
        return None, error.info()
    except CallFailed as failed:
        return None, ErrorInfo(code=failed.code, message=str(failed))
    except Exception as raised:
        if not is_memory(raised):
            raise
        message = "the rank has too little memory to move a state; try again when other runs have ended"
        return None, ErrorInfo(code="out_of_memory", message=message, retryable=True)
