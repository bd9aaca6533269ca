"""The steps of tasks: each Walk's step with its place, the choices and loops among them, and the results that they take
from each other."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from weakref import ref

from walkgraph.graph.document import ChooseStep, FirstStep, ForStep, Literals, LoopStep, Step, Task, TurnsStep, WalkStep
from walkgraph.graph.structure import Branch, segment


@dataclass(frozen=True, slots=True)
class StepAt:
    """A Walk's step and its place in a task."""

    index: int
    """Position in the task, list by list."""
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
    """The number of Walks' steps before it."""
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
    """The number of Walks' steps before it."""
    after: int
    """That number at its end."""
    lane: str
    part: str | None
    turn: str | None
    pointer: str
    cases: tuple[Branch, ...]
    loops: tuple[int, ...]
    """The loops around it."""


def loops_of(task: Task) -> tuple[LoopStepAt, ...]:
    """Every loop of a task's steps, lane by lane in order."""
    return _walked(task).loops


class _Steps:
    """Goes through the steps of a task."""

    def __init__(self) -> None:
        self.found: list[StepAt] = []
        self.choices: list[ChooseAt] = []
        self.loops: list[LoopStepAt] = []
        self._firsts = 0

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

    def _step(self, step: WalkStep, here: StepAt) -> None:
        self.found.append(replace(here, index=len(self.found), step=step))

    def _choose(self, step: ChooseStep, here: StepAt) -> None:
        index, around = len(self.choices), (here.lane, here.part, here.turn, here.pointer, here.cases, here.loops)
        self.choices.append(ChooseAt(index, step, len(self.found), *around))
        names = [*(f"cases/{segment(value)}" for value in step.cases), "otherwise"]
        for branch, (steps, name) in enumerate(zip(step.branches, names, strict=True)):
            self.add(steps, replace(here, cases=(*here.cases, (index, branch)), pointer=f"{here.pointer}/{name}"))

    def _loop(self, step: LoopStep, here: StepAt) -> None:
        index, before = len(self.loops), len(self.found)
        around = (here.lane, here.part, here.turn, here.pointer, here.cases, here.loops)
        self.loops.append(LoopStepAt(index, step, before, before, *around))
        self.add(step.loop, replace(here, loops=(*here.loops, index), pointer=f"{here.pointer}/loop"))
        self.loops[index] = replace(self.loops[index], after=len(self.found))


class _Walked(NamedTuple):
    """The steps of a task, as its functions here give them."""

    steps: tuple[StepAt, ...]
    choices: tuple[ChooseAt, ...]
    loops: tuple[LoopStepAt, ...]
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
    return _Walked(tuple(walked.found), tuple(walked.choices), tuple(walked.loops), named)
