"""Finds the states of a loop whose appended tokens the host learns, so that other runs can find their pages."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from walkgraph.engine.kv.paged_state import NamedTokens
from walkgraph.engine.loops.body import Body
from walkgraph.engine.loops.loop_runs import LoopRun
from walkgraph.engine.loops.spec import LoopSource


class NamedState(NamedTuple):
    """A state to which a single use appends one token in an iteration: one that the host learns, because it is an
    output of the iteration before and goes to the host."""

    use: int
    source: LoopSource
    """The source of the token."""
    key: str
    """The output of the loop that holds it."""


def named_states(body: Body) -> Mapping[str, NamedState]:
    to_host = {(out.use, out.port): out.key for out in body.spec.outputs if out.kind != "last"}
    found: dict[str, NamedState] = {}
    for index, use in enumerate(body.uses):
        for slot, port in use.spec.names.items():
            state, source = use.states.get(slot, ""), use.sources.get(port)
            alone = [one for one in body.uses if state in one.grows] == [use]
            key = to_host.get(source.place) if source and source.place and source.kind == "carried" else None
            if source and key and alone and body.width(state) == 1 and state not in body.anew:
                found[state] = NamedState(index, source, key)
    return found


def appended_tokens(body: Body, named: NamedState | None, run: LoopRun, first: int) -> NamedTokens | None:
    """The tokens that a run's iterations from `first` on have appended to a state; None if not all are known."""
    if named is None:
        return None
    entered = named.source.given(run.call.values)
    there = isinstance(entered, Tensor) and entered.device.type == "cpu" and entered.numel() == 1
    told: Sequence[int | None] = run.told.get(named.key, ())
    ids = [int(entered) if there else None, *told][first : run.done]
    known = [one for one in ids if one is not None]
    return NamedTokens(body.uses[named.use].operator, known) if len(known) == run.done - first else None
