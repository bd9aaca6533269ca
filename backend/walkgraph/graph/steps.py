"""The steps of tasks: each Walk's step with its place, the choices among them, and the results that they take from each
other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from walkgraph.graph.document import ChooseStep, FirstStep, ForStep, Step, Task, TurnsStep, WalkStep
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

    @property
    def name(self) -> str:
        """The name that later bindings use."""
        return self.step.as_ or self.step.walk


def lanes(task: Task) -> Mapping[str, tuple[Step, ...]]:
    """The lists of steps, each run in order; a single list has the empty name."""
    return task.steps if isinstance(task.steps, dict) else {"": task.steps}


def steps_of(task: Task) -> tuple[StepAt, ...]:
    """Every Walk's step, lane by lane in order. Pointers are relative to the task."""
    return tuple(_walked(task)[0])


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
    steps = steps_of(task)
    walks: dict[str, dict[str, None]] = {}
    for at in steps:
        for name in (at.name, at.step.walk):
            walks.setdefault(name, {})[at.step.walk] = None
    for at in steps:
        for name, binding in at.step.with_.items():
            owner, _, result = str(binding).partition(".")
            yield from (Handing(at, name, walk, result) for walk in walks.get(owner, ()) if result)


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


def choices_of(task: Task) -> tuple[ChooseAt, ...]:
    """Every choice among a task's steps, lane by lane in order."""
    return tuple(_walked(task)[1])


class _Steps:
    """Goes through the steps of a task."""

    def __init__(self) -> None:
        self.found: list[StepAt] = []
        self.choices: list[ChooseAt] = []
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

    def _step(self, step: WalkStep, here: StepAt) -> None:
        self.found.append(replace(here, index=len(self.found), step=step))

    def _choose(self, step: ChooseStep, here: StepAt) -> None:
        index, around = len(self.choices), (here.lane, here.part, here.turn, here.pointer, here.cases)
        self.choices.append(ChooseAt(index, step, len(self.found), *around))
        names = [*(f"cases/{segment(value)}" for value in step.cases), "otherwise"]
        for branch, (steps, name) in enumerate(zip(step.branches, names, strict=True)):
            self.add(steps, replace(here, cases=(*here.cases, (index, branch)), pointer=f"{here.pointer}/{name}"))


def _walked(task: Task) -> tuple[list[StepAt], list[ChooseAt]]:
    walked = _Steps()
    for lane, steps in lanes(task).items():
        place = StepAt(0, WalkStep(walk="none"), lane, None, None, None, f"/steps/{lane}" if lane else "/steps")
        walked.add(steps, place)
    return walked.found, walked.choices
