"""The itinerary of a run: its task's state machine, expanded for one request and fixed at admission.

All steps are known before the run starts, because they depend only on parameters, on the modalities of the parts and on
the roles of the turns. Of a choice by a result all branches are there, and the ranks take one when they know the
result. Unneeded steps are left out; needed are the wanted outputs, a session's states, and everything they depend on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import MESSAGES
from walkgraph.graph.document import ChooseStep, FirstStep, ForStep, Graph, Step, Task, TurnsStep, WalkStep
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.problems import nearest
from walkgraph.graph.steps import lanes
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.send_order import send_orders
from walkgraph.placement.moves import ChoiceDraft, Draft, Moves, as_text, sources_of
from walkgraph.placement.request import (
    Given,
    InputPart,
    TurnAt,
    by_name,
    fill_params,
    name_inputs,
    reads_calls,
    task_of,
)
from walkgraph.placement.tables import (
    Binding,
    Branch,
    FromInput,
    FromLatest,
    FromLiteral,
    FromStep,
    Itinerary,
    Plan,
    Scalar,
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
    moves = Moves(facts)
    steps = moves.added({i: expansion.drafts[i] for i in kept})
    return Itinerary(
        steps=steps,
        outputs=wanted,
        ranks=tuple(sorted({rank for step in steps for rank in plan.walks[step.walk].ranks})),
        streams=tuple(sorted({s for i in kept for s in expansion.drafts[i].facts.streams_in})),
        send_orders=send_orders(plan, steps, wanted),
        choices=tuple(moves.renumbered(choice, i) for i, choice in enumerate(expansion.choices)),
    )


def expanded(
    facts: Facts, task: Task, params: Mapping[str, Scalar], given: tuple[Given, ...], wanted: Sequence[str]
) -> tuple["Expansion", list[int]]:
    """Every step that the task expands to, and the indices of the drafts to run: those that give a wanted output or
    that such a step needs."""
    expansion = Expansion(facts, task, fill_params(task, params), given)
    for partition, steps in enumerate(lanes(task).values()):
        expansion.add_all(steps, partition, expansion.outside)
    return expansion, _live(facts.plan, expansion, wanted)


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


class Place(NamedTuple):
    """Where a step stands in what the request gives."""

    parts: tuple[Given, ...]
    """What `for: parts` goes through here."""
    part: Given | None = None
    turn: TurnAt | None = None


class Seen(NamedTuple):
    """A step that a request reaches."""

    step: WalkStep
    partition: int
    place: Place
    instead: WalkStep | None
    """The earlier option of its `first` that is taken instead."""
    draft: int | None
    """None: the step is not taken."""
    cases: tuple[str, ...] = ()
    """The values by which it is chosen, as sentences about them."""
    untaken: str = ""
    """The reason that another branch is taken, if a parameter decides it."""


@dataclass
class Expansion:
    facts: Facts
    task: Task
    params: Mapping[str, Scalar]
    given: tuple[Given, ...]
    drafts: list[Draft] = field(default_factory=list[Draft])
    choices: list[ChoiceDraft] = field(default_factory=list[ChoiceDraft])
    latest: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Walk, or a step's `as` -> its latest draft; several, where branches have one each."""
    cases: tuple[Branch, ...] = ()
    """The branches around the steps that are added now."""
    words: tuple[str, ...] = ()
    untaken: str = ""
    seen: list[Seen] = field(default_factory=list[Seen])
    left: int = MAX_STEPS

    def __post_init__(self) -> None:
        self.walks = {(walk.name, walk.chunked): walk.index for walk in self.facts.plan.walks}
        self.outside = Place(tuple(parts_of_request(self.task, self.given)))

    def add_all(self, steps: Sequence[Step], partition: int, place: Place) -> None:
        self.left -= 1 + len(steps)
        if self.left < 0:
            message = f"this request expands to more than {MAX_STEPS} steps; give fewer parts or turns"
            raise InvalidInput(message, "/parts" if place.turn is None else "/inputs")
        for step in steps:
            match step:
                case WalkStep():
                    self._add_first((step,), partition, place)
                case FirstStep():
                    self._add_first(step.first, partition, place)
                case ForStep():
                    self._add_each(step, partition, place)
                case ChooseStep():
                    self._choose(step, partition, place)

    def _add_first(self, options: Sequence[WalkStep], partition: int, place: Place) -> None:
        taken: WalkStep | None = None
        for option in options:
            if self.untaken:
                self.seen.append(Seen(option, partition, place, None, None, self.words, self.untaken))
            elif taken is None and self._holds(option, place):
                self.seen.append(Seen(option, partition, place, None, len(self.drafts), self.words))
                self._add(option, partition, place)
                taken = option
            else:
                self.seen.append(Seen(option, partition, place, taken, None, self.words))

    def _choose(self, step: ChooseStep, partition: int, place: Place) -> None:
        """Add the branches of a choice: one if its value is known, otherwise all of them."""
        source = self._bind(step.choose, place) if not self.untaken else None
        by_value = [*(f"`{step.choose}` is `{value}`" for value in step.cases), f"`{step.choose}` is another value"]
        if isinstance(source, FromStep | FromLatest):
            index = len(self.choices)
            self.choices.append(ChoiceDraft(source, tuple(step.cases)))
            self._add_branches(step, partition, place, index, by_value)
            return
        value = as_text(source.value) if isinstance(source, FromLiteral) else None
        taken = list(step.cases).index(value) if value in step.cases else len(step.cases)
        said = f"`{step.choose}` is " + ("absent" if value is None else f"`{value[:80]}`")
        before = self.untaken
        for branch, steps in enumerate(step.branches):
            self.untaken = before or ("" if branch == taken else said)
            self.add_all(steps, partition, place)
        self.untaken = before

    def _add_branches(self, step: ChooseStep, partition: int, place: Place, index: int, words: Sequence[str]) -> None:
        outer, latest = (self.cases, self.words), self.latest
        found: dict[str, dict[int, None]] = {}
        for branch, steps in enumerate(step.branches):
            self.cases, self.words, self.latest = (*outer[0], (index, branch)), (*outer[1], words[branch]), dict(latest)
            self.add_all(steps, partition, place)
            for name, drafts in self.latest.items():
                found.setdefault(name, {}).update(dict.fromkeys(drafts))
        self.cases, self.words = outer
        self.latest = {name: tuple(sorted(drafts)) for name, drafts in found.items()}

    def _add_each(self, step: ForStep, partition: int, place: Place) -> None:
        if self.untaken:
            return
        choices = step.branches
        of_turns = isinstance(step, TurnsStep)
        for kind, inside, pointer in self._turns() if of_turns else _parts(place):
            if kind not in choices:
                kinds = ", ".join(f"`{kind}`" for kind in choices) or "none"
                what = "turns of role" if of_turns else "parts of modality"
                raise InvalidInput(f"the task takes no {what} `{kind[:80]}` here; it takes {kinds}", pointer)
            self.add_all(choices[kind], partition, inside)

    def _turns(self) -> Iterator["_Each"]:
        """The turns of the request's conversation, each with its parts."""
        reads = reads_calls(self.task)
        for whole in self.given:
            parts: dict[int, list[Given]] = {}
            for part in self.given if whole.turns else ():
                if part.turn is not None and part.name.startswith(f"{whole.name}."):
                    parts.setdefault(part.turn, []).append(part)
            for turn in whole.turns:
                pointer = f"{whole.pointer}/{turn.index}"
                if turn.calls and not reads:
                    message = "no step of the task reads tool calls; leave them out, or bind `@turn.calls`"
                    raise InvalidInput(message, f"{pointer}/tool_calls")
                yield turn.role, Place(tuple(parts.get(turn.index, ())), None, turn), f"{pointer}/role"

    def _holds(self, step: WalkStep, place: Place) -> bool:
        if step.when is None:
            return True
        params = self.params if place.turn is None else {**self.params, **place.turn.values}
        try:
            return evaluate(parse(step.when), params) is True
        except ExpressionError as error:
            message = f"the condition of step `{step.walk}` has no value with these parameters: {error}"
            raise InvalidInput(message, "/params") from None

    def _add(self, step: WalkStep, partition: int, place: Place) -> None:
        walk = self.walks[step.walk, step.per == "chunk"]
        facts = self.facts[walk]
        bindings: dict[str, Binding] = {}
        for name in self.facts.plan.walks[walk].inputs:
            if name in step.with_:
                binding = self._bind(step.with_[name], place)
                if binding is not None:
                    bindings[name] = binding
                elif name in facts.required:
                    self._refuse(step, str(step.with_[name]))
        self.latest[step.walk] = (len(self.drafts),)
        if step.as_ is not None:
            self.latest[step.as_] = (len(self.drafts),)
        self.drafts.append(Draft(walk, partition, facts, bindings, self.cases))

    def _bind(self, binding: Scalar, place: Place) -> Binding | None:
        """The resolved binding; None if its source is absent: an input that wasn't given, or a step that doesn't
        run."""
        if not isinstance(binding, str):
            return FromLiteral(binding)
        if binding == "@part":
            return FromInput(place.part.name) if place.part is not None else None
        if place.turn is not None and binding.startswith("@turn."):
            return FromLiteral(place.turn.values[binding])
        owner, dot, name = binding.partition(".")
        if owner == "@task":
            return self._bind_task(name)
        if dot and (owner in self.latest or self._is_step(owner)):
            steps = tuple(FromStep(draft, name) for draft in self.latest.get(owner, ()))
            return FromLatest(steps) if len(steps) > 1 else next(iter(steps), None)
        return FromLiteral(binding)

    def _bind_task(self, name: str) -> Binding | None:
        if name not in self.task.inputs:
            return FromLiteral(self.params[name])
        values = [value for value in self.given if value.input == name and value.turn is None]
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


