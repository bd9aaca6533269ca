"""The columns of a plan's tables as one rank needs them: expressions parsed, edges sorted by their ends."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from walkgraph.abi.calls import Link
from walkgraph.engine.calls.readback import read_back
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.ids import Rank
from walkgraph.placement.compiler.loop_contents import index_names
from walkgraph.placement.moves import sources_of
from walkgraph.placement.tables import (
    BOUND,
    STOP,
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
    flag_beside,
)
from walkgraph.worker.loops.lowering import DeviceLoop, Lowering
from walkgraph.worker.tables.use_ends import Streams, UseEnds

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


class TimedPort(NamedTuple):
    """A port fed by a stream whose items are played as they come."""

    port: str
    seconds: float
    """Playback of an item."""
    plays: bool
    """As in `Timed`."""


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
    judges: "tuple[Judge, ...]"
    """Loops that this use may end."""
    scoped: tuple[tuple[str, int], ...]
    """(state name, number of leading indices in its key) for each of its `iteration` states."""
    cases: tuple[tuple[int, int, int], ...] = ()
    """(choice, number of loops around the choice, branch) for each branch around the use, outermost first."""
    decides: ChoicePlan | None = None
    """The choice that this use makes."""
    looped: bool = False
    """True if a loop is around it; maps don't count."""
    asked: tuple[str, ...] = ()
    """Its ports whose values are used once it has ended."""
    pieces: tuple[str, ...] = ()
    """Its ports whose values leave as a called task sends them."""
    readers: tuple[tuple[str, Streams], ...] = ()
    """Port with edges -> the streams at their ends, one of which a run must read to need the value; None: it is always
    needed."""
    streamed: frozenset[str] = frozenset()
    """Ports whose values go only into streams."""
    sent: "tuple[SentPort, ...]" = ()
    """Ports whose values leave for the client, and that nothing else on the host reads."""
    only_sent: bool = False
    """True if a call changes nothing and is only made for what it gives the client."""
    counts: LoopPlan | None = None
    """The map whose items this use counts."""
    links: "tuple[tuple[Link, UseTable], ...]" = ()
    """The calls of the chain that the use stands for, which ends with it."""
    device_loop: "DeviceLoopTable | None" = None
    """The device loop to run instead of a call, if the use stands for one."""
    map: "MapTable | None" = None
    """The map to walk instead of a call, if the use stands for one."""
    timed: "TimedPort | None" = None
    """The port that reads what is played as it comes."""


class SentPort(NamedTuple):
    port: str
    edges: tuple[EdgePlan, ...]
    """The edges to the client."""
    alone: bool
    """No other edge begins at the port."""


class Judge(NamedTuple):
    """A loop that a use may end."""

    loop: LoopPlan
    port: str
    """The flag that ends it."""
    reasons: tuple[str, ...]
    """Flags that say why."""

    def reason(self, outputs: Mapping[str, Any]) -> str:
        """Why an iteration is the last one; `bound` if the flag doesn't say that it is."""
        if not outputs.get(self.port):
            return BOUND
        return next((name for name in self.reasons if outputs.get(name)), STOP)


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
class MapTable:
    """A rank's uses in a map. For the walker around the map, one use stands for them."""

    plan: LoopPlan
    depth: int
    """The number of loops around it."""
    width: Evaluator
    body: "WalkTable"
    """The table by which one item is walked."""
    collected: tuple[EdgePlan, ...]
    """Edges whose values are collected here, as the standing use has them."""
    sent: tuple[EdgePlan, ...]
    """Edges whose values leave item by item, among those of other ranks, so that absent ones are told too."""


@dataclass(frozen=True, slots=True)
class Inside:
    """Uses, loops and choices inside the maps of a table, each with the use that stands for its map."""

    uses: Mapping[int, int]
    loops: Mapping[int, int]
    choices: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class WalkTable:
    plan: WalkPlan
    uses: dict[int, UseTable]
    """This rank's uses; for those in a map, one that stands for them."""
    inside: Inside
    loops: tuple[LoopTable, ...]
    branches: tuple[tuple[int, ...], ...]
    """For each choice, this rank's uses in its branches."""
    readers: dict[str, tuple[EdgePlan, ...]]
    """Walk input -> edges to this rank's uses."""
    streaming: Mapping[int, tuple[int, ...]]
    """Stream -> uses that a chunk or a credit of it may let go on."""
    stream_readers: dict[int, int]
    """Stream -> the number of this rank's uses that read it."""
    homes: Mapping[int, Rank] = field(default_factory=dict[int, Rank])
    """Lasting states that it uses -> their rank; empty if no state moves in parts."""
    parts: int = -1
    """The state that it moves in parts."""

    def use(self, index: int) -> UseTable:
        """One of this rank's uses, also in a map."""
        standing = self.inside.uses.get(index)
        inner = self.uses[index if standing is None else standing]
        return inner if standing is None or inner.map is None else inner.map.body.use(index)


def _judged(walk: WalkPlan, use: UsePlan, node: NodePlan | None) -> Iterator[Judge]:
    """The loops that a use may end."""
    reasons = node.reasons if node is not None else {}
    for loop in (walk.loops[index] for index in use.loops):
        yield from (Judge(loop, port, reasons.get(port, ())) for by, port in loop.endings if by == use.index)


