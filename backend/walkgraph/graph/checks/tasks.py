"""Tasks: inputs and parameters, steps and their bindings, and outputs that some step sends."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.declared import check_declarations
from walkgraph.graph.checks.steps.approvals import TYPES, check_approvals
from walkgraph.graph.checks.steps.choices import always_run, check_step_choices, latest, result_type
from walkgraph.graph.checks.steps.loops import check_step_loops, from_pass_before, skips_first_pass, started
from walkgraph.graph.checks.walks import accesses
from walkgraph.graph.conversation import MESSAGES, TURN_VALUES
from walkgraph.graph.document import ChooseStep, ForStep, LoopStep, Step, Task, TurnsStep
from walkgraph.graph.language.expressions import constant
from walkgraph.graph.language.ranges import TURN_RANGES, range_of_value
from walkgraph.graph.ports import MODALITIES, PortType, accepts
from walkgraph.graph.problems import article
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.steps import VERDICT, StepAt, approvals_of, bindings_of, lanes, loops_of
from walkgraph.graph.structure import apart, segments

_RESULT = re.compile(r"^[A-Za-z][A-Za-z0-9_\-]*\.[A-Za-z][A-Za-z0-9_\-]*$")
_MODALITIES = {"string": ("text",), "boolean": ("flag", "scalar"), "integer": ("scalar",), "number": ("scalar",)}
"""Type of a parameter or literal -> the Walk inputs it may be bound to."""

Named = Mapping[str, Sequence[StepAt]]
"""Walk, or a step's `as` -> the steps that a binding means by that name."""

_UNCLEAR = ("bad_binding", "part_outside_for", "turn_outside_for", "unknown_input", "wrong_modality")
"""Problems after which it is unknown which input a step was meant to take."""


def check_tasks(context: Context) -> None:
    for name, task in context.graph.tasks.items():
        path = ("tasks", name)
        check_declarations(context, path, task)
        steps = context.steps[name]
        named = _named((*steps, *(approval.at for approval in approvals_of(task) if approval.step.as_ is not None)))
        before = len(context.problems)
        check_step_choices(context, name, task, named)
        check_step_loops(context, name, task, named)
        check_approvals(context, name, task)
        _shown(context, name, task, named)
        _starts(context, name, task, named)
        for at in steps:
            _step(context, name, at, named)
        if not any(p.code in _UNCLEAR for p in context.problems[before:]):
            _parts(context, path, task, steps)
        _firsts(context, path, steps)
        _outputs(context, path, task, steps)


# ── steps ───────────────────────────────────────────────────────────────────────────────────────


def _named(steps: tuple[StepAt, ...]) -> Named:
    found: dict[str, list[StepAt]] = {}
    for at in steps:
        for name in dict.fromkeys((at.name, at.step.walk)):
            found.setdefault(name, []).append(at)
    return found


def _step(context: Context, name: str, at: StepAt, named: Named) -> None:
    path = ("tasks", name, *segments(at.pointer))
    if at.step.when is not None:
        _when(context, name, at, at.step.when, (*path, "when"))
    walk = context.graph.walks.get(at.step.walk)
    if walk is None:
        if not context.draft.is_broken("walks", at.step.walk):
            message = f"no Walk `{at.step.walk}` in the graph; {context.nearest(at.step.walk, context.graph.walks)}"
            context.add("unknown_walk", (*path, "walk"), message)
        return
    inputs_known = not context.draft.has_gaps("walks", at.step.walk, "inputs")
    for key, value in at.step.with_.items():
        where = (*path, "with", key)
        if key in walk.inputs:
            wanted = context.input_types.get((at.step.walk, key))
            _binding(context, name, at, named, where, value, wanted, key)
        elif inputs_known:
            message = f"Walk `{at.step.walk}` has no input `{key}`; {context.nearest(key, walk.inputs)}"
            context.add("unknown_input", where, message)
    for key in walk.inputs:
        if key not in at.step.with_ and key in context.needed[at.step.walk]:
            message = f"Walk `{at.step.walk}` needs its input `{key}`; bind it in `with`"
            context.add("unbound_input", path, message)


