"""Explain a request without running it: the steps taken, the counts of loops, the uses called.

The steps are those that the conductor would fix at admission (`itinerary.expanded`); conditions of uses and counts of
loops are the tables' own expressions, evaluated with the request's parameters. Values that networks compute (`until`)
are unknown here, so counts of iterations and passes are upper bounds, and of a choice by such a value all branches are
shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.conversation import MESSAGES, Role
from walkgraph.graph.document import Graph
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.language.syntax import Binary, Syntax, literal, parts, spell
from walkgraph.graph.language.syntax import Param as Name
from walkgraph.graph.steps import lanes, steps_of
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import ALL, Group, Placement, RankDevice
from walkgraph.placement.expansion.state_machine import Seen, parts_of_request
from walkgraph.placement.itinerary import expanded
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import Plan, Scalar, UsePlan, WalkPlan

MAX_VALUES = 64
"""The most values and parts of one request."""
MAX_USES = 20_000
"""The most lines of an answer."""
MAX_EVALUATIONS = 50_000
"""The most evaluations of conditions that read a loop's index, and of parts of conditions. Beyond it answers are less
exact."""


@dataclass(frozen=True)
class Value:
    """A part or a value of an input; only its modality matters."""

    modality: str
    value: None = None


@dataclass(frozen=True)
class SimulatedTurn:
    """A turn of a conversation; only its role and the modalities of its parts matter."""

    role: Role
    parts: tuple[Value, ...]
    tool_calls: tuple[()] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True)
class _Chat:
    turns: tuple[SimulatedTurn, ...]


@dataclass(frozen=True)
class PartAt:
    modality: str
    index: int
    """Position among the parts; inside a turn, among that turn's."""


@dataclass(frozen=True)
class RoleAt:
    role: Role
    index: int
    """Position of the turn."""


@dataclass(frozen=True)
class UseSeen:
    use: str
    node: str
    taken: bool | None
    """None: in some iterations only, or unknown."""
    why: str
    iterations: int | None
    """The most calls; None if that can't be computed."""


@dataclass(frozen=True)
class StepSeen:
    pointer: str
    """Relative to the task, in the author's spelling: `/steps/0/text/1`."""
    walk: str
    as_: str | None
    part: PartAt | None
    turn: RoleAt | None
    taken: bool | None
    """None: a result of an earlier step decides."""
    why: str
    loops: Mapping[str, int | None]
    """Loop -> the most iterations; None where that depends on the loop around it, or a stream ends it."""
    uses: tuple[UseSeen, ...]
    """The uses of a step that is taken, in program order."""
    passes: int | None = None
    """The most passes of the loops of steps around it in which it is taken; None outside such loops."""


@dataclass(frozen=True)
class PartitionSeen:
    lane: str
    """The partition's list of steps; empty where the task has a single list."""
    steps: tuple[StepSeen, ...]


@dataclass(frozen=True)
class Simulation:
    params: Mapping[str, Scalar]
    """All parameters of the task. A seed that wasn't given is 0 here; a real request draws one."""
    lanes: tuple[PartitionSeen, ...]


def simulate(
    graph: Graph,
    catalogue: Catalogue,
    task: str,
    params: Mapping[str, Scalar],
    inputs: Mapping[str, int],
    modalities: Sequence[str] = (),
    turns: Sequence[SimulatedTurn] = (),
) -> Simulation:
    """Simulate one request. `graph`: accepted by `check`. `inputs`: the number of values of each. `modalities`: those
    of the parts, in order. `turns`: the conversation, for each value of an input that takes messages.

    Raises InvalidInput or NotFound with a pointer into the request (`/params/steps`, `/inputs/image`, `/parts/2`), as
    the request itself would be refused.
    """
    found = task_of(graph, task)
    _bounded(inputs, [*modalities, *(part.modality for turn in turns for part in turn.parts)], len(turns))
    chats = {name for name, declared in found.inputs.items() if declared.modality == MESSAGES}
    values = {k: [_Chat(tuple(turns)) if k in chats else None] * n for k, n in inputs.items()}
    given = name_inputs(found, values, [Value(m) for m in modalities])
    filled = fill_params(found, {"seed": 0, **params} if "seed" not in found.params else params)
    plan = assemble(Assignment(graph, _ONE_RANK), catalogue)
    expansion, kept = expanded(Facts(plan), found, filled, given, found.outputs)
    drafts = expansion.drafts
    lines = sum(len(plan.walks[drafts[i].walk].uses) for i in kept)
    if lines > MAX_USES:
        message = f"this request calls {lines} uses, and at most {MAX_USES} can be shown; give fewer parts"
        raise InvalidInput(message, "/parts" if modalities else "/inputs")
    pointers = {id(at.step): at.pointer for at in steps_of(found)}
    walked = [value.name for value in parts_of_request(found, given)]
    explainer = _Explainer(plan, filled, {i: drafts[i].walk for i in kept})
    shown: list[list[StepSeen]] = [[] for _ in lanes(found)]
    for passes in _by_pass(expansion.seen):
        part, turn = passes[0].place.part, passes[0].place.turn
        among = [one.name for one in passes[0].place.parts] if turn else walked
        at = PartAt(part.modality, among.index(part.name)) if part else None
        shown[passes[0].partition].append(explainer.step(passes, pointers[id(passes[0].step)], at))
    return Simulation(filled, tuple(PartitionSeen(n, tuple(s)) for n, s in zip(lanes(found), shown, strict=True)))