def use_table(plan: Plan, walk: WalkPlan, ends: UseEnds, use: UsePlan, loop: LoopPlan | None = None) -> UseTable:
    """`loop`: the device loop that iterates it."""
    node = plan.nodes[use.node] if use.op == "call" else None
    ports: dict[str, list[EdgePlan]] = defaultdict(list)
    for edge in ends.entering.get(use.index, ()):
        ports[edge.target.port].append(edge)
    params = node.params if node else {}
    expressions = [
        (name, *_with_default(str(value)[1:], (node.defaults if node else {}).get(name)))
        for name, value in params.items()
        if _is_expression(value)
    ]
    before = tuple((earlier, _shared(use, walk.uses[earlier])) for earlier in use.before)
    after = tuple((later.index, _shared(use, later)) for later in ends.followers.get(use.index, ()))
    outputs = tuple(ends.leaving.get(use.index, ()))
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
        judges=(judges := tuple(_judged(walk, use, node))),
        looped=any(not walk.loops[i].width for i in use.loops),
        asked=tuple(sorted({e.source.port for e in outputs if e.leave != "pieces"} | {judge.port for judge in judges})),
        pieces=tuple(sorted({e.source.port for e in outputs if e.leave == "pieces"})),
        cases=tuple((c, len(walk.uses[walk.choices[c].use].loops), branch) for c, branch in use.cases),
        decides=ends.decides.get(use.index),
        readers=_readers(ends, use),
        streamed=_streamed(ends, use),
        sent=tuple(_sent(plan, walk, use, outputs)),
        only_sent=_only_sent(node, outputs) and not judges and ends.decides.get(use.index) is None,
        counts=ends.counts.get(use.index),
        scoped=tuple(
            (plan.states[state].name, walk.state_scopes[state])
            for state in (node.states.values() if node else use.states)
            if plan.states[state].scope == "iteration"
        ),
        timed=_timed(plan, ends, use, outputs),
    )


def _timed(plan: Plan, ends: UseEnds, use: UsePlan, outputs: Sequence[EdgePlan]) -> TimedPort | None:
    """The first timed stream of which this is the first use in the Walk, so that an item is counted once."""
    mine = ends.plays.get(use.index)
    if mine is None:
        return None
    fed = {e.target.index for e in outputs if e.target.kind == "stream"}
    passed_on = any(plan.streams[i].seconds and use.rank in plan.streams[i].consumers for i in fed)
    return TimedPort(mine.target.port, plan.streams[mine.source.index].seconds, not passed_on)


def _readers(ends: UseEnds, use: UsePlan) -> tuple[tuple[str, Streams], ...]:
    """`UseTable.readers`."""
    found: dict[str, Streams] = {}
    for edge in ends.leaving.get(use.index, ()):
        streams, port = ends.reached(edge), edge.source.port
        known = found.get(port, frozenset())
        found[port] = None if streams is None or known is None else known | streams
    return tuple(found.items())


def _streamed(ends: UseEnds, use: UsePlan) -> frozenset[str]:
    """`UseTable.streamed`."""
    edges = ends.leaving.get(use.index, ())
    others = {edge.source.port for edge in edges if edge.target.kind != "stream" or edge.leave != "none"}
    return frozenset(edge.source.port for edge in edges) - others


def _sent(plan: Plan, walk: WalkPlan, use: UsePlan, outputs: Sequence[EdgePlan]) -> Iterator[SentPort]:
    """`UseTable.sent`."""
    ending = {port for loop in walk.loops for by, port in loop.endings if by == use.index}
    for port in dict.fromkeys(edge.source.port for edge in outputs if edge.target.kind == "out"):
        edges = [edge for edge in outputs if edge.source.port == port]
        to_client = tuple(edge for edge in edges if edge.target.kind == "out")
        read = any(read_back(plan, walk, edge) for edge in edges if edge.target.kind != "out")
        if not read and port not in ending:
            yield SentPort(port, to_client, len(to_client) == len(edges))


def _only_sent(node: NodePlan | None, outputs: Sequence[EdgePlan]) -> bool:
    """`UseTable.only_sent`, as far as it depends on these."""
    if node is None or node.states or node.task or not outputs:
        return False
    return all(edge.target.kind == "out" and edge.leave in ("none", "each") for edge in outputs)


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


def result_readers(plan: Plan, steps: Sequence[StepPlan], leg: Itinerary | Leg) -> Mapping[FromStep, set[Rank]]:
    """Step's result -> the ranks that read it in a step of a leg, make one of its choices by it, or send it to be
    kept."""
    found = defaultdict[FromStep, set[Rank]](set)
    for choice in leg.choices:
        for source in choice.sources:
            beside = (FromStep(source.step, flag_beside(source.result, flag)) for flag in choice.reasons)
            for read in (source, *beside):
                found[read].add(deciding_rank(plan, steps, source))
    for source in (source for one in leg.keep for source in one.sources if result_edges(plan, steps, source)):
        found[source].add(deciding_rank(plan, steps, source))
    ranks = {step.walk: _input_ranks(plan.walks[step.walk]) for step in leg.steps}
    for step in leg.steps:
        for name, binding in step.bindings.items():
            for source in sources_of(binding):
                found[source] |= ranks[step.walk].get(name, set())
    return found


def _input_ranks(walk: WalkPlan) -> Mapping[str, set[Rank]]:
    """Walk input -> the ranks of the uses that read it."""
    found = defaultdict[str, set[Rank]](set)
    for edge in walk.edges:
        if edge.source.kind == "input" and edge.target.kind == "use":
            found[edge.source.port].add(walk.uses[edge.target.use].rank)
    return found


__all__ = [
    "Conditions",
    "DeviceLoopTable",
    "Evaluator",
    "ExpressionError",
    "Inside",
    "LoopTable",
    "MapTable",
    "Reader",
    "UseTable",
    "WalkTable",
    "deciding_rank",
    "evaluator",
    "result_edges",
    "result_readers",
    "use_table",
]
