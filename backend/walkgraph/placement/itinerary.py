"""The itinerary of a run: its task's state machine, expanded for one request and fixed at admission.

All steps are known before the run starts, because they depend only on parameters and on the modalities of the parts.
Unneeded steps are left out; needed are the wanted outputs, a session's states, and everything they depend on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.document import FirstStep, ForStep, Graph, Step, Task, WalkStep
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.problems import nearest
from walkgraph.graph.steps import for_parts, lanes
from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts, WalkFacts
from walkgraph.placement.compiler.turns import turns_of
from walkgraph.placement.request import Given, InputPart, by_name, fill_params, name_inputs, task_of
from walkgraph.placement.tables import (
    Binding,
    FromInput,
    FromLiteral,
    FromStep,
    Itinerary,
    Plan,
    Scalar,
    StepPlan,
)

MAX_STEPS = 20_000
"""The most steps of one request; a `for` may stand inside another."""


def expand(
    graph: Graph,
    plan: Plan,
    task: str,
    params: Mapping[str, Scalar],
    inputs: Mapping[str, Sequence[Any]],
    parts: Sequence[InputPart] = (),
    outputs: Sequence[str] | None = None,
) -> Itinerary:
    """The steps of one request. `params`: as the client gave them, or filled in with `seed`. `outputs`: None for all.

    Raises InvalidInput or NotFound with a pointer into the request (`/params/steps`, `/inputs/image`, `/parts/2`).
    """
    found = task_of(graph, task)
    wanted = _wanted(found, outputs)
    facts = Facts(plan)
    expansion, kept = expanded(facts, found, params, name_inputs(found, inputs, parts), wanted)
    steps = _with_moves(facts, [expansion.drafts[i] for i in kept], kept)
    return Itinerary(
        steps=steps,
        outputs=wanted,
        ranks=tuple(sorted({rank for step in steps for rank in plan.walks[step.walk].ranks})),
        streams=tuple(sorted({s for i in kept for s in expansion.drafts[i].facts.streams_in})),
        turns=turns_of(plan, steps, wanted),
    )


def expanded(
    facts: Facts, task: Task, params: Mapping[str, Scalar], given: tuple[Given, ...], wanted: Sequence[str]
) -> tuple["Expansion", list[int]]:
    """Every step that the task expands to, and the indices of the drafts to run: those that give a wanted output or
    that such a step needs."""
    expansion = Expansion(facts, task, fill_params(task, params), given)
    for partition, steps in enumerate(lanes(task).values()):
        expansion.add_all(steps, partition, None)
    return expansion, _live(facts.plan, expansion.drafts, wanted)


def _wanted(task: Task, outputs: Sequence[str] | None) -> tuple[str, ...]:
    if outputs is None:
        return task.outputs
    for i, name in enumerate(outputs):
        if name not in task.outputs:
            raise InvalidInput(f"the task has no output `{name[:80]}`; {nearest(name, task.outputs)}", f"/outputs/{i}")
    if not outputs and task.outputs:
        raise InvalidInput("`outputs` is empty; name one or leave it out", "/outputs")
    return tuple(name for name in task.outputs if name in outputs)


# ── the state machine ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Draft:
    walk: int
    partition: int
    facts: WalkFacts
    bindings: dict[str, Binding]
    """`FromStep` counts drafts here, not steps."""


class Seen(NamedTuple):
    """A step that a request reaches."""

    step: WalkStep
    partition: int
    part: Given | None
    instead: WalkStep | None
    """The earlier option of its `first` that is taken instead."""
    draft: int | None
    """None: the step is not taken."""


@dataclass
class Expansion:
    facts: Facts
    task: Task
    params: Mapping[str, Scalar]
    given: tuple[Given, ...]
    drafts: list[_Draft] = field(default_factory=list[_Draft])
    latest: dict[str, int] = field(default_factory=dict[str, int])
    """Walk, or a step's `as` -> its latest draft."""
    seen: list[Seen] = field(default_factory=list[Seen])
    left: int = MAX_STEPS

    def __post_init__(self) -> None:
        self.walks = {(walk.name, walk.chunked): walk.index for walk in self.facts.plan.walks}
        named = by_name(self.task)
        self.parts = tuple(value for value in self.given if value.input not in named)

    def add_all(self, steps: Sequence[Step], partition: int, part: Given | None) -> None:
        self.left -= 1 + len(steps)
        if self.left < 0:
            raise InvalidInput(f"this request expands to more than {MAX_STEPS} steps; give fewer parts", "/parts")
        for step in steps:
            match step:
                case WalkStep():
                    self._add_first((step,), partition, part)
                case FirstStep():
                    self._add_first(step.first, partition, part)
                case ForStep():
                    self._add_parts(step, partition)

    def _add_first(self, options: Sequence[WalkStep], partition: int, part: Given | None) -> None:
        taken: WalkStep | None = None
        for option in options:
            if taken is None and self._holds(option):
                self.seen.append(Seen(option, partition, part, None, len(self.drafts)))
                self._add(option, partition, part)
                taken = option
            else:
                self.seen.append(Seen(option, partition, part, taken, None))

    def _add_parts(self, step: ForStep, partition: int) -> None:
        choices = for_parts(step)
        for part in self.parts:
            if part.modality not in choices:
                kinds = ", ".join(f"`{kind}`" for kind in choices) or "none"
                message = f"the task takes no parts of modality `{part.modality[:80]}`; it takes {kinds}"
                raise InvalidInput(message, part.pointer)
            self.add_all(choices[part.modality], partition, part)

    def _holds(self, step: WalkStep) -> bool:
        if step.when is None:
            return True
        try:
            return evaluate(parse(step.when), self.params) is True
        except ExpressionError as error:
            message = f"the condition of step `{step.walk}` has no value with these parameters: {error}"
            raise InvalidInput(message, "/params") from None

    def _add(self, step: WalkStep, partition: int, part: Given | None) -> None:
        walk = self.walks[step.walk, step.per == "chunk"]
        facts = self.facts[walk]
        bindings: dict[str, Binding] = {}
        for name in self.facts.plan.walks[walk].inputs:
            if name in step.with_:
                binding = self._bind(step.with_[name], part)
                if binding is not None:
                    bindings[name] = binding
                elif name in facts.required:
                    self._refuse(step, str(step.with_[name]))
        self.latest[step.walk] = len(self.drafts)
        if step.as_ is not None:
            self.latest[step.as_] = len(self.drafts)
        self.drafts.append(_Draft(walk, partition, facts, bindings))

    def _bind(self, binding: Scalar, part: Given | None) -> Binding | None:
        """The resolved binding; None if its source is absent: an input that wasn't given, or a step that doesn't
        run."""
        if not isinstance(binding, str):
            return FromLiteral(binding)
        if binding == "@part":
            return FromInput(part.name) if part is not None else None
        owner, dot, name = binding.partition(".")
        if owner == "@task":
            return self._bind_task(name)
        if dot and (owner in self.latest or self._is_step(owner)):
            return FromStep(self.latest[owner], name) if owner in self.latest else None
        return FromLiteral(binding)

    def _bind_task(self, name: str) -> Binding | None:
        if name not in self.task.inputs:
            return FromLiteral(self.params[name])
        values = [value for value in self.given if value.input == name]
        if len(values) > 1:
            raise InvalidInput(f"`{name}` takes one value and {len(values)} are given; give one", f"/inputs/{name}")
        return FromInput(values[0].name) if values else None

    def _is_step(self, name: str) -> bool:
        return any(name == walk for walk, _ in self.walks)

    def _refuse(self, step: WalkStep, binding: str) -> None:
        if binding.startswith("@task."):
            name = binding.removeprefix("@task.")
            raise InvalidInput(f"`{name}` is missing; step `{step.walk}` of this request needs it", f"/inputs/{name}")
        raise InvalidInput(f"`{step.walk}` needs `{binding}`, which no step gives with these parameters", "/params")