def _when(context: Context, task: str, at: StepAt, text: str, path: Path) -> None:
    expr = context.expression(text, path)
    if expr is None:
        return
    unknown = expr.loops - ({"index"} if at.loops else set[str]())
    if unknown:
        place = "a loop of steps has no name; write `@loop.index`" if at.loops else "the step is outside any loop"
        context.add("unknown_loop", path, f"`@loop.{min(unknown)}` has no value here: {place}")
        return
    if at.turn is None and any(name in TURN_VALUES for name in expr.names):
        context.add("turn_outside_for", path, _OUTSIDE.format("@turn"))
        return
    known = {**context.ranges[task], **TURN_RANGES}
    missing = next((n for n in sorted(expr.names) if n not in known), None)
    if missing:
        if context.knows_params(task):
            message = f"the task has no parameter `{missing}`; {context.nearest(missing, context.ranges[task])}"
            context.add("unknown_parameter", path, message)
        return
    found = context.inferred(expr, task, path, known)
    if found and found.kind != "boolean":
        context.add("bad_when", path, f"`{expr.text}` is {article(found.kind)}; write a comparison")
    if constant(expr) is False:
        context.add("unreachable_step", path, "the condition is never true; change it or remove the step")


# ── bindings ────────────────────────────────────────────────────────────────────────────────────


def _binding(
    context: Context,
    name: str,
    at: StepAt,
    named: Named,
    path: Path,
    value: Scalar,
    wanted: PortType | None,
    taker: str,
) -> None:
    """Check a binding. `taker`: the input of the step's Walk that takes it."""
    needed = taker in context.needed[at.step.walk]
    if not isinstance(value, str):
        _literal(context, path, value, wanted)
    elif value == "@part":
        _part(context, path, at, wanted)
    elif value.startswith("@turn."):
        _turn(context, path, at, value, wanted)
    elif value == "@loop.index":
        _index(context, path, at, wanted)
    elif value.startswith("@task."):
        _task_value(context, name, at, path, value.removeprefix("@task."), wanted, needed=needed)
    elif value.startswith("@"):
        kinds = "`@task.x`, `@part`, `@turn.x`, `@loop.index`, `walk.result` or a literal"
        message = f"`{value[:80]}` is not a binding; write {kinds}"
        context.add("bad_binding", path, message)
    elif _RESULT.match(value) and _names_result(context, named, value, wanted):
        _result(context, name, at, named, path, value, wanted, needed=needed)
    else:
        _literal(context, path, value, wanted)


def _literal(context: Context, path: Path, value: Scalar, wanted: PortType | None) -> None:
    kind = range_of_value(value).kind
    if wanted and wanted.modality not in _MODALITIES[kind]:
        advice = "write `@task.x`, `@part` or `walk.result`"
        context.add("wrong_modality", path, f"{article(kind)} can't be bound to `{wanted}`; {advice}")


def _part(context: Context, path: Path, at: StepAt, wanted: PortType | None) -> None:
    if at.part is None:
        message = "`@part` has a value only inside `for`; bind `@task.x`, or put the step into a `for`"
        context.add("part_outside_for", path, message)
    elif wanted and wanted.modality != at.part:
        context.add("wrong_modality", path, f"the part is `{at.part}`, and the input takes `{wanted}`; bind another")


_OUTSIDE = "`{}` has a value only inside `for: turns`; put the step into one"


def _turn(context: Context, path: Path, at: StepAt, value: str, wanted: PortType | None) -> None:
    if value not in TURN_VALUES:
        message = f"a turn has no `{value[:80]}`; {context.nearest(value, TURN_VALUES)}"
        context.add("bad_binding", path, message)
    elif at.turn is None:
        context.add("turn_outside_for", path, _OUTSIDE.format(value))
    elif wanted and wanted.modality not in _MODALITIES[TURN_VALUES[value]]:
        kind = article(TURN_VALUES[value])
        context.add("wrong_modality", path, f"`{value}` is {kind}, and the input takes `{wanted}`; bind another")


def _index(context: Context, path: Path, at: StepAt, wanted: PortType | None) -> None:
    if not at.loops:
        context.add("unknown_loop", path, "`@loop.index` has a value only in a loop of steps; put the step into one")
    elif wanted and wanted.modality != "scalar":
        context.add(
            "wrong_modality", path, f"`@loop.index` is an integer, and the input takes `{wanted}`; bind another"
        )


