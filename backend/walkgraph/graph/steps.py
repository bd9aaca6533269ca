"""The steps of tasks: each Walk's step with its place, the choices, loops and approvals among them, and the results
that they take from each other."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple
from weakref import ref

from walkgraph.graph.document import (
    ApproveStep,
    ChooseStep,
    FirstStep,
    ForStep,
    Literals,
    LoopStep,
    Step,
    Task,
    TaskInput,
    TurnsStep,
    WalkStep,
)
from walkgraph.graph.structure import Branch, segment


@dataclass(frozen=True, slots=True)
class StepAt:
    """A Walk's step and its place in a task."""

    index: int
    """Position among the task's Walks' steps and approvals, list by list."""
    step: WalkStep
    lane: str
    """The partition's list; empty where the task has a single list."""
    part: str | None
    """Inside `for parts`: the modality of the part."""
    turn: str | None
    """Inside `for turns`: the role of the turn."""
    choice: int | None
    """Inside `first`: its number in the task; the steps of one `first` exclude each other."""
    pointer: str
    cases: tuple[Branch, ...] = ()
    """The branches of choices around it, outermost first."""
    loops: tuple[int, ...] = ()
    """The loops around it, by their numbers in the task, outermost first."""

    @property
    def name(self) -> str:
        """The name that later bindings use."""
        return self.step.as_ or self.step.walk


def lanes(task: Task) -> Mapping[str, tuple[Step, ...]]:
    """The lists of steps, each run in order; a single list has the empty name."""
    return task.steps if isinstance(task.steps, dict) else {"": task.steps}


def inside(step: Step) -> Iterable[tuple[Step, ...]]:
    """The lists of steps inside a step; the options of a `first` are no list."""
    match step:
        case ForStep():
            return step.branches.values()
        case ChooseStep():
            return step.branches
        case LoopStep():
            return (step.loop,)
        case _:
            return ()


def steps_of(task: Task) -> tuple[StepAt, ...]:
    """Every Walk's step, lane by lane in order. Pointers are relative to the task."""
    return _walked(task).steps


def bindings_of(task: Task) -> Iterator[Literals]:
    """Every binding of a task: those of its steps, and those that its loops start with."""
    for at in steps_of(task):
        yield from at.step.with_.values()
    for loop in loops_of(task):
        yield from loop.step.start.values()


def expressions_of(task: Task) -> Iterator[str]:
    """Every expression among a task's steps: their conditions, and the counts of their loops."""
    for at in steps_of(task):
        if at.step.when is not None:
            yield at.step.when
    for loop in loops_of(task):
        yield loop.step.times


class Handing(NamedTuple):
    """A Walk's result that a later step takes as an input."""

    at: StepAt
    """The step that takes it."""
    input: str
    walk: str
    """The Walk whose result it is."""
    result: str


def handings(task: Task) -> Iterator[Handing]:
    """Every result that a task's steps take from other steps, binding by binding; one per Walk that a name may mean."""
    for at in steps_of(task):
        for name, binding in at.step.with_.items():
            yield from (Handing(at, name, walk, result) for walk, result in meanings(task, binding, at.loops))


def meanings(task: Task, binding: Literals, loops: Iterable[int]) -> Iterator[tuple[str, str]]:
    """(Walk, result) of each result that a binding may mean, in a place with these loops around it."""
    walked = _walked(task)
    meant = {binding: None}
    for start in (walked.loops[loop].step.start for loop in sorted(loops, reverse=True)):
        meant |= {start[str(one)]: None for one in list(meant) if str(one) in start}
    for one in meant:
        owner, _, result = str(one).partition(".")
        yield from ((walk, result) for walk in walked.named.get(owner, ()) if result)


@dataclass(frozen=True, slots=True)
class ChooseAt:
    """A choice among the steps of a task."""

    index: int
    """Its number in the task."""
    step: ChooseStep
    before: int
    """The number of Walks' steps and approvals before it."""
    lane: str
    part: str | None
    turn: str | None
    pointer: str
    cases: tuple[Branch, ...]
    """The branches of choices around it."""
    loops: tuple[int, ...] = ()


