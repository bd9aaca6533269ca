"""A plan's tables prepared for one rank: expressions parsed, edges sorted by their ends.

Made once, when the plan is loaded.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.ids import Rank
from walkgraph.placement.compiler.loop_contents import index_names
from walkgraph.placement.moves import sources_of
from walkgraph.placement.tables import (
    ChoicePlan,
    EdgePlan,
    FromStep,
    Itinerary,
    Leg,
    LoopPlan,
    NodePlan,
    Plan,
    Scalar,
    StepPlan,
    UsePlan,
    WalkPlan,
)
from walkgraph.worker.loops.lowering import DeviceLoop, Lowering, device_loops

Params = Mapping[str, Scalar]
Indices = Mapping[str, int]
Evaluator = Callable[[Params, Indices], Scalar]


@dataclass(frozen=True, slots=True)
class LoopTable:
    plan: LoopPlan
    times: Evaluator | None
    """The count of iterations; None for the loop `chunk`."""
    outer: tuple[str, ...]
    """Names of the loops around it, outermost first."""
    uses: tuple[int, ...]
    """This rank's uses inside it."""


@dataclass(frozen=True, slots=True)
class UseTable:
    plan: UsePlan
    node: NodePlan | None
    loop_names: tuple[str, ...]
    when: tuple[Evaluator, ...]
    literals: dict[str, Scalar]
    """Parameters that never change."""
    fixed: tuple[tuple[str, Evaluator], ...]
    """Parameters that depend only on the task's parameters."""
    computed: tuple[tuple[str, Evaluator], ...]
    """Parameters that depend on a loop's index."""
    varying: frozenset[str]
    """Those of `computed` that depend on the index of the device loop that holds the use."""
    inputs: tuple[tuple[str, tuple[EdgePlan, ...]], ...]
    """Port -> its edges: carried ones first, that of the innermost loop leading."""
    streams: tuple[tuple[EdgePlan, ...], ...]
    """The edges of the inputs that a stream feeds."""
    outputs: tuple[EdgePlan, ...]
    paced: tuple[EdgePlan, ...]
    """Edges into streams, whose credit a call needs."""
    before: tuple[tuple[int, int], ...]
    """(use, number of loops that hold both): uses that must have passed this iteration."""
    after: tuple[tuple[int, int], ...]
    """(use, number of loops that hold both): uses that must have finished the previous iteration."""
    neighbours: tuple[int, ...]
    """Uses in `before` and `after`, which may be able to go on when this one does."""
    judges: tuple[tuple[LoopPlan, str], ...]
    """Loops that this use may end, and the port that does."""
    scoped: tuple[tuple[str, int], ...]
    """(state name, number of leading indices in its key) for each of its `iteration` states."""
    cases: tuple[tuple[int, int, int], ...] = ()
    """(choice, number of loops around the choice, branch) for each branch around the use, outermost first."""
    decides: ChoicePlan | None = None
    """The choice that this use makes."""
    asked: tuple[str, ...] = ()
    """Its ports whose values are used once it has ended."""
    pieces: tuple[str, ...] = ()
    """Its ports whose values leave as a called task sends them."""
    device_loop: "DeviceLoopTable | None" = None
    """The device loop to run instead of a call, if the use stands for one."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a use in a device loop: all must hold, and are evaluated in order."""

    fixed: tuple[Evaluator, ...]
    """Conditions before the first one that depends on the device loop's index."""
    varying: tuple[Evaluator, ...]
    loop_names: tuple[str, ...]


class Reader(NamedTuple):
    """A follower that is sometimes skipped, as an edge to it sees it."""

    conditions: Conditions
    later: int
    """1 if it reads a value in the iteration after the value's own; otherwise 0."""


@dataclass(frozen=True, slots=True)
class DeviceLoopTable:
    loop: DeviceLoop
    lowering: Lowering
    uses: tuple[UseTable, ...]
    """The uses that it iterates, with their nodes and parameters."""
    conditions: tuple[Conditions, ...]
    """The conditions of each use."""
    readers: Mapping[int, Reader]
    """Followers that are sometimes skipped, by edge."""
    others: Mapping[int, Conditions]
    """Conditions of the uses in other ranks' parts."""
    times: Mapping[int, Evaluator]
    """Counts of the inner loops."""
    widths: Mapping[int, Evaluator]
    """Number of sequences of states that begin every iteration anew, or that may have several."""


@dataclass(frozen=True, slots=True)
class WalkTable:
    plan: WalkPlan
    uses: dict[int, UseTable]
    """This rank's uses."""
    loops: tuple[LoopTable, ...]
    branches: tuple[tuple[int, ...], ...]
    """For each choice, this rank's uses in its branches."""
    readers: dict[str, tuple[EdgePlan, ...]]
    """Walk input -> edges to this rank's uses."""
    streaming: tuple[int, ...]
    """Uses that a chunk or a credit may let go on."""
    stream_readers: dict[int, int]
    """Stream -> the number of this rank's uses that read it."""