def _starts(context: Context, name: str, task: Task, named: Named) -> None:
    """Check the bindings that loops start with, each for every input that takes it in the first pass."""
    for loop in loops_of(task):
        path = ("tasks", name, *segments(loop.pointer), "start")
        for result, binding in loop.step.start.items():
            for at in context.steps[name]:
                if loop.index not in at.loops or at.step.walk not in context.graph.walks:
                    continue
                for key in (key for key, value in at.step.with_.items() if value == result):
                    wanted = context.input_types.get((at.step.walk, key))
                    place = replace(at, index=loop.before, cases=loop.cases, loops=loop.loops, choice=None)
                    _binding(context, name, place, named, (*path, result), binding, wanted, key)


def _shown(context: Context, name: str, task: Task, named: Named) -> None:
    for approval in approvals_of(task):
        for i, value in enumerate(approval.step.approve):
            path = ("tasks", name, *segments(approval.pointer), "approve", str(i))
            _result(context, name, approval.at, named, path, value, None, needed=True)


def _task_value(
    context: Context, name: str, at: StepAt, path: Path, key: str, wanted: PortType | None, *, needed: bool
) -> None:
    task = context.graph.tasks[name]
    if key in task.inputs:
        declared = task.inputs[key]
        if wanted and declared.modality in MODALITIES and wanted.modality != declared.modality:
            message = f"`@task.{key}` is `{declared.modality}`, and the input takes `{wanted}`; bind another"
            context.add("wrong_modality", path, message)
        if declared.many and not (wanted and wanted.many):
            message = f"`@task.{key}` has many parts; go through them with `for`, take a list, or remove `many`"
            context.add("many_outside_for", path, message)
        elif wanted and wanted.many and not declared.many:
            message = f"`@task.{key}` is one value, and the input takes `{wanted}`; set `many`, or bind another"
            context.add("wrong_modality", path, message)
        if declared.optional and needed:
            message = f"`@task.{key}` can be absent, and Walk `{at.step.walk}` needs it; remove `optional`"
            context.add("absent_value", path, message)
    elif key in context.ranges[name]:
        kind = context.ranges[name][key].kind
        if wanted and wanted.modality not in _MODALITIES[kind]:
            message = f"`@task.{key}` is {article(kind)}, and the input takes `{wanted}`; bind another"
            context.add("wrong_modality", path, message)
    elif context.knows_params(name) and not context.draft.has_gaps("tasks", name, "inputs"):
        message = (
            f"the task has no input or parameter `{key}`; {context.nearest(key, [*task.inputs, *context.ranges[name]])}"
        )
        context.add("unknown_input", path, message)


def _names_result(context: Context, named: Named, value: str, wanted: PortType | None) -> bool:
    """True if text with a dot is a result: it names a step or Walk, or the input doesn't take text."""
    owner = value.partition(".")[0]
    known = owner in context.graph.walks or owner in named
    return known or wanted is None or wanted.modality != "text"


def _result(
    context: Context,
    task: str,
    at: StepAt,
    named: Named,
    path: Path,
    value: str,
    wanted: PortType | None,
    *,
    needed: bool,
) -> None:
    owner, _, _ = value.partition(".")
    producers = named.get(owner, ())
    if not producers:
        if not context.draft.has_gaps("tasks", task, "steps") and not context.draft.is_broken("walks", owner):
            message = f"no step `{owner}` in the task; {context.nearest(owner, named)}"
            context.add("unknown_result", path, message)
        return
    found = context.graph.tasks[task]
    earlier = [step for step in producers if _comes_before(step, at)]
    before = from_pass_before(found, producers, at)
    begun = started(found, value, at) or (bool(before) and skips_first_pass(context.steps[task], at))
    if not earlier and not (before and (begun or not needed)):
        _not_yet(context, path, value, in_loop=bool(before))
        return
    meant = latest(earlier, at.cases)
    for walk in dict.fromkeys(step.step.walk for step in (*meant, *before)):
        if not _gives(context, walk, path, value, wanted):
            return
    if begun or not needed:
        return
    if not always_run(found, meant, at.cases):
        message = f"no step `{owner}` may have run, where another branch was taken"
        context.add("absent_value", path, f"{message}; give each branch such a step, with `as` if it has another Walk")
        return
    guards = {step.step.when for step in earlier}
    if None not in guards and at.step.when not in guards:
        message = f"`{owner}` may be skipped while this step runs; give both the same `when`"
        context.add("absent_value", path, message, "warning")


