"""Choices among the steps of tasks, and results that one of several exclusive steps gives."""

from collections.abc import Mapping, Sequence

from walkgraph.graph.checks.choices import cases_of
from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.steps.approvals import TYPES
from walkgraph.graph.checks.types import choosable, passed
from walkgraph.graph.document import Task
from walkgraph.graph.ports import PortType
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.steps import VERDICT, ChooseAt, StepAt, choices_of
from walkgraph.graph.structure import Branch, Route, apart, segments

_KINDS = {"boolean": "flag", "integer": "scalar", "number": "scalar", "string": "text"}
_DTYPES = {"boolean": "bool", "integer": "int", "number": "float", "string": "str"}


def check_step_choices(context: Context, name: str, task: Task, named: Mapping[str, Sequence[StepAt]]) -> None:
    for choice in choices_of(task):
        path = ("tasks", name, *segments(choice.pointer))
        found = _value(context, name, task, choice, named, (*path, "choose"))
        if found is not None:
            step = choice.step
            cases_of(context, path, step.choose, found, step.cases, bool(step.otherwise))
    for at in context.steps[name]:
        facts = context.facts.get(at.step.walk)
        if facts is not None and at.cases and any(route.source.kind == "stream" for route in facts.routes):
            message = f"Walk `{at.step.walk}` reads a stream in a branch, and its items would wait where it isn't taken"
            place = ("tasks", name, *segments(at.pointer), "walk")
            context.add("stream_in_choice", place, f"{message}; move the step out of the choice")


def _value(
    context: Context, name: str, task: Task, choice: ChooseAt, named: Mapping[str, Sequence[StepAt]], path: Path
) -> PortType | None:
    """The type of the value; None if it can't be known, with a problem where it is named wrongly."""
    owner, _, key = choice.step.choose.partition(".")
    if owner == "@task":
        return _parameter(context, name, task, key, path)
    producers = named.get(owner, ())
    if not producers:
        if not context.draft.has_gaps("tasks", name, "steps") and not context.draft.is_broken("walks", owner):
            message = f"no step `{owner}` in the task; {context.nearest(owner, named)}"
            context.add("unknown_result", path, message)
        return None
    earlier = [at for at in producers if _runs_before(at, choice)]
    # In a loop, a step that comes later gives the value of the pass before.
    before = [at for at in producers if at.index >= choice.before and {*at.loops} & {*choice.loops}]
    if not earlier and not before:
        message = f"`{owner}` has not run when this choice is made; put it before the choice"
        context.add("used_before_produced", path, message)
        return None
    found: PortType | None = None
    for walk in dict.fromkeys(at.step.walk for at in (*latest(earlier, choice.cases), *before)):
        facts = context.facts.get(walk)
        if walk == VERDICT:
            found = TYPES.get(key, found)
            if key not in TYPES:
                context.add("unknown_result", path, f"an approval gives no `{key}`; write `approved` or `note`")
            continue
        if facts is None:
            continue
        if key not in facts.named_results:
            if not context.draft.has_gaps("walks", walk, "results"):
                message = f"Walk `{walk}` has no result `{key}`"
                context.add("unknown_result", path, f"{message}; {context.nearest(key, facts.walk.results)}")
            continue
        given = result_type(context, walk, facts.named_results[key])
        found = given if found is None or (given is not None and choosable(given) is None) else found
    return found


def _parameter(context: Context, name: str, task: Task, key: str, path: Path) -> PortType | None:
    if key in context.ranges[name]:
        kind = context.ranges[name][key].kind
        return PortType(_KINDS[kind], _DTYPES[kind], ())
    if key in task.inputs:
        message = f"`@task.{key}` is an input, whose value the service doesn't read; choose by a parameter or a result"
        context.add("bad_choice", path, message)
    elif context.knows_params(name):
        message = f"the task has no parameter `{key}`; {context.nearest(key, context.ranges[name])}"
        context.add("unknown_parameter", path, message)
    return None


def _runs_before(at: StepAt, choice: ChooseAt) -> bool:
    if apart(at.cases, choice.cases) is not None:
        return False
    return at.lane != choice.lane or at.index < choice.before


def result_type(context: Context, walk: str, route: Route) -> PortType | None:
    """The type that a later step gets."""
    source = context.source_type(walk, route)
    return passed(source, route, "") if source else None


def latest(earlier: Sequence[StepAt], cases: Sequence[Branch]) -> list[StepAt]:
    """The steps of which the last that runs is meant, in a place with these branches around it: the last of all, and
    while those are in branches that may not be taken, the ones before."""
    found: list[StepAt] = []
    for at in reversed(earlier):
        found.append(at)
        if tuple(cases[: len(at.cases)]) == at.cases:
            break
    return found[::-1]


def always_run(task: Task, steps: Sequence[StepAt], cases: Sequence[Branch]) -> bool:
    """True if one of the steps runs whatever is chosen, in a place with these branches around it."""
    counts = [len(choice.step.branches) for choice in choices_of(task)]

    def covered(paths: Sequence[Sequence[Branch]]) -> bool:
        if any(not path for path in paths):
            return True
        branches: dict[Branch, list[Sequence[Branch]]] = {}
        for path in paths:
            branches.setdefault(path[0], []).append(path[1:])
        return any(
            all((choice, branch) in branches and covered(branches[choice, branch]) for branch in range(counts[choice]))
            for choice in {choice for choice, _ in branches}
        )

    return covered([_beyond(at.cases, cases) for at in steps])


def _beyond(inner: Sequence[Branch], outer: Sequence[Branch]) -> Sequence[Branch]:
    shared = 0
    while shared < min(len(inner), len(outer)) and inner[shared] == outer[shared]:
        shared += 1
    return inner[shared:]