def choices_of(task: Task) -> tuple[ChooseAt, ...]:
    """Every choice among a task's steps, lane by lane in order."""
    return _walked(task).choices


@dataclass(frozen=True, slots=True)
class LoopStepAt:
    """A loop of a task's steps."""

    index: int
    """Its number in the task; a loop comes before those inside it."""
    step: LoopStep
    before: int
    """The number of Walks' steps and approvals before it."""
    after: int
    """That number at its end."""
    lane: str
    part: str | None
    turn: str | None
    pointer: str
    cases: tuple[Branch, ...]
    loops: tuple[int, ...]
    """The loops around it."""
    name: str = ""
    """The name under which a run tells why it ended, its own in the task; empty if it always runs all passes."""


def loops_of(task: Task) -> tuple[LoopStepAt, ...]:
    """Every loop of a task's steps, lane by lane in order."""
    return _walked(task).loops


VERDICT = "@approve"
"""Stands for the Walk of a step in the place of an approval."""
APPROVED, NOTE = "approved", "note"
"""The results of an approval with a name."""


@dataclass(frozen=True, slots=True)
class ApproveAt:
    """A step of a task that waits for a person."""

    step: ApproveStep
    at: StepAt
    """A step in its place, with its name; its Walk is `VERDICT`."""

    @property
    def index(self) -> int:
        """Position among the task's Walks' steps and approvals."""
        return self.at.index

    @property
    def pointer(self) -> str:
        return self.at.pointer


def approvals_of(task: Task) -> tuple[ApproveAt, ...]:
    """Every step of a task that waits for a person, lane by lane in order."""
    return _walked(task).approvals


def kept_results(task: Task, approval: ApproveAt) -> tuple[str, ...]:
    """The results, `walk.result`, that an approval shows, or that something after it may take: what comes later, and
    what shares a loop with it. There may be literals among them."""
    found: dict[str, None] = dict.fromkeys(approval.step.approve)

    def after(place: int, loops: Iterable[int]) -> bool:
        return place > approval.index or not {*loops}.isdisjoint(approval.at.loops)

    for at in steps_of(task):
        if after(at.index, at.loops):
            found.update(dict.fromkeys(map(str, at.step.with_.values())))
    for choice in choices_of(task):
        if after(choice.before, choice.loops):
            found[choice.step.choose] = None
    for loop in loops_of(task):
        if after(loop.before, loop.loops):
            found.update(dict.fromkeys(map(str, loop.step.start.values())))
        if loop.step.until is not None and after(loop.after, (*loop.loops, loop.index)):
            found[loop.step.until] = None
    for other in approvals_of(task):
        if after(other.index, other.at.loops):
            found.update(dict.fromkeys(other.step.approve))
    return tuple(found)