def _not_yet(context: Context, path: Path, value: str, *, in_loop: bool) -> None:
    owner = value.partition(".")[0]
    if in_loop:
        message = (
            f"`{owner}` comes later in the loop, so that the first pass has no `{value}`; "
            f"say in `start` of the loop what it begins with"
        )
    else:
        message = (
            f"`{owner}` has not run when this step begins; put it before this step, in another list or another choice"
        )
    context.add("used_before_produced", path, message)


def _gives(context: Context, walk: str, path: Path, value: str, wanted: PortType | None) -> bool:
    """Check the result of one Walk that a binding may mean; true if the Walk has it."""
    result, facts = value.partition(".")[2], context.facts.get(walk)
    if walk == VERDICT:
        return _answers(context, path, value, wanted)
    if facts is None:
        return False
    if result not in facts.named_results:
        if not context.draft.has_gaps("walks", walk, "results"):
            message = f"Walk `{walk}` has no result `{result}`; {context.nearest(result, facts.walk.results)}"
            context.add("unknown_result", path, message)
        return False
    found = result_type(context, walk, facts.named_results[result])
    fault = accepts(wanted, found) if wanted and found else None
    if fault:
        message = f"`{value}` is `{found}`, and the input takes `{wanted}`: {fault}; bind another"
        context.add("wrong_modality", path, message)
    return True


def _answers(context: Context, path: Path, value: str, wanted: PortType | None) -> bool:
    """Check what a binding takes of an approval's answer; true if it gives that."""
    found = TYPES.get(value.partition(".")[2])
    if found is None:
        message = f"an approval gives no `{value.partition('.')[2]}`; write `approved` or `note`"
        context.add("unknown_result", path, message)
        return False
    fault = accepts(wanted, found) if wanted else None
    if fault:
        message = f"`{value}` is `{found}`, and the input takes `{wanted}`: {fault}; bind another"
        context.add("wrong_modality", path, message)
    return True


def _comes_before(step: StepAt, at: StepAt) -> bool:
    """True if `step` has run when `at` begins. Lists run side by side, so a step waits for results from the others."""
    if step.lane != at.lane:
        return True
    if step.choice is not None and step.choice == at.choice:
        return False
    if apart(step.cases, at.cases) is not None:
        return False
    return step.index < at.index


# ── the whole task ──────────────────────────────────────────────────────────────────────────────


def _parts(context: Context, path: Path, task: Task, steps: tuple[StepAt, ...]) -> None:
    """Check that every input has steps, and every branch of a `for` an input."""
    if not steps or context.draft.has_gaps(*path, "steps") or context.draft.has_gaps(*path, "inputs"):
        return  # without steps, no output is sent, and that is said
    found: dict[str, Path] = {}
    for lane, lane_steps in lanes(task).items():
        _branches(context, lane_steps, (*path, "steps", *([lane] if lane else [])), found)
    bound = {str(value) for value in bindings_of(task)}
    chats = [key for key, declared in task.inputs.items() if declared.modality == MESSAGES]
    for key, declared in task.inputs.items():
        if declared.modality not in found and f"@task.{key}" not in bound and declared.modality in MODALITIES:
            steps_for = "`for: turns`" if declared.modality == MESSAGES else f"`{declared.modality}` steps to a `for`"
            message = f"no step takes `{key}`; bind `@task.{key}`, or add {steps_for}"
            context.add("input_without_steps", (*path, "inputs", key), message)
    modalities = {declared.modality for declared in task.inputs.values()}
    for kind, where in found.items():
        if kind not in modalities and modalities <= set(MODALITIES):
            message = f"the task has no `{kind}` input; declare one, or remove these steps"
            context.add("unreachable_step", where, message, "warning")
    if MESSAGES in found and len(chats) > 1:
        message = f"`for: turns` goes through one conversation, and the task has {len(chats)}; keep one"
        context.add("many_conversations", (*path, "inputs", chats[1]), message)


