"""Loops of the steps of tasks: their counts, the results that end them, and results that a later pass takes."""

from collections.abc import Mapping, Sequence

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.steps.choices import always_run, latest, result_type
from walkgraph.graph.document import Task
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.problems import article
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.steps import (
    APPROVED,
    VERDICT,
    LoopStepAt,
    StepAt,
    approvals_of,
    choices_of,
    lanes,
    loops_of,
)
from walkgraph.graph.structure import apart, segments

Named = Mapping[str, Sequence[StepAt]]
"""Walk, or a step's `as` -> the steps that a binding means by that name."""


def check_step_loops(context: Context, name: str, task: Task, named: Named) -> None:
    loops = loops_of(task)
    if not loops:
        return
    _alone(context, name, task, loops[0])
    taken: set[str] = set()
    for loop in loops:
        path = ("tasks", name, *segments(loop.pointer))
        if loop.step.as_ is not None and loop.step.as_ in taken:
            message = f"the task has a loop of steps `{loop.step.as_}` twice; rename this one"
            context.add("duplicate_name", (*path, "as"), message)
        taken |= {loop.step.as_} if loop.step.as_ is not None else set()
        if not context.draft.is_broken(*path, "times"):
            _times(context, name, (*path, "times"), loop.step.times)
        if loop.step.until is not None:
            _until(context, name, task, loop, named, (*path, "until"))
        for result in loop.step.start:
            _start(context, name, task, loop, result, named, (*path, "start", result))


def _alone(context: Context, name: str, task: Task, loop: LoopStepAt) -> None:
    """Report streams and several lists: a pass ends when all that runs has ended."""
    if len(lanes(task)) > 1:
        message = "steps loop only in a task with a single list of steps; join the lists, or loop inside a Walk"
        context.add("loop_in_lanes", ("tasks", name, *segments(loop.pointer)), message)
        return
    fed = {walk for stream in context.graph.streams for walk in stream.walks}
    for at in context.steps[name]:
        facts = context.facts.get(at.step.walk)
        reads = facts is not None and any(route.source.kind == "stream" for route in facts.routes)
        if reads or at.step.walk in fed:
            message = f"Walk `{at.step.walk}` {'reads' if reads else 'feeds'} a stream, and steps of this task loop"
            place = ("tasks", name, *segments(at.pointer), "walk")
            context.add("stream_in_step_loop", place, f"{message}; use another Walk, or loop inside a Walk")


def _times(context: Context, name: str, path: Path, text: str) -> None:
    expr = context.expression(text, path)
    if expr is None:
        return
    if expr.loops:
        message = f"the number of passes can't depend on a loop; remove `@loop.{min(expr.loops)}`"
        context.add("unknown_loop", path, message)
        return
    missing = next((key for key in sorted(expr.names) if key not in context.ranges[name]), None)
    if missing is not None:
        if context.knows_params(name):
            message = f"the task has no parameter `{missing}`; {context.nearest(missing, context.ranges[name])}"
            context.add("unknown_parameter", path, message)
        return
    found = context.inferred(expr, name, path)
    if found is None:
        return
    if found.kind != "integer":
        advice = "round it with `round`, `floor` or `ceil`" if found.kind == "number" else "write a number of passes"
        context.add("bad_times", path, f"`{expr.text}` is {article(found.kind)}, and `times` an integer; {advice}")
    elif found.low < 1:
        message = f"`{expr.text}` may be below 1, and a loop of steps has at least one pass; bound its parameters"
        context.add("bad_times", path, message)
    elif found.high == float("inf"):
        message = f"`{expr.text}` has no upper bound, and memory is reserved for all passes; give its parameters `max`"
        context.add("unbounded_loop", path, message)


def _inside(loop: LoopStepAt, steps: Sequence[StepAt]) -> list[StepAt]:
    return [at for at in steps if loop.index in at.loops]


