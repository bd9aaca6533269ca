"""The itinerary of a run: its task's state machine, expanded for one request.

All steps are known before the run starts, because they depend only on parameters, on the modalities of the parts and on
the roles of the turns. Of a choice by a result all branches are there, and the ranks take one when they know the
result. Of a loop of steps all passes are there: what a run may need is known at its admission, but the ranks get them
leg by leg. Of a task that waits for a person, the steps up to the first approval are there, and those behind it once
the person has decided. Unneeded steps are left out; needed are the wanted outputs, a session's states, what a person is
shown, and everything they depend on.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import Graph, Task
from walkgraph.graph.problems import nearest
from walkgraph.graph.steps import approvals_of, loops_of
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.expansion.approving import replay
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.expansion.needed import needed
from walkgraph.placement.expansion.state_machine import Expansion
from walkgraph.placement.moves import Key, Moves
from walkgraph.placement.request import Given, InputPart, fill_params, name_inputs, task_of
from walkgraph.placement.tables import Itinerary, LegAnswer, Plan, Scalar


class Expanded(NamedTuple):
    """A request's steps."""

    itinerary: Itinerary
    """With all passes of its loops, up to the next approval."""
    needed: frozenset[Key] | None
    """The steps that it needs, if it goes leg by leg."""


class Resumed(NamedTuple):
    """A request that goes on behind an approval."""

    answers: Sequence[LegAnswer] = ()
    """The answers to its legs so far; the last is a person's decision."""
    texts: Mapping[str, str] = {}
    """Kept results as cases name them: those by which the steps so far were decided, and those that are kept now."""


def expand(
    graph: Graph,
    plan: Plan,
    task: str,
    params: Mapping[str, Scalar],
    inputs: Mapping[str, Sequence[Any]],
    parts: Sequence[InputPart] = (),
    outputs: Sequence[str] | None = None,
) -> Itinerary:
    """The steps of one request, as if no `until` of its loops were true, and no person refused. `params`: as the client
    gave them, or filled in with `seed`. `outputs`: None for all.

    Raises InvalidInput or NotFound with a pointer into the request (`/params/steps`, `/inputs/image`, `/parts/2`).
    """
    found = task_of(graph, task)
    given = name_inputs(found, inputs, parts)
    return expanded_request(Facts(plan), found, params, given, outputs, whole=True).itinerary


def expanded_request(
    facts: Facts,
    task: Task,
    params: Mapping[str, Scalar],
    given: tuple[Given, ...],
    outputs: Sequence[str] | None,
    resumed: Resumed | None = None,
    *,
    whole: bool = False,
) -> Expanded:
    """The steps of one request. Raises as `expand` does. `whole`: those behind approvals too."""
    plan, wanted = facts.plan, _wanted(task, outputs)
    expansion, kept = expanded(facts, task, params, given, wanted)
    wanted_keys = frozenset(expansion.drafts[i].key for i in kept)
    if resumed is not None:
        expansion = _behind(
            Expansion(facts, task, fill_params(task, params), given, wanted_keys, texts=resumed.texts), resumed
        )
        kept = [i for i, draft in enumerate(expansion.drafts) if draft.key in wanted_keys]
    since = expansion.approvals.since
    kept = [i for i in kept if i >= since and (whole or not expansion.drafts[i].asked)]
    moves = Moves(facts, since)
    steps = moves.added({i: expansion.drafts[i] for i in kept})
    itinerary = Itinerary(
        steps=steps,
        outputs=wanted,
        ranks=tuple(sorted({rank for step in steps for rank in plan.walks[step.walk].ranks})),
        streams=tuple(sorted({s for i in kept for s in expansion.drafts[i].facts.streams_in})),
        send_orders=send_orders(plan, steps, wanted),
        choices=tuple(moves.renumbered(choice, i) for i, choice in enumerate(expansion.choices)),
    )
    return Expanded(itinerary, wanted_keys if loops_of(task) or approvals_of(task) else None)


def _behind(expansion: Expansion, resumed: Resumed) -> Expansion:
    """The steps behind the approval that a person has decided on, to the end of the task."""
    going = expansion.all()
    replay(going, resumed.answers)
    expansion.needed = None
    with suppress(StopIteration):
        going.send(resumed.answers[-1])
    return expansion


def legs_of(
    facts: Facts,
    task: Task,
    params: Mapping[str, Scalar],
    given: tuple[Given, ...],
    found: Expanded,
    resumed: Resumed | None = None,
) -> tuple[Itinerary, Legs | None]:
    """The first itinerary of a request's ranks, and the legs that may follow; None if it doesn't go leg by leg."""
    if found.needed is None:
        return found.itinerary, None
    filled, outputs = fill_params(task, params), found.itinerary.outputs
    answers, texts = resumed or Resumed()
    legs = Legs(facts, task, filled, given, outputs, found.needed, answers, texts)
    return legs.first(found.itinerary), legs


def expanded(
    facts: Facts, task: Task, params: Mapping[str, Scalar], given: tuple[Given, ...], wanted: Sequence[str]
) -> tuple[Expansion, list[int]]:
    """Every step that the task expands to, and the indices of the drafts to run: those that give a wanted output or
    that such a step needs."""
    expansion = Expansion(facts, task, fill_params(task, params), given)
    for _ in expansion.all():
        pass  # it stops only where it goes leg by leg
    return expansion, needed(facts.plan, expansion, wanted)


def _wanted(task: Task, outputs: Sequence[str] | None) -> tuple[str, ...]:
    if outputs is None:
        return task.outputs
    for i, name in enumerate(outputs):
        if name not in task.outputs:
            raise InvalidInput(f"the task has no output `{name[:80]}`; {nearest(name, task.outputs)}", f"/outputs/{i}")
    if not outputs and task.outputs:
        raise InvalidInput("`outputs` is empty; name one or leave it out", "/outputs")
    return tuple(name for name in task.outputs if name in outputs)
