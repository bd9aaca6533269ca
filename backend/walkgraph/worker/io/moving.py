"""Moves of states within and between ranks: performs a command on the engine, and returns the result."""

from collections.abc import Mapping
from typing import Any, Protocol

from walkgraph.abi.calls import StateKey
from walkgraph.engine.failures import is_memory
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.worker.events import CallDone, MoveState


class StateMover(Protocol):
    """The engine's state transfers, as far as they are needed here."""

    def fork(self, source: StateKey, target: StateKey, width: int | None = None) -> None: ...

    def export(self, key: StateKey) -> Mapping[str, Any]: ...

    def import_state(self, key: StateKey, value: Mapping[str, Any]) -> None: ...


def move(states: StateMover, command: MoveState) -> CallDone:
    """Perform a move. A failure ends only its run."""
    outputs: dict[str, Any] = {}
    try:
        if command.op == "fork" and command.source and command.target:
            states.fork(command.source, command.target, command.width)
        elif command.op == "export" and command.source:
            outputs["state"] = states.export(command.source)
        elif command.target and isinstance(command.value, Mapping):
            states.import_state(command.target, command.value)
    except WalkgraphError as error:
        return CallDone(command.ref, error=error.info())
    except Exception as raised:
        if not is_memory(raised):
            raise
        message = "the rank has too little memory to move a state; try again when other runs have ended"
        return CallDone(command.ref, error=ErrorInfo(code="out_of_memory", message=message, retryable=True))
    return CallDone(command.ref, outputs)