def _branches(
    context: Context, steps: tuple[Step, ...], path: Path, found: dict[str, Path], *, in_turn: bool = False
) -> None:
    """Collect the modalities of inputs that a `for` goes through, with the first place of each. The parts of a turn
    belong to no input."""
    for position, step in enumerate(steps):
        here = (*path, str(position))
        if isinstance(step, LoopStep):
            _branches(context, step.loop, (*here, "loop"), found, in_turn=in_turn)
        if isinstance(step, ChooseStep):
            for value, inner in step.cases.items():
                _branches(context, inner, (*here, "cases", value), found, in_turn=in_turn)
            _branches(context, step.otherwise, (*here, "otherwise"), found, in_turn=in_turn)
        if not isinstance(step, ForStep):
            continue
        of_turns = isinstance(step, TurnsStep)
        if of_turns and in_turn:
            context.add("nested_turns", here, "these steps are inside `for: turns` already; go through turns once")
        if of_turns:
            found.setdefault(MESSAGES, here)
        for kind, inner in step.branches.items():
            if not (in_turn or of_turns):
                found.setdefault(kind, (*here, kind))
            _branches(context, inner, (*here, kind), found, in_turn=in_turn or of_turns)


def _firsts(context: Context, path: Path, steps: tuple[StepAt, ...]) -> None:
    """Report options after one that always holds: they are never taken."""
    always: set[int] = set()
    for at in steps:
        if at.choice is None:
            continue
        if at.choice in always:
            message = "the option before it always holds; give that one a `when`, or remove this one"
            context.add("unreachable_step", (*path, *segments(at.pointer)), message)
        if at.step.when is None:
            always.add(at.choice)


def _outputs(context: Context, path: Path, task: Task, steps: tuple[StepAt, ...]) -> None:
    sent: dict[str, dict[str, str]] = {}
    """Output -> modality -> a Walk that sends it with this modality."""
    gaps = context.draft.has_gaps(*path, "steps")
    for walk in dict.fromkeys(at.step.walk for at in steps):
        for name, found in context.sent.get(walk, {}).items():
            sent.setdefault(name, {}).update({found.modality: walk} if found else {})
        gaps = gaps or walk not in context.facts or context.draft.has_gaps("walks", walk, "edges")
    if not task.outputs and not gaps and not context.draft.is_broken(*path, "outputs"):
        _without_outputs(context, path, task, steps, sent)
    listed: set[str] = set()
    for i, output in enumerate(task.outputs):
        where = (*path, "outputs", str(i))
        if output in listed:
            context.add("duplicate_name", where, f"the output `{output}` is listed twice; keep one")
        elif output not in sent and not gaps:
            message = f"no Walk of the task's steps sends `@out.{output}`; {context.nearest(output, sent)}"
            if not steps:
                message = (
                    f"the task has no steps, so nothing sends `@out.{output}`; add a step with a Walk that sends it"
                )
            context.add("output_never_sent", where, message)
        listed.add(output)
        kinds = sent.get(output, {})
        if len(kinds) > 1:
            said = ", ".join(f"`{kind}` from `{walk}`" for kind, walk in kinds.items())
            context.add("wrong_modality", where, f"`{output}` is {said}; give them names of their own")


def _without_outputs(
    context: Context, path: Path, task: Task, steps: tuple[StepAt, ...], sent: Mapping[str, Mapping[str, str]]
) -> None:
    """Check a task without outputs: it must change the state of its session, or none of its steps would run."""
    kept = {name for name, state in context.graph.states.items() if state.scope == "session"}
    walks = [context.facts[walk] for walk in {at.step.walk for at in steps}]
    touched = [access for facts in walks for entry in facts.entries for access in accesses(context, facts, entry)]
    if task.session is not None and any(written and state in kept for state, written in touched):
        return
    known = ", ".join(f"`{name}`" for name in sorted(sent)[:8])
    advice = f"list one of {known}" if sent else "send a value to `@out.NAME` in a Walk of its steps, and list `NAME`"
    message = f"the task has no outputs, and no session keeps what it computes: a run would do nothing; {advice}"
    context.add("no_outputs", (*path, "outputs"), message)
