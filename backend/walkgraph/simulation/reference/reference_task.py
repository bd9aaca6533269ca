"""Reference implementation of a task's steps: one after the other, on plain Python values. Every faster one must agree.

It reads only the document. It runs every step, needed or not, and keeps the results of the latest run of each.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from walkgraph.graph.document import (
    ApproveStep,
    ChooseStep,
    FirstStep,
    Graph,
    LoopStep,
    Result,
    Step,
    Walk,
    WalkStep,
)
from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.graph.steps import APPROVED, NOTE, approvals_of, loops_of, steps_of
from walkgraph.placement.tables import BOUND, STOP, Decision
from walkgraph.simulation.reference.reference_walk import Function, run_walk

_NOTHING = object()


class NotApproved(Exception):
    """A person has refused, and no step reads that."""


@dataclass
class Told:
    """The figures that a run tells beside its outputs."""

    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The values that each approval has shown."""
    ends: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """Loop of steps with an `until`, by name -> (passes of all its entries, why the last one ended)."""


def run_task(
    graph: Graph,
    task: str,
    functions: Mapping[str, Function],
    params: Mapping[str, Any],
    inputs: Mapping[str, Any],
    decide: Callable[[int], Decision] = lambda number: Decision(approved=True),
    told: Told | None = None,
    reasons: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, list[Any]]:
    """All values of each output, in order, up to a refusal that ends the run. The task has one list of steps, and no
    parts, turns or streams. `decide`: a person's answer to the approval of this number in the run. `told`: takes what
    else the run tells. `reasons`: port that ends loops -> ports that say why."""
    said = {found.step.as_ for found in approvals_of(graph.tasks[task]) if found.step.as_ is not None}
    names = {*graph.walks, *(at.name for at in steps_of(graph.tasks[task])), *said}
    loops = {id(found.step): found.name for found in loops_of(graph.tasks[task])}
    run = _Run(graph, functions, params, inputs, names, decide, told or Told(), loops, reasons or {})
    steps = graph.tasks[task].steps
    with suppress(NotApproved):
        run.all(steps if isinstance(steps, tuple) else (), None)
    return run.outputs


@dataclass
class _Pass:
    """A pass of a loop, and what its loop started with."""

    index: int
    start: Mapping[str, Any]
    ran: set[str]
    """Names of the steps that have run in this loop."""
    around: "_Pass | None"


@dataclass
class _Run:
    graph: Graph
    functions: Mapping[str, Function]
    params: Mapping[str, Any]
    inputs: Mapping[str, Any]
    names: set[str]
    """Names of steps; a text that begins with another name is a literal."""
    decide: Callable[[int], Decision]
    told: Told
    loops: Mapping[int, str]
    """`id` of a loop -> its name."""
    reasons: Mapping[str, Sequence[str]]
    outputs: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Walk, or a step's `as` -> the results of its latest run."""

    def all(self, steps: Sequence[Step], inside: _Pass | None) -> None:
        for step in steps:
            match step:
                case WalkStep():
                    self.first((step,), inside)
                case FirstStep():
                    self.first(step.first, inside)
                case ChooseStep():
                    value = self.value(step.choose, inside)
                    text = None if value is _NOTHING else str(value).lower() if isinstance(value, bool) else str(value)
                    self.all(step.cases.get(text, step.otherwise) if text is not None else step.otherwise, inside)
                case LoopStep():
                    self.loop(step, inside)
                case ApproveStep():
                    self.ask(step, inside)
                case _:
                    raise ValueError(f"{type(step).__name__} has no form in plain Python")

    def loop(self, step: LoopStep, inside: _Pass | None) -> None:
        start = {name: self.value(binding, inside) for name, binding in step.start.items()}
        ran: set[str] = set()
        owner, _, result = (step.until or "").partition(".")
        count, reason = 0, BOUND
        for index in range(int(evaluate(parse(step.times), self.params))):
            here = _Pass(index, start, ran, inside)
            before = self.results.get(owner)
            self.all(step.loop, here)
            found = self.results.get(owner)
            count += 1
            if found is not None and found is not before and found.get(result) is True:
                reason = next((name.partition(".")[2] for name in _beside(result, found) if found[name]), STOP)
                break
        if step.until is not None:
            name = self.loops[id(step)]
            self.told.ends[name] = self.told.ends.get(name, (0, ""))[0] + count, reason

    def ask(self, step: ApproveStep, inside: _Pass | None) -> None:
        shown = ((name, self.value(name, inside)) for name in step.approve)
        self.told.asked.append({name: value for name, value in shown if value is not _NOTHING})
        decision = self.decide(len(self.told.asked) - 1)
        if step.as_ is None:
            if not decision.approved:
                raise NotApproved
            return
        self._ran(step.as_, {APPROVED: decision.approved, NOTE: decision.note}, inside)

    def first(self, options: Sequence[WalkStep], inside: _Pass | None) -> None:
        loops = {} if inside is None else {"index": inside.index}
        taken = (o for o in options if o.when is None or evaluate(parse(o.when), self.params, loops) is True)
        step = next(taken, None)
        if step is None:
            return
        bound = {name: self.value(binding, inside) for name, binding in step.with_.items()}
        given = {name: value for name, value in bound.items() if value is not _NOTHING}
        outs, results = run_walk(self.walk(step.walk), self.functions, self.params, given)
        for name, values in outs.items():
            self.outputs.setdefault(name, []).extend(value for _, value in values)
        for name in (step.walk, *([step.as_] if step.as_ else [])):
            self._ran(name, dict(results), inside)

    def walk(self, name: str) -> Walk:
        """A Walk with the flags that say why a loop ended as results too."""
        walk, found = self.graph.walks[name], dict[str, Result]()
        for result, made in walk.results.items():
            use, _, port = made.from_.partition(".")
            for flag in self.reasons.get(port, ()):
                found[f"{result}.{flag}"] = made.model_copy(update={"from_": f"{use}.{flag}"})
        return walk.model_copy(update={"results": {**walk.results, **found}})

    def _ran(self, name: str, results: Mapping[str, Any], inside: _Pass | None) -> None:
        self.results[name] = results
        while inside is not None:
            inside.ran.add(name)
            inside = inside.around

    def value(self, binding: Any, inside: _Pass | None) -> Any:
        if not isinstance(binding, str):
            return binding
        owner, _, name = binding.partition(".")
        if owner == "@task":
            return self.params[name] if name in self.params else self.inputs.get(name, _NOTHING)
        if binding == "@loop.index":
            return _NOTHING if inside is None else inside.index
        if owner not in self.names:
            return binding
        around = inside
        while around is not None:
            if binding in around.start:
                if owner not in around.ran:
                    return around.start[binding]
                break
            around = around.around
        return self.results.get(owner, {}).get(name, _NOTHING)


def _beside(result: str, found: Mapping[str, Any]) -> list[str]:
    """The flags that say why a result ended a loop, in the order in which their component declares them."""
    return [name for name in found if name.startswith(f"{result}.")]