# ── steps that are needed ──────────────────────────────────────────────────────────────────────


def _live(plan: Plan, drafts: list[_Draft], wanted: Sequence[str]) -> list[int]:
    """Drafts that give a wanted output or change a session's state, and everything they need; in order."""
    fed = {stream for draft in drafts for stream in draft.facts.streams_out}
    # A consumer whose streams have no producer among the steps would wait forever.
    able = [not d.facts.streams_in or not d.facts.streams_in.isdisjoint(fed) for d in drafts]
    session = {state.index for state in plan.states if state.scope == "session"}
    queue = [
        i
        for i, draft in enumerate(drafts)
        if able[i] and (not draft.facts.outputs.isdisjoint(wanted) or not draft.facts.writes.isdisjoint(session))
    ]
    live = set(queue)
    needs = _Needs(drafts)
    while queue:
        for i in needs.of(queue.pop()):
            if i not in live and able[i]:
                live.add(i)
                queue.append(i)
    return sorted(live)


class _Needs:
    """The drafts that a draft depends on. Each writer of a state or stream is reported once."""

    def __init__(self, drafts: list[_Draft]) -> None:
        self.drafts = drafts
        self.writers: dict[int, list[int]] = {}
        """State -> drafts that may change it and have not been reported yet, the first one last."""
        self.producers: dict[int, list[int]] = {}
        for i in reversed(range(len(drafts))):
            for state in drafts[i].facts.writes:
                self.writers.setdefault(state, []).append(i)
            for stream in drafts[i].facts.streams_out:
                self.producers.setdefault(stream, []).append(i)

    def of(self, index: int) -> list[int]:
        draft = self.drafts[index]
        needed = [binding.step for binding in draft.bindings.values() if isinstance(binding, FromStep)]
        for state in draft.facts.homes:
            writers = self.writers.get(state, [])
            while writers and writers[-1] < index:
                needed.append(writers.pop())
        for stream in draft.facts.streams_in:
            needed.extend(self.producers.pop(stream, ()))
        return needed