def walk_tables(plan: Plan, rank: Rank) -> tuple[WalkTable, ...]:
    return tuple(_walk_table(plan, walk, rank) for walk in plan.walks)


def _walk_table(plan: Plan, stepped: WalkPlan, rank: Rank) -> WalkTable:
    walk, loops_here = device_loops(plan, stepped, rank)
    uses = {use.index: _use_table(plan, walk, use) for use in walk.uses if use.rank == rank}
    for index, loop in loops_here.items():
        uses[index] = _standing(plan, stepped, uses[index], loop)
    loops = tuple(_loop_table(walk, loop, uses) for loop in walk.loops)
    readers: dict[str, list[EdgePlan]] = defaultdict(list)
    for edge in walk.edges:
        if edge.source.kind == "input" and edge.target.use in uses:
            readers[edge.source.port].append(edge)
    reading = {(e.source.index, e.target.use) for e in walk.edges if e.source.kind == "stream" and e.target.use in uses}
    return WalkTable(
        plan=walk,
        uses=uses,
        loops=loops,
        branches=tuple(_in_branches(uses, choice) for choice in walk.choices),
        readers={name: tuple(edges) for name, edges in readers.items()},
        streaming=tuple(i for i, u in uses.items() if u.streams or u.paced),
        stream_readers=Counter(stream for stream, _ in reading),
    )


def _loop_table(walk: WalkPlan, loop: LoopPlan, uses: Mapping[int, UseTable]) -> LoopTable:
    outer: tuple[str, ...] = ()
    parent = loop.parent
    while parent >= 0:
        outer = (walk.loops[parent].name, *outer)
        parent = walk.loops[parent].parent
    return LoopTable(
        plan=loop,
        times=evaluator(loop.times) if loop.times else None,
        outer=outer,
        uses=tuple(index for index, use in uses.items() if loop.index in use.plan.loops),
    )


def _in_branches(uses: Mapping[int, UseTable], choice: ChoicePlan) -> tuple[int, ...]:
    return tuple(index for index, use in uses.items() if any(number == choice.index for number, _, _ in use.cases))


def _standing(plan: Plan, stepped: WalkPlan, use: UseTable, loop: DeviceLoop) -> UseTable:
    """The table of a standing use. Values that leave while the loop runs don't pass through the walker."""
    return replace(
        use,
        outputs=tuple(edge for edge in use.outputs if edge.leave != "each"),
        paced=tuple(edge for edge in loop.emits if edge.target.kind == "stream"),
        device_loop=_device_loop_table(plan, stepped, loop),
    )


def _device_loop_table(plan: Plan, stepped: WalkPlan, loop: DeviceLoop) -> DeviceLoopTable:
    uses = tuple(_use_table(plan, stepped, use, loop.plan) for use in loop.uses)
    return DeviceLoopTable(
        loop,
        Lowering(loop, [use.varying for use in uses]),
        uses,
        tuple(_conditions(stepped, use, loop.plan) for use in loop.uses),
        {
            edge.index: Reader(_conditions(stepped, use, loop.plan), int(edge.carried))
            for edge in loop.follows
            if (use := stepped.uses[edge.target.use]).when
        },
        {use.index: _conditions(stepped, use, loop.plan) for use in loop.others.values()},
        {inner: evaluator(stepped.loops[inner].times) for inside in loop.inside for inner in inside},
        {s: evaluator(plan.states[s].width) for s in _sized(plan, loop)},
    )


def _sized(plan: Plan, loop: DeviceLoop) -> set[int]:
    """States whose width an entry needs."""
    held = {state for node in loop.nodes for state in node.states.values()}
    wide = {s for s in held if plan.states[s].kind == "paged_kv" and plan.states[s].width != "1"}
    return {*loop.anew, *(fork.states[1] for fork in loop.forks), *wide}


def _conditions(walk: WalkPlan, use: UsePlan, loop: LoopPlan) -> Conditions:
    own = index_names(use, loop)
    count = next((i for i, text in enumerate(use.when) if not own.isdisjoint(parse(text).loops)), len(use.when))
    asked = tuple(evaluator(text) for text in use.when)
    return Conditions(asked[:count], asked[count:], tuple(walk.loops[i].name for i in use.loops))


def _judged(walk: WalkPlan, use: UsePlan) -> tuple[tuple[LoopPlan, str], ...]:
    """The loops that a use may end, and the port that does."""
    return tuple((walk.loops[i], port) for i in use.loops for by, port in walk.loops[i].endings if by == use.index)


