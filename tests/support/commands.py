"""A worker's loop, as it deals with the commands that are its engine's, for deployments without loops and processes."""

from __future__ import annotations

from collections.abc import Sequence

from walkgraph.engine.engine import Engine
from walkgraph.worker.events import (
    Allow,
    BeginMove,
    Command,
    DropStates,
    Event,
    FreeLoops,
    HoldLoops,
    LetPart,
    MoveState,
    Release,
    RunCall,
    RunLoop,
    TakePart,
)
from walkgraph.worker.io.moving import StateMoves


def performed(command: Command, engine: Engine, moves: StateMoves) -> Sequence[Event] | None:
    """Perform a command and return the events that follow; None for one that isn't the engine's."""
    match command:
        case RunCall(call=call):
            engine.add(call)
        case RunLoop(call=loop):
            engine.add_loop(loop)
        case Allow(ref=ref, upto=upto, items=items, fed=fed):
            engine.loops.allow(ref.run, ref.step, ref.use, ref.iteration, upto, items, fed)
        case MoveState() | BeginMove() | LetPart() | TakePart():
            return [*moves.perform(command)]
        case HoldLoops(run=run):
            engine.holds.hold_loops(run)
        case FreeLoops(run=run):
            engine.holds.release_loops(run)
        case DropStates(keys=keys):
            engine.states.drop(keys)
        case Release(run=run):
            moves.forget(run)
            engine.drop(run)
        case _:
            return None
    return ()
