"""A task as a state machine: goes through its steps for one request.

Loops of steps are gone through pass by pass, each to the last. `leg` by `leg`, the machine stops after each pass, at
each approval and before each choice that holds one of them, and goes on when it is told what the ranks found, or what
a person decided.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import MESSAGES
from walkgraph.graph.document import (
    ApproveStep,
    ChooseStep,
    FirstStep,
    ForStep,
    LoopStep,
    Step,
    Task,
    TurnsStep,
    WalkStep,
)
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.steps import inside, lanes, steps_of
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.expansion.approving import Approval, Approvals, Going
from walkgraph.placement.expansion.loop_ends import LoopEnds, PassEnd, beside, reason_of, reasons_of, verdict_of
from walkgraph.placement.moves import ChoiceDraft, Draft, Key, as_text, sources_of
from walkgraph.placement.request import Given, TurnAt, by_name, reads_calls
from walkgraph.placement.tables import (
    BOUND,
    STOP,
    Binding,
    Branch,
    FromInput,
    FromLatest,
    FromLiteral,
    FromStep,
    LegAnswer,
    Scalar,
)

MAX_STEPS = 20_000
"""The most steps of one request; a `for` or a loop may stand inside another."""


class Place(NamedTuple):
    """The place of a step in what the request gives."""

    parts: tuple[Given, ...]
    """The parts that `for: parts` goes through here."""
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
    passes: tuple[int, ...] = ()
    """The pass of each loop around it."""


@dataclass
class Expansion:
    facts: Facts
    task: Task
    params: Mapping[str, Scalar]
    given: tuple[Given, ...]
    needed: frozenset[Key] | None = None
    """Go leg by leg, knowing the steps that are needed. None: all at once, as if no `until` were true."""
    drafts: list[Draft] = field(default_factory=list[Draft])
    choices: list[ChoiceDraft] = field(default_factory=list[ChoiceDraft])
    latest: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Walk, or a step's `as` -> its latest draft; several, where branches have one each."""
    cases: tuple[Branch, ...] = ()
    """The branches around the steps that are added now."""
    words: tuple[str, ...] = ()
    untaken: str = ""
    passes: tuple[int, ...] = ()
    """The passes of the loops around the steps that are added now."""
    ends: tuple[int, ...] = ()
    """The choices by which those loops might have ended before."""
    starts: dict[str, "_Start"] = field(default_factory=dict[str, "_Start"])
    """`walk.result` -> what it stands for until a step of the loop has given it."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kept result -> its value as a case names it, for those that have one."""
    seen: list[Seen] = field(default_factory=list[Seen])
    left: int = MAX_STEPS

    def __post_init__(self) -> None:
        self.walks = {(walk.name, walk.chunked): walk.index for walk in self.facts.walks}
        self.approvals = Approvals(self.task, self.texts)
        self.loops = LoopEnds(self.task)
        self.names = {walk for walk, _ in self.walks} | {at.name for at in steps_of(self.task)} | self.approvals.names
        """Names of steps; a text that begins with another name is a literal."""
        self.outside = Place(tuple(parts_of_request(self.task, self.given)))

    def all(self) -> Going:
        """Add all steps of the task."""
        for partition, steps in enumerate(lanes(self.task).values()):
            yield from self.add_all(steps, partition, self.outside)

    def add_all(self, steps: Sequence[Step], partition: int, place: Place) -> Going:
        self.left -= 1 + len(steps)
        if self.left < 0:
            message = f"this request expands to more than {MAX_STEPS} steps; give fewer parts, turns or passes"
            pointer = "/params" if self.passes else "/parts" if place.turn is None else "/inputs"
            raise InvalidInput(message, pointer)
        for step in steps:
            match step:
                case WalkStep():
                    self._add_first((step,), partition, place)
                case FirstStep():
                    self._add_first(step.first, partition, place)
                case ForStep():
                    yield from self._add_each(step, partition, place)
                case ChooseStep():
                    yield from self._choose(step, partition, place)
                case LoopStep():
                    yield from self._repeat(step, partition, place)
                case ApproveStep():
                    yield from self._ask(step, place)

    def _ask(self, step: ApproveStep, place: Place) -> Going:
        """Wait for a person; without legs, note only that what follows comes behind."""
        if self.untaken:
            self.approvals.pass_by(step, self.words, self.untaken, self.passes)
            return
        shown = tuple((name, self._bind(name, place)) for name in step.approve)
        number = self.approvals.reach(step, shown, self.cases, self.ends, self.words, self.passes)
        if self.needed is None:
            self.approvals.certain += 1
            return
        kept = dict.fromkeys(sources_of(self._bind(name, place)) for name in self.approvals.kept(step))
        flags = (beside(sources, flag) for sources in kept for flag in reasons_of(self.drafts, sources))
        decision = yield Approval(number, step, shown, tuple(dict.fromkeys((*kept, *flags))))
        self.approvals.decide(number, step, decision, len(self.drafts))
        self.loops.ended.clear()

    def _add_first(self, options: Sequence[WalkStep], partition: int, place: Place) -> None:
        taken: WalkStep | None = None
        for option in options:
            draft = None
            if not self.untaken and taken is None and self._holds(option, place):
                draft = len(self.drafts)
                self._add(option, partition, place)
            instead = None if self.untaken else taken
            seen = Seen(option, partition, place, instead, draft, self.words, self.untaken, self.passes)
            self.seen.append(seen)
            taken = option if draft is not None else taken

    def _choose(self, step: ChooseStep, partition: int, place: Place) -> Going:
        """Add the branches of a choice: one if its value is known, otherwise all of them."""
        source = self._bind(step.choose, place) if not self.untaken else None
        by_value = [*(f"`{step.choose}` is `{value}`" for value in step.cases), f"`{step.choose}` is another value"]
        value = as_text(source.value) if isinstance(source, FromLiteral) else None
        if isinstance(source, FromStep | FromLatest):
            fresh, value = self.approvals.apart(sources_of(source))
            if fresh or not sources_of(source):
                index, cases = len(self.choices), tuple(step.cases)
                otherwise = cases.index(value) if value in cases else -1
                self.choices.append(ChoiceDraft(FromLatest(fresh), cases, otherwise))
                if self.needed is None or not any(map(_stops, step.branches)):
                    yield from self._add_branches(step, partition, place, index, by_value)
                else:
                    verdict = yield index
                    yield from self.add_all(step.branches[_branch(verdict)], partition, place)
                return
        taken = list(step.cases).index(value) if value in step.cases else len(step.cases)
        said = f"`{step.choose}` is " + ("absent" if value is None else f"`{value[:80]}`")
        before = self.untaken
        for branch, steps in enumerate(step.branches):
            self.untaken = before or ("" if branch == taken else said)
            yield from self.add_all(steps, partition, place)
        self.untaken = before

    def _add_branches(self, step: ChooseStep, partition: int, place: Place, index: int, words: Sequence[str]) -> Going:
        outer, latest = (self.cases, self.words), self.latest
        found: dict[str, dict[int, None]] = {}
        before, certain = self.approvals.certain, list[int]()
        for branch, steps in enumerate(step.branches):
            self.approvals.certain = before
            self.cases, self.words, self.latest = (*outer[0], (index, branch)), (*outer[1], words[branch]), dict(latest)
            yield from self.add_all(steps, partition, place)
            certain.append(self.approvals.certain)
            for name, drafts in self.latest.items():
                found.setdefault(name, {}).update(dict.fromkeys(drafts))
        self.approvals.certain = min(certain)
        self.cases, self.words = outer
        self.latest = {name: tuple(sorted(drafts)) for name, drafts in found.items()}

    def _repeat(self, step: LoopStep, partition: int, place: Place) -> Going:
        """Add the passes of a loop."""
        if self.untaken:
            yield from self.add_all(step.loop, partition, place)
            return
        times, before, passes, ends = self._times(step), self.starts, self.passes, self.ends
        since = len(self.drafts), self.approvals.reached
        self.starts = before | {name: _Start(*since, self._bind(one, place)) for name, one in step.start.items()}
        exits: list[int] = []
        """The approvals that are certain to have come where the loop may end early."""
        count, reason = 0, None
        for number in range(times):
            begun, asked = len(self.drafts), self.approvals.reached
            self.passes = (*passes, number)
            yield from self.add_all(step.loop, partition, place)
            alive = any(draft.key in (self.needed or ()) for draft in self.drafts[begun:])
            if self.needed is not None and not (alive or self.approvals.reached > asked):
                continue
            ending, reason = self._ending(step, begun, asked)
            self.ends = (*ends, ending) if ending >= 0 else ends
            count += 1
            if reason is None and step.until is not None:
                exits.append(self.approvals.certain)
            if self.needed is not None and reason is None and (ending >= 0 or number + 1 < times):
                verdict = _branch((yield ending))
                reason = reason_of(self.choices[ending], verdict) if ending >= 0 else BOUND
            if reason not in (None, BOUND):
                break
        self.approvals.certain = min((*exits, self.approvals.certain))
        self.starts, self.passes, self.ends = before, passes, ends
        if self.needed is not None and step.until is not None and count:
            self.loops.end(step, count, reason or BOUND)

    def _times(self, step: LoopStep) -> int:
        try:
            return int(evaluate(parse(step.times), self.params))
        except (ExpressionError, ValueError) as error:
            message = f"the number of passes of a loop has no value with these parameters: {error}"
            raise InvalidInput(message, "/params") from None

    def _ending(self, step: LoopStep, begun: int, asked: int) -> tuple[int, str | None]:
        """(the choice that ends a loop, -1 for none; why it ends, `bound` if it doesn't, None while that isn't known),
        by a result of the pass whose drafts begin at `begun` and whose approvals at `asked`."""
        owner, _, result = (step.until or "").partition(".")
        if owner in self.approvals.names:
            decision = self.approvals.latest(owner, asked)
            return -1, None if decision is None else STOP if decision.approved else BOUND
        sources = tuple(FromStep(draft, result) for draft in self.latest.get(owner, ()) if draft >= begun)
        if self.needed is not None:
            sources = tuple(source for source in sources if self.drafts[source.step].key in self.needed)
        fresh, text = self.approvals.apart(sources)
        reasons = reasons_of(self.drafts, sources)
        flags = (flag for flag in reasons if self.approvals.apart(beside(sources, flag))[1] == "true")
        kept = next(flags, STOP) if text == "true" else BOUND
        if not fresh:
            return -1, kept if sources else None
        self.choices.append(ChoiceDraft(FromLatest(fresh), ("true",), verdict_of(reasons, kept), reasons))
        self.loops.passes.append(PassEnd(range(begun, len(self.drafts)), len(self.choices) - 1))
        return len(self.choices) - 1, None

    def _add_each(self, step: ForStep, partition: int, place: Place) -> Going:
        if self.untaken:
            return
        choices = step.branches
        of_turns = isinstance(step, TurnsStep)
        for kind, here, pointer in self._turns() if of_turns else _parts(place):
            if kind not in choices:
                kinds = ", ".join(f"`{kind}`" for kind in choices) or "none"
                what = "turns of role" if of_turns else "parts of modality"
                raise InvalidInput(f"the task takes no {what} `{kind[:80]}` here; it takes {kinds}", pointer)
            yield from self.add_all(choices[kind], partition, here)

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
            return evaluate(parse(step.when), params, self._index) is True
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
        key = id(step), place.part.name if place.part else "", place.turn.index if place.turn else -1
        draft = Draft(walk, partition, facts, bindings, self.cases, key, self.ends, self.passes, self.approvals.certain)
        self.drafts.append(draft)

    @property
    def _index(self) -> Mapping[str, int]:
        return {"index": self.passes[-1]} if self.passes else {}

    def _bind(self, binding: Scalar, place: Place) -> Binding | None:
        """The resolved binding; None if its source is absent: an input that wasn't given, or a step that doesn't
        run."""
        if not isinstance(binding, str):
            return FromLiteral(binding)
        if binding == "@part":
            return FromInput(place.part.name) if place.part is not None else None
        if place.turn is not None and binding.startswith("@turn."):
            return FromLiteral(place.turn.values[binding])
        if binding == "@loop.index":
            return FromLiteral(self.passes[-1]) if self.passes else None
        owner, dot, name = binding.partition(".")
        if owner == "@task":
            return self._bind_task(name)
        if dot and owner in self.names:
            return self._bind_result(binding, owner, name)
        return FromLiteral(binding)

    def _bind_result(self, binding: str, owner: str, result: str) -> Binding | None:
        """The latest run of a step; what the loop starts with if it has not run there."""
        start = self.starts.get(binding)
        if owner in self.approvals.names:
            found = self.approvals.binding(owner, result, start.asked if start is not None else 0)
            return start.binding if found is None and start is not None else found
        drafts = [draft for draft in self.latest.get(owner, ()) if start is None or draft >= start.since]
        steps = tuple(FromStep(draft, result) for draft in drafts)
        if not steps and start is not None:
            return start.binding
        return FromLatest(steps) if len(steps) > 1 else next(iter(steps), None)

    def nameable(self) -> Iterator[int]:
        """The drafts whose results a later step may still take."""
        for drafts in self.latest.values():
            yield from drafts
        for start in self.starts.values():
            yield from (source.step for source in sources_of(start.binding)) if start.binding is not None else ()

    def _bind_task(self, name: str) -> Binding | None:
        if name not in self.task.inputs:
            return FromLiteral(self.params[name])
        values = [value for value in self.given if value.input == name and value.turn is None]
        if len(values) > 1:
            raise InvalidInput(f"`{name}` takes one value and {len(values)} are given; give one", f"/inputs/{name}")
        return FromInput(values[0].name) if values else None

    def _refuse(self, step: WalkStep, binding: str) -> None:
        if binding.startswith("@task."):
            name = binding.removeprefix("@task.")
            raise InvalidInput(f"`{name}` is missing; step `{step.walk}` of this request needs it", f"/inputs/{name}")
        raise InvalidInput(f"`{step.walk}` needs `{binding}`, which no step gives with these parameters", "/params")


class _Start(NamedTuple):
    """The value that a result stands for at the start of a loop."""

    since: int
    """The first draft of the loop."""
    asked: int
    """The first approval of the loop."""
    binding: Binding | None


def _stops(steps: Iterable[Step]) -> bool:
    """True if a leg may end inside these steps."""
    return any(isinstance(step, LoopStep | ApproveStep) or any(map(_stops, inside(step))) for step in steps)


def _branch(answer: LegAnswer) -> int:
    """The branch that the ranks found to be taken."""
    if not isinstance(answer, int):
        raise TypeError("a choice takes a verdict, not a person's decision")
    return answer


_Each = tuple[str, Place, str]
"""The kind of a part or turn, where its steps stand, its pointer."""


def _parts(place: Place) -> Iterator[_Each]:
    for part in place.parts:
        yield part.modality, place._replace(part=part), part.pointer


def parts_of_request(task: Task, given: Sequence[Given]) -> list[Given]:
    """The values that `for: parts` goes through outside turns: those of inputs that no step binds by name."""
    named = by_name(task)
    return [one for one in given if one.input not in named and one.turn is None and one.modality != MESSAGES]