_Each = tuple[str, Place, str]
"""The kind of a part or turn, where its steps stand, its pointer."""


def _parts(place: Place) -> Iterator[_Each]:
    for part in place.parts:
        yield part.modality, place._replace(part=part), part.pointer


def parts_of_request(task: Task, given: Sequence[Given]) -> list[Given]:
    """The values that `for: parts` goes through outside turns: those of inputs that no step binds by name."""
    named = by_name(task)
    return [one for one in given if one.input not in named and one.turn is None and one.modality != MESSAGES]


# ── steps that are needed ──────────────────────────────────────────────────────────────────────


def _live(plan: Plan, expansion: "Expansion", wanted: Sequence[str]) -> list[int]:
    """Drafts that give a wanted output or change a session's state, and everything they need; in order."""
    drafts = expansion.drafts
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
    needs = _Needs(drafts, expansion.choices)
    while queue:
        for i in needs.of(queue.pop()):
            if i not in live and able[i]:
                live.add(i)
                queue.append(i)
    return sorted(live)


class _Needs:
    """The drafts that a draft depends on. Each writer of a state or stream is reported once."""

    def __init__(self, drafts: list[Draft], choices: list[ChoiceDraft]) -> None:
        self.drafts, self.choices = drafts, choices
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
        bindings = [*draft.bindings.values(), *(self.choices[choice].source for choice, _ in draft.cases)]
        needed = [source.step for binding in bindings for source in sources_of(binding)]
        for state in draft.facts.homes:
            writers = self.writers.get(state, [])
            while writers and writers[-1] < index:
                needed.append(writers.pop())
        for stream in draft.facts.streams_in:
            needed.extend(self.producers.pop(stream, ()))
        return needed