# ── states that change rank ─────────────────────────────────────────────────────────────────────


def _with_moves(facts: Facts, drafts: list[_Draft], kept: list[int]) -> tuple[StepPlan, ...]:
    """Steps in order, each preceded by moves of the states that it finds on another rank; at the end a session's states
    return to where they rest."""
    plan = facts.plan
    moves = {walk.name: walk.index for walk in plan.walks if walk.name.startswith("move:")}
    rests = _rests(facts) if moves else {}
    places = dict(rests)
    steps: list[StepPlan] = []
    numbers: dict[int, int] = {}

    def carry(state: int, source: Rank, target: Rank, partition: int) -> None:
        walk = moves.get(f"move:{plan.states[state].name}:{source}>{target}")
        if walk is not None:
            steps.append(StepPlan(index=len(steps), walk=walk, partition=partition, bindings={}))

    for number, draft in zip(kept, drafts, strict=True):
        for state, rank in draft.facts.homes.items() if moves else ():
            source = places.get(state)
            if source is not None and source != rank and state not in draft.facts.replaced:
                carry(state, source, rank, draft.partition)
            places[state] = rank
        numbers[number] = len(steps)
        bindings = {name: _renumbered(binding, numbers) for name, binding in draft.bindings.items()}
        steps.append(StepPlan(index=len(steps), walk=draft.walk, partition=draft.partition, bindings=bindings))
    for state, rank in rests.items():
        if places[state] != rank:
            carry(state, places[state], rank, _last_partition(facts, steps, state))
    return tuple(steps)


def _rests(facts: Facts) -> dict[int, Rank]:
    """Session state -> the rank where it waits between requests: that of its first access in the document's Walks."""
    found: dict[int, Rank] = {}
    for walk in facts.plan.walks:
        for state, rank in facts[walk.index].homes.items():
            if facts.plan.states[state].scope == "session":
                found.setdefault(state, rank)
    return found


def _last_partition(facts: Facts, steps: list[StepPlan], state: int) -> int:
    return next(s.partition for s in reversed(steps) if state in facts[s.walk].homes)


def _renumbered(binding: Binding, numbers: Mapping[int, int]) -> Binding:
    return FromStep(numbers[binding.step], binding.result) if isinstance(binding, FromStep) else binding