class _Steps:
    """Goes through the steps of a task."""

    def __init__(self) -> None:
        self.found: list[StepAt] = []
        self.choices: list[ChooseAt] = []
        self.loops: list[LoopStepAt] = []
        self.approvals: list[ApproveAt] = []
        self._firsts = 0

    @property
    def count(self) -> int:
        return len(self.found) + len(self.approvals)

    def add(self, steps: tuple[Step, ...], around: StepAt) -> None:
        """`around`: a step with the place of these."""
        for position, step in enumerate(steps):
            here = replace(around, pointer=f"{around.pointer}/{position}")
            match step:
                case WalkStep():
                    self._step(step, here)
                case FirstStep():
                    self._firsts += 1
                    for i, option in enumerate(step.first):
                        pointer = f"{here.pointer}/first/{i}"
                        self._step(option, replace(here, choice=self._firsts - 1, pointer=pointer))
                case ForStep():
                    for kind, inner in step.branches.items():
                        inside = replace(here, pointer=f"{here.pointer}/{kind}")
                        of_turns = isinstance(step, TurnsStep)
                        self.add(inner, replace(inside, turn=kind) if of_turns else replace(inside, part=kind))
                case ChooseStep():
                    self._choose(step, here)
                case LoopStep():
                    self._loop(step, here)
                case ApproveStep():
                    named = WalkStep.model_construct(walk=VERDICT, as_=step.as_, with_={}, when=None, per=None)
                    self.approvals.append(ApproveAt(step, replace(here, index=self.count, step=named)))

    def _step(self, step: WalkStep, here: StepAt) -> None:
        self.found.append(replace(here, index=self.count, step=step))

    def _choose(self, step: ChooseStep, here: StepAt) -> None:
        index, around = len(self.choices), (here.lane, here.part, here.turn, here.pointer, here.cases, here.loops)
        self.choices.append(ChooseAt(index, step, self.count, *around))
        names = [*(f"cases/{segment(value)}" for value in step.cases), "otherwise"]
        for branch, (steps, name) in enumerate(zip(step.branches, names, strict=True)):
            self.add(steps, replace(here, cases=(*here.cases, (index, branch)), pointer=f"{here.pointer}/{name}"))

    def _loop(self, step: LoopStep, here: StepAt) -> None:
        index, before = len(self.loops), self.count
        around = (here.lane, here.part, here.turn, here.pointer, here.cases, here.loops)
        self.loops.append(LoopStepAt(index, step, before, before, *around))
        self.add(step.loop, replace(here, loops=(*here.loops, index), pointer=f"{here.pointer}/loop"))
        self.loops[index] = replace(self.loops[index], after=self.count)


class _Walked(NamedTuple):
    """The steps of a task, as its functions here give them."""

    steps: tuple[StepAt, ...]
    choices: tuple[ChooseAt, ...]
    loops: tuple[LoopStepAt, ...]
    approvals: tuple[ApproveAt, ...]
    named: Mapping[str, Mapping[str, None]]
    """A step's `as` or Walk -> the Walks that a binding may mean by it."""


_known: dict[int, tuple[ref[Task], _Walked]] = {}
"""Tasks that exist, by their `id`: a document with 10,000 steps asks for them at every one."""


def _walked(task: Task) -> _Walked:
    key = id(task)
    known = _known.get(key)
    if known is None or known[0]() is not task:
        known = _known[key] = ref(task, lambda _: _known.pop(key, None)), _go_through(task)
    return known[1]


def _go_through(task: Task) -> _Walked:
    walked = _Steps()
    for lane, steps in lanes(task).items():
        place = StepAt(0, WalkStep(walk="none"), lane, None, None, None, f"/steps/{lane}" if lane else "/steps")
        walked.add(steps, place)
    named: dict[str, dict[str, None]] = {}
    for at in walked.found:
        for name in (at.name, at.step.walk):
            named.setdefault(name, {})[at.step.walk] = None
    found, approvals = tuple(walked.found), tuple(walked.approvals)
    return _Walked(found, tuple(walked.choices), tuple(_named(walked.loops)), approvals, named)


def _named(loops: Sequence[LoopStepAt]) -> Iterator[LoopStepAt]:
    """Loops with their names: `as`, or the step that `until` names, with `_2`, `_3` and so on where that is taken."""
    taken = {loop.step.as_ for loop in loops if loop.step.as_ is not None}
    for loop in loops:
        name = loop.step.as_ or ""
        if not name and loop.step.until is not None:
            owner = loop.step.until.partition(".")[0]
            numbered = (owner if i == 1 else f"{owner}_{i}" for i in count(1))
            name = next(one for one in numbered if one not in taken)
            taken.add(name)
        yield replace(loop, name=name if loop.step.until is not None else "")


def is_needed(declared: TaskInput) -> bool:
    """True if every request must give an input of a task."""
    return not declared.optional and declared.default is None