def _by_pass(seen: Iterable[Seen]) -> list[list[Seen]]:
    """A step outside loops of steps by itself, and one inside with all of its passes."""
    found: list[list[Seen]] = []
    known: dict[tuple[object, ...], list[Seen]] = {}
    for one in seen:
        part, turn = one.place.part, one.place.turn
        key = id(one.step), one.partition, part and part.name, turn and turn.index
        if one.passes and key in known:
            known[key].append(one)
            continue
        found.append([one])
        if one.passes:
            known[key] = found[-1]
    return found


_ONE_RANK = Placement(
    name="one_rank", groups=(Group(nodes=(ALL,), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),)
)


def _bounded(inputs: Mapping[str, int], modalities: Sequence[str], turns: int) -> None:
    for name, number in inputs.items():
        if not 0 <= number <= MAX_VALUES:
            raise InvalidInput(f"give 0 to {MAX_VALUES} values of `{name[:80]}`", f"/inputs/{name[:80]}")
    total = sum(inputs.values()) + len(modalities) + turns
    if total > MAX_VALUES:
        raise InvalidInput(
            f"{total} values, parts and turns are given, more than the {MAX_VALUES} allowed; give fewer", "/parts"
        )


class _Explainer:
    """Words the reasons. A Walk's behaviour depends only on the parameters, so each Walk is explained once."""

    def __init__(self, plan: Plan, params: Mapping[str, Scalar], live: Mapping[int, int]) -> None:
        """`live`: draft that runs -> index of its Walk's table."""
        self.plan = plan
        self.params = params
        self.live = live
        self.left = MAX_EVALUATIONS
        self.said: dict[tuple[str, bool], str] = {}
        self.known: dict[int, tuple[dict[str, int | None], tuple[UseSeen, ...]]] = {}

    def step(self, passes: Sequence[Seen], pointer: str, part: PartAt | None) -> StepSeen:
        """Explain a step, in all its passes."""
        taken = [one for one in passes if one.draft in self.live]
        seen = (taken or passes)[0]
        found = self.once(seen, pointer, part)
        if not seen.passes:
            return found
        why = found.why
        if taken:
            count = f"{len(taken)} of {len(passes)} passes" if len(taken) < len(passes) else _passes(len(passes))
            why = f"in up to {count}" + (f"; {why}" if why != "always" else "")
        return replace(found, why=why, passes=len(taken))

    def once(self, seen: Seen, pointer: str, part: PartAt | None) -> StepSeen:
        loops: Mapping[str, int | None] = {}
        uses: tuple[UseSeen, ...] = ()
        taken = (None if seen.cases else True) if seen.draft in self.live else False
        if seen.draft is not None and seen.draft in self.live:
            loops, uses = self.walk(self.live[seen.draft])
        turn = RoleAt(seen.place.turn.role, seen.place.turn.index) if seen.place.turn else None
        return StepSeen(pointer, seen.step.walk, seen.step.as_, part, turn, taken, self.why(seen), loops, uses)

    def why(self, seen: Seen) -> str:
        if seen.untaken:
            return f"another branch is taken: {seen.untaken}"
        if seen.instead is not None:
            return f"an earlier choice is taken: `{seen.instead.walk}`"
        if seen.draft is not None and seen.draft not in self.live:
            return "no output of the task needs it"
        words = [f"only if {case}" for case in seen.cases]
        if seen.step.when is not None:
            words.append(self._condition(seen, seen.step.when))
        return "; ".join(words) or "always"

    def _condition(self, seen: Seen, when: str) -> str:
        if parse(when).loops:
            return f"`{when}`"
        if seen.place.turn is None or "@turn." not in when:
            return self.sentence(when, holds=seen.draft is not None)
        inside = _Explainer(self.plan, {**self.params, **seen.place.turn.values}, self.live)
        return inside.sentence(when, holds=seen.draft is not None)

    def walk(self, index: int) -> tuple[dict[str, int | None], tuple[UseSeen, ...]]:
        if index not in self.known:
            walk = self.plan.walks[index]
            times = [self.times(loop.times) for loop in walk.loops]
            names = {loop.name: times[loop.index] for loop in walk.loops}
            uses = tuple(self.use(walk, use, times) for use in walk.uses if use.op == "call")
            self.known[index] = names, uses
        return self.known[index]

    def times(self, text: str) -> int | None:
        """The most iterations; None if that depends on a loop around it, or has no value."""
        if not text or parse(text).loops:
            return None
        try:
            return max(0, int(evaluate(parse(text), self.params)))
        except (ExpressionError, ValueError):
            return None

    # ── uses ──

    def use(self, walk: WalkPlan, use: UsePlan, times: Sequence[int | None]) -> UseSeen:
        """Explain a use. In a branch it may be called or not, as far as its conditions let it."""
        seen = self.wherever(walk, use, times)
        if not use.cases or seen.taken is False:
            return seen
        words = [f"only if {_case(walk, *case)}" for case in use.cases]
        return replace(seen, taken=None, why="; ".join([*words, *([seen.why] if seen.why != "always" else [])]))

    def wherever(self, walk: WalkPlan, use: UsePlan, times: Sequence[int | None]) -> UseSeen:
        """Explain a use as if its branch were taken."""
        node = self.plan.nodes[use.node].name
        for loop in use.loops:
            if times[loop] == 0:
                return UseSeen(use.name, node, False, f"loop `{walk.loops[loop].name}` turns 0 times", 0)
        fixed = [text for text in use.when if not parse(text).loops]
        for text in fixed:
            if self.holds(text, {}) is not True:
                return UseSeen(use.name, node, False, self.sentence(text, holds=False), 0)
        turning = [text for text in use.when if parse(text).loops]
        if turning:
            return self.turning(walk, use, node, turning, times)
        why = "; ".join(self.sentence(text, holds=True) for text in fixed) or "always"
        return UseSeen(use.name, node, True, why, _product([times[loop] for loop in use.loops]))

    def turning(
        self, walk: WalkPlan, use: UsePlan, node: str, whens: Sequence[str], times: Sequence[int | None]
    ) -> UseSeen:
        """Explain a use whose conditions read a loop's index."""
        for text in (part for when in whens for part in self.joined(when)):
            if not parse(text).loops and self.holds(text, {}) is False:
                return UseSeen(use.name, node, False, self.sentence(text, holds=False), 0)
        counts = [times[loop] for loop in use.loops]
        total = _product(counts)
        condition = " and ".join(f"`{text}`" for text in whens)
        around = " and ".join(f"`{walk.loops[loop].name}`" for loop in use.loops)
        if total is None or total * len(whens) > self.left:
            return UseSeen(use.name, node, None, f"{condition} depends on the iteration of {around}", None)
        self.left -= total * len(whens)
        names = [walk.loops[loop].name for loop in use.loops]
        taken = sum(
            all(self.holds(text, where) is True for text in whens)
            for where in _vectors(names, [count for count in counts if count is not None])
        )
        why = f"{condition} holds in {taken} of {total} iterations of {around}"
        if 0 < taken < total:
            return UseSeen(use.name, node, None, why, taken)
        return UseSeen(use.name, node, taken > 0, f"{why}: {self.values(whens)}", taken)

    def holds(self, text: str, where: Mapping[str, int]) -> bool | None:
        """The truth of a condition; None if it has no value."""
        try:
            return evaluate(parse(text), self.params, where) is True
        except ExpressionError:
            return None

    def joined(self, text: str) -> list[str]:
        """The operands of the top-level `and`s; the whole expression once the budget is spent."""
        found = list(_conjuncts(parse(text).tree))
        self.left -= len(found)
        return [spell(part) for part in found] if self.left >= 0 else [text]

    # ── words ──

    def sentence(self, text: str, *, holds: bool) -> str:
        """`cfg_text_scale > 1 is false: cfg_text_scale = 1`. Of several conditions joined by `and` it names the first
        false one."""
        key = text, holds
        if key not in self.said:
            self.said[key] = self.worded(text, holds=holds)
        return self.said[key]

    def worded(self, text: str, *, holds: bool) -> str:
        if not holds:
            text = next((part for part in self.joined(text) if self.holds(part, {}) is not True), text)
            if self.holds(text, {}) is None:
                return f"{text} has no value with these parameters"
        values = self.values([text])
        return f"{text} is {'true' if holds else 'false'}" + (f": {values}" if values else "")

    def values(self, texts: Sequence[str]) -> str:
        names = dict.fromkeys(p.name for text in texts for p in parts(parse(text).tree) if isinstance(p, Name))
        return ", ".join(f"{name} = {_said(self.params[name])}" for name in names if name in self.params)


def _passes(count: int) -> str:
    return "1 pass" if count == 1 else f"{count} passes"


def _case(walk: WalkPlan, index: int, branch: int) -> str:
    choice = walk.choices[index]
    value = f"`{choice.cases[branch]}`" if branch < len(choice.cases) else "another value"
    return f"`{choice.by}` is {value}"


def _said(value: Scalar) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return literal(int(value) if whole else value)[:80]


def _conjuncts(tree: Syntax) -> Iterator[Syntax]:
    if isinstance(tree, Binary) and tree.op == "and":
        yield from _conjuncts(tree.left)
        yield from _conjuncts(tree.right)
    else:
        yield tree


def _product(counts: Sequence[int | None]) -> int | None:
    total = 1
    for count in counts:
        if count is None:
            return None
        total *= count
    return total


def _vectors(names: Sequence[str], counts: Sequence[int]) -> Iterator[dict[str, int]]:
    """The indices of every iteration, by the loops' names and, for the innermost, as `index`."""
    for at in product(*(range(count) for count in counts)):
        yield {**dict(zip(names, at, strict=True)), "index": at[-1]}