def _given(
    context: Context, name: str, task: Task, loop: LoopStepAt, result: str, named: Named, path: Path
) -> list[StepAt]:
    """The steps in a loop that may give a result; empty, with a problem, if a pass may be without it."""
    owner = result.partition(".")[0]
    inside = _inside(loop, named.get(owner, ()))
    if not inside:
        if not context.draft.has_gaps("tasks", name, "steps") and not context.draft.is_broken("walks", owner):
            known = {at.name for at in _inside(loop, context.steps[name])}
            known |= {one.at.name for one in approvals_of(task) if loop.index in one.at.loops and one.step.as_}
            message = f"no step `{owner}` in the loop; {context.nearest(owner, known)}"
            context.add("unknown_result", path, message)
        return []
    meant = latest(inside, loop.cases)
    if not always_run(task, meant, loop.cases):
        message = f"no step `{owner}` may run in a pass, where another branch is taken; give each branch such a step"
        context.add("absent_value", path, message)
        return []
    return meant


def _until(context: Context, name: str, task: Task, loop: LoopStepAt, named: Named, path: Path) -> None:
    result = loop.step.until or ""
    for at in _given(context, name, task, loop, result, named, path):
        facts, key = context.facts.get(at.step.walk), result.partition(".")[2]
        if at.step.walk == VERDICT and key != APPROVED:
            context.add("bad_until", path, f"`{result}` is no flag, and only a flag ends a loop; name `approved`")
        if facts is None:
            continue
        if key not in facts.named_results:
            if not context.draft.has_gaps("walks", at.step.walk, "results"):
                message = f"Walk `{at.step.walk}` has no result `{key}`; {context.nearest(key, facts.walk.results)}"
                context.add("unknown_result", path, message)
            continue
        found = result_type(context, at.step.walk, facts.named_results[key])
        if found is not None and found.modality != "flag":
            context.add("bad_until", path, f"`{result}` is `{found}`, and only a flag ends a loop; name a flag")


def _start(context: Context, name: str, task: Task, loop: LoopStepAt, result: str, named: Named, path: Path) -> None:
    if not _given(context, name, task, loop, result, named, path):
        return
    read = {str(value) for at in _inside(loop, context.steps[name]) for value in at.step.with_.values()}
    read |= {choice.step.choose for choice in choices_of(task) if loop.index in choice.loops}
    read |= {str(value) for one in approvals_of(task) if loop.index in one.at.loops for value in one.step.approve}
    read |= {str(value) for one in loops_of(task) if loop.index in one.loops for value in one.step.start.values()}
    if result not in read:
        message = f"no step of the loop takes `{result}`; bind it in `with`, or remove it"
        context.add("unused_start", path, message, "warning")


def from_pass_before(task: Task, producers: Sequence[StepAt], at: StepAt) -> list[StepAt]:
    """The steps that come later in a loop around `at`: it takes their results from the pass before."""
    return [one for one in producers if one.index >= at.index and _common(task, one, at)] if at.loops else []


def _common(task: Task, one: StepAt, at: StepAt) -> bool:
    """True if a loop holds both, and another pass may take the branch of the one than that of the other."""
    common = {*one.loops} & {*at.loops}
    if not common:
        return False
    choice = apart(one.cases, at.cases)
    return choice is None or not common.isdisjoint(choices_of(task)[choice].loops)


def started(task: Task, result: str, at: StepAt) -> bool:
    """True if a loop around a step says what a result stands for in the first pass."""
    loops = loops_of(task)
    return any(result in loops[index].step.start for index in at.loops)


def skips_first_pass(steps: Sequence[StepAt], at: StepAt) -> bool:
    """True if a step never runs in the first pass of its loop: by its own condition, or as an earlier option is
    taken."""
    if _in_first_pass(at) is False:
        return True
    options = [one for one in steps if at.choice is not None and one.choice == at.choice and one.index < at.index]
    return any(_in_first_pass(one) is True for one in options)


def _in_first_pass(at: StepAt) -> bool | None:
    """The condition of a step in the first pass; None if it depends on parameters."""
    try:
        return at.step.when is None or evaluate(parse(at.step.when), {}, {"index": 0}) is True
    except ExpressionError:
        return None