def _use_table(plan: Plan, walk: WalkPlan, use: UsePlan, loop: LoopPlan | None = None) -> UseTable:
    """`loop`: the device loop that iterates it."""
    node = plan.nodes[use.node] if use.op == "call" else None
    ports: dict[str, list[EdgePlan]] = defaultdict(list)
    for edge in walk.edges:
        if edge.target.kind == "use" and edge.target.use == use.index:
            ports[edge.target.port].append(edge)
    params = node.params if node else {}
    expressions = [
        (name, *_with_default(str(value)[1:], (node.defaults if node else {}).get(name)))
        for name, value in params.items()
        if _is_expression(value)
    ]
    before = tuple((earlier, _shared(use, walk.uses[earlier])) for earlier in use.before)
    after = tuple(
        (later.index, _shared(use, later))
        for later in walk.uses
        if later.rank == use.rank and use.index in later.before
    )
    outputs = tuple(e for e in walk.edges if e.source.kind == "use" and e.source.use == use.index)
    own = index_names(use, loop) if loop is not None else frozenset[str]()
    return UseTable(
        plan=use,
        node=node,
        loop_names=tuple(walk.loops[i].name for i in use.loops),
        when=tuple(evaluator(text) for text in use.when),
        literals={name: value for name, value in params.items() if not _is_expression(value)},
        fixed=tuple((name, value) for name, value, loops in expressions if not loops),
        computed=tuple((name, value) for name, value, loops in expressions if loops),
        varying=frozenset(name for name, _, loops in expressions if not own.isdisjoint(loops)),
        inputs=tuple(
            (port, tuple(sorted(edges, key=lambda e: (not e.carried, -e.common)))) for port, edges in ports.items()
        ),
        streams=tuple(tuple(edges) for edges in ports.values() if any(e.source.kind == "stream" for e in edges)),
        outputs=outputs,
        paced=tuple(e for e in outputs if e.target.kind == "stream"),
        before=before,
        after=after,
        neighbours=tuple(other for other, _ in (*before, *after)),
        judges=(judges := _judged(walk, use)),
        asked=tuple(sorted({e.source.port for e in outputs if e.leave != "pieces"} | {port for _, port in judges})),
        pieces=tuple(sorted({e.source.port for e in outputs if e.leave == "pieces"})),
        cases=tuple((c, len(walk.uses[walk.choices[c].use].loops), branch) for c, branch in use.cases),
        decides=next((choice for choice in walk.choices if choice.use == use.index), None),
        scoped=tuple(
            (plan.states[state].name, walk.state_scopes[state])
            for state in (node.states.values() if node else use.states)
            if plan.states[state].scope == "iteration"
        ),
    )


def _shared(one: UsePlan, other: UsePlan) -> int:
    """The number of loops that hold both uses."""
    count = 0
    for a, b in zip(one.loops, other.loops, strict=False):
        if a != b:
            break
        count += 1
    return count


def _is_expression(value: Scalar) -> bool:
    return isinstance(value, str) and value.startswith("=")


def evaluator(text: str) -> Evaluator:
    expr = parse(text)
    return lambda params, loops: evaluate(expr, params, loops)


def _with_default(text: str, default: Scalar | None) -> tuple[Evaluator, frozenset[str]]:
    """An evaluator, and the names of the loops whose indices it reads."""
    expr = parse(text)

    def value(params: Params, loops: Indices) -> Scalar:
        if default is not None and not (expr.names <= params.keys() and expr.loops <= loops.keys()):
            return default
        return evaluate(expr, params, loops)

    return value, expr.loops


def result_edges(plan: Plan, steps: Sequence[StepPlan], source: FromStep) -> tuple[EdgePlan, ...]:
    """The edges that give a step's result: several if it comes from a merge."""
    edges = plan.walks[steps[source.step].walk].edges
    return tuple(edge for edge in edges if edge.target.kind == "result" and edge.target.port == source.result)


def deciding_rank(plan: Plan, steps: Sequence[StepPlan], source: FromStep) -> Rank:
    """The rank that makes the choices by a result."""
    walk = plan.walks[steps[source.step].walk]
    return walk.uses[result_edges(plan, steps, source)[0].source.use].rank


def result_readers(plan: Plan, steps: Sequence[StepPlan], leg: Itinerary | Leg, source: FromStep) -> frozenset[Rank]:
    """Ranks that read a step's result in a step of a leg, make one of its choices by it, or send it to be kept."""
    decided = any(source in one.sources for one in (*leg.choices, *leg.keep))
    ranks = {deciding_rank(plan, steps, source)} if decided else set[Rank]()
    for later in leg.steps:
        names = {name for name, binding in later.bindings.items() if source in sources_of(binding)}
        walk = plan.walks[later.walk]
        ranks |= {
            walk.uses[e.target.use].rank
            for e in walk.edges
            if e.source.kind == "input" and e.source.port in names and e.target.kind == "use"
        }
    return frozenset(ranks)


__all__ = [
    "Conditions",
    "DeviceLoopTable",
    "Evaluator",
    "ExpressionError",
    "LoopTable",
    "Reader",
    "UseTable",
    "WalkTable",
    "deciding_rank",
    "evaluator",
    "result_edges",
    "result_readers",
    "walk_tables",
]
