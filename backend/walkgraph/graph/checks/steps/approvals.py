"""Steps of tasks that wait for a person: nothing but values may last from before one of them to after it."""

from collections.abc import Iterator, Mapping, Sequence

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.walks import accesses
from walkgraph.graph.document import Task
from walkgraph.graph.ports import PortType
from walkgraph.graph.steps import APPROVED, NOTE, ApproveAt, StepAt, approvals_of, lanes
from walkgraph.graph.structure import apart, segments

TYPES: Mapping[str, PortType] = {APPROVED: PortType("flag", "bool"), NOTE: PortType("text", "str")}
"""The types of what an approval gives to later steps."""

MOST = 64
"""The most approvals of a task."""


def check_approvals(context: Context, name: str, task: Task) -> None:
    approvals = approvals_of(task)
    if not approvals:
        return
    if len(approvals) > MOST:
        path = ("tasks", name, *segments(approvals[MOST].pointer))
        context.add(
            "too_many_approvals", path, f"a task may ask at {MOST} places, and this has {len(approvals)}; use a loop"
        )
        return
    taken = {at.name for at in context.steps[name]} | context.graph.walks.keys()
    for approval in approvals:
        path = ("tasks", name, *segments(approval.pointer))
        if approval.step.as_ is not None and approval.step.as_ in taken:
            message = f"`{approval.step.as_}` is the name of a step or a Walk too; give the approval another name"
            context.add("duplicate_name", (*path, "as"), message)
        if len(lanes(task)) > 1:
            message = "a task waits for a person only with a single list of steps; join the lists"
            context.add("approve_in_lanes", path, message)
        if (approval.at.part, approval.at.turn) != (None, None):
            message = "`approve` can't stand inside `for`; put it behind, and show a result of the last step inside"
            context.add("approve_in_for", path, message)
    if task.session is not None:
        message = "the states of a session can't be stored while a person is asked; remove `session`, or `approve`"
        context.add("session_with_approve", ("tasks", name, "session"), message)
    _streams(context, name)
    _states(context, name, task, approvals)


def _streams(context: Context, name: str) -> None:
    fed = {walk for stream in context.graph.streams for walk in stream.walks}
    for at in context.steps[name]:
        facts = context.facts.get(at.step.walk)
        reads = facts is not None and any(route.source.kind == "stream" for route in facts.routes)
        if reads or at.step.walk in fed:
            message = f"Walk `{at.step.walk}` {'reads' if reads else 'feeds'} a stream, and this task asks a person"
            place = ("tasks", name, *segments(at.pointer), "walk")
            context.add("stream_with_approve", place, f"{message}; use another Walk, or another task")


def _states(context: Context, name: str, task: Task, approvals: Sequence[ApproveAt]) -> None:
    """Report every state of which a step before an approval leaves something that one behind it finds."""
    steps = context.steps[name]
    touched = {walk: dict(_touched(context, walk)) for walk in {at.step.walk for at in steps}}
    left = [(approval, _left_at(steps, approval, touched)) for approval in approvals]
    for at in steps:
        place = ("tasks", name, *segments(at.pointer), "walk")
        for state in touched[at.step.walk]:
            if context.graph.states[state].scope == "session":
                message = f"Walk `{at.step.walk}` uses the session's state `{state}`, and this task asks a person"
                context.add("state_across_approve", place, f"{message}; use a state of scope `run` or `walk`")
            if context.graph.states[state].scope != "run":
                continue
            writer = next((by[state] for one, by in left if state in by and _follows(one.at, at)), None)
            if writer is not None:
                message = f"the state `{state}`, which `{writer.name}` has written, can't be stored at `approve`"
                advice = "use another state behind it, or give this one the scope `walk`"
                context.add("state_across_approve", place, f"{message}; {advice}")


def _left_at(
    steps: Sequence[StepAt], approval: ApproveAt, touched: Mapping[str, Mapping[str, bool]]
) -> Mapping[str, StepAt]:
    """State -> a step that may have written it when an approval is reached."""
    found: dict[str, StepAt] = {}
    for at in steps:
        if _follows(at, approval.at):
            found |= {state: at for state, written in touched[at.step.walk].items() if written and state not in found}
    return found


def _touched(context: Context, walk: str) -> Iterator[tuple[str, bool]]:
    """Each state of a Walk, with True if it is written there."""
    facts = context.facts.get(walk)
    found: dict[str, bool] = {}
    for entry in facts.entries if facts is not None else ():
        for state, written in accesses(context, facts, entry) if facts is not None else ():
            if state in context.graph.states:
                found[state] = found.get(state, False) or written
    yield from found.items()


def _follows(one: StepAt, other: StepAt) -> bool:
    """True if `other` may run after `one`: in its place, or in a later pass of a loop around both."""
    if not {*one.loops}.isdisjoint(other.loops):
        return True
    return one.index < other.index and apart(one.cases, other.cases) is None
