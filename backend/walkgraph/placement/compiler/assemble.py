"""Assemble all tables of a plan from a graph and an assignment: nodes, states, Walks, chunked twins, state moves,
streams, ranks."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue, Component
from walkgraph.graph.checks.called import with_own
from walkgraph.graph.document import Graph, Node, Stream, Task
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.steps import StepAt, steps_of
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assignment import Assignment, expert_parallel, sequence_parallel
from walkgraph.placement.compiler.compile import chunked, compile_walk, move
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.compiler.loop_decisions import settle
from walkgraph.placement.compiler.usual import with_usual
from walkgraph.placement.document import PRECISION, Placement
from walkgraph.placement.host.topology import Topology
from walkgraph.placement.tables import (
    Alternative,
    EdgeSource,
    NodePlan,
    Plan,
    RankPlan,
    Scalar,
    StatePlan,
    StreamPlan,
    Target,
    WalkPlan,
    WeightsPlan,
)
from walkgraph.placement.transports import Transports, choice, declared_transports

End = TypeVar("End", EdgeSource, Target)


def assemble(
    assignment: Assignment,
    catalogue: Catalogue,
    *,
    resident: bool = True,
    transports: Transports | None = None,
    topologies: Mapping[str, Topology] | None = None,
) -> Plan:
    """The plan without budgets. Total: faulty parts of a graph or a placement are left out.

    `resident`: run loops on the device where possible; otherwise all are stepped. `transports`: the choice of
    transports; None: all declared ones. `topologies`: of the hosts, the one that plans first; None: nothing is known of
    any.
    """
    graph, placement = assignment.graph, assignment.placement
    devices = {Rank(r.rank): r.device for r in placement.ranks}
    known = with_own(catalogue, graph)
    transports = declared_transports() if transports is None else transports
    chosen = choice(transports, placement.transport)
    contexts = [Context(one, known, chosen, topologies or {}) for one in assignment.alternatives]
    nodes = tuple(_node(contexts[0], i, name, node) for i, (name, node) in enumerate(graph.nodes.items()))
    tables = [_tables(context, nodes, resident=resident) for context in contexts]
    walks, streams, alternatives = _joined(contexts, tables)
    called = _called(walks)
    return Plan(
        graph=graph.name,
        digest=digest(graph, placement),
        nodes=nodes,
        weights={name: WeightsPlan(family=w.family, source=w.source) for name, w in graph.weights.items()},
        states=tuple(_states(graph)),
        walks=walks,
        streams=streams,
        ranks=tuple(_rank(called, contexts[0], rank, device) for rank, device in sorted(devices.items())),
        alternatives=alternatives,
        transport=placement.transport or "",
    )


def digest(graph: Graph, placement: Placement) -> str:
    """SHA-256 in 64 hex digits over everything that determines the plan."""
    text = json.dumps([codec.digest(graph), placement.model_dump(mode="json")], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


# ── walks ───────────────────────────────────────────────────────────────────────────────────────

_Tables = tuple[tuple[WalkPlan, ...], tuple[StreamPlan, ...]]


def _tables(context: Context, nodes: Sequence[NodePlan], *, resident: bool) -> _Tables:
    """The Walks and streams of one alternative, numbered as if there were no other."""
    graph = context.assignment.graph
    made = (with_usual(graph, nodes, walk) for walk in _walks(context))
    walks = tuple(settle(context, nodes, walk, resident=resident) for walk in made)
    return walks, tuple(_stream(context, walks, i, stream) for i, stream in enumerate(graph.streams))


def _walks(context: Context) -> Iterator[WalkPlan]:
    structures = context.assignment.walks
    plain = {name: compile_walk(context, walk, i) for i, (name, walk) in enumerate(structures.items())}
    yield from plain.values()
    index = len(plain)
    for name in _per_chunk(context.assignment.graph):
        if name in plain:
            yield chunked(context, plain[name], index)
            index += 1


def _joined(
    contexts: Sequence[Context], tables: Sequence[_Tables]
) -> tuple[tuple[WalkPlan, ...], tuple[StreamPlan, ...], tuple[Alternative, ...]]:
    """The tables of all alternatives, numbered one after the other, with the state moves behind them."""
    walks: list[WalkPlan] = []
    streams: list[StreamPlan] = []
    begins: list[int] = []
    for here, of_here in tables:
        begins.append(len(walks))
        after = len(walks), len(streams)
        walks.extend(_numbered(walk, *after) for walk in here)
        streams.extend(_numbered_stream(stream, *after) for stream in of_here)
    moved: dict[tuple[str, Rank, Rank], int] = {}
    alternatives: list[Alternative] = []
    for context, (here, _), first in zip(contexts, tables, begins, strict=True):
        found = [*range(first, first + len(here))]
        for way in moves(context.assignment):
            if way not in moved:
                moved[way] = len(walks)
                walks.append(move(context, *way, len(walks)))
            found.append(moved[way])
        ranks = sorted({rank for walk in found for rank in walks[walk].ranks})
        chosen = dict(context.assignment.replicas)
        alternatives.append(
            Alternative(index=len(alternatives), replicas=chosen, walks=tuple(found), ranks=tuple(ranks))
        )
    return tuple(walks), tuple(streams), tuple(alternatives)


def _numbered(walk: WalkPlan, walks: int, streams: int) -> WalkPlan:
    """The Walk behind this many other Walks and streams."""
    return replace(
        walk,
        index=walk.index + walks,
        loops=tuple(
            loop if loop.stream is None else replace(loop, stream=loop.stream + streams) for loop in walk.loops
        ),
        edges=tuple(
            replace(edge, source=_numbered_end(edge.source, streams), target=_numbered_end(edge.target, streams))
            for edge in walk.edges
        ),
    )


def _numbered_end(end: End, streams: int) -> End:
    return replace(end, index=end.index + streams) if end.kind == "stream" else end


def _numbered_stream(stream: StreamPlan, walks: int, streams: int) -> StreamPlan:
    return replace(stream, index=stream.index + streams, walks=tuple(walk + walks for walk in stream.walks))


def _per_chunk(graph: Graph) -> tuple[str, ...]:
    steps = (step.step for task in graph.tasks.values() for step in steps_of(task))
    return tuple(dict.fromkeys(step.walk for step in steps if step.per == "chunk"))


def moves(assignment: Assignment) -> tuple[tuple[str, Rank, Rank], ...]:
    """(state, from, to) for every move of a state that a task's steps may need."""
    found: dict[tuple[str, Rank, Rank], None] = {}
    for task in assignment.graph.tasks.values():
        for state, ranks in _ranks_in(assignment, task).items():
            found.update({(state, a, b): None for a in ranks for b in ranks if a != b})
    return tuple(found)


def _ranks_in(assignment: Assignment, task: Task) -> Mapping[str, tuple[Rank, ...]]:
    """State that outlives a Walk -> its ranks along the task's steps, including where a session's state rests."""
    found: dict[str, dict[Rank, None]] = {}
    for step in steps_of(task):
        for state, rank in _accesses(assignment, step):
            scope = assignment.graph.states[state].scope
            if scope in {"run", "session"}:
                ranks = found.setdefault(state, {assignment.rests[state]: None} if scope == "session" else {})
                ranks[rank] = None
    return {state: tuple(ranks) for state, ranks in found.items()}


def _accesses(assignment: Assignment, step: StepAt) -> Iterator[tuple[str, Rank]]:
    if step.step.walk in assignment.walks:
        states = assignment.graph.states
        yield from ((s, rank) for s, rank in assignment.states_of(step.step.walk) if s in states)


# ── the other tables ────────────────────────────────────────────────────────────────────────────


def _node(context: Context, index: int, name: str, node: Node) -> NodePlan:
    component = component_of(context.catalogue, node)
    declared = component.params.items() if component else ()
    defaults: dict[str, Scalar] = {key: param.default for key, param in declared if param.default is not None}
    return NodePlan(
        index=index,
        name=name,
        component=component.name if component else node.component,
        network=(component.network if component else None) or "",
        weights=node.weights if node.weights in context.assignment.graph.weights else None,
        # A called task fills in its own.
        params=node.params
        if component and component.task
        else defaults | node.params | _placed(context, name, component),
        defaults={key: defaults[key] for key, v in node.params.items() if str(v).startswith("=") and key in defaults},
        states={slot: context.state_index[s] for slot, s in node.states.items() if s in context.state_index},
        cost=component.cost if component else "compute",
        host=component.host if component else False,
        required=tuple(port.name for port in component.inputs if not port.optional) if component else (),
        optional=tuple(port.name for port in component.outputs if port.optional) if component else (),
        resident=component.resident if component else False,
        kept=node.kept or "",
        reasons=dict(component.reasons) if component else {},
        task=component.name if component and component.by_service else "",
        inputs={port.name: port.type.modality for port in component.inputs} if component else {},
        outputs={port.name: port.type.modality for port in component.outputs} if component else {},
        seconds={port.name: port.seconds for port in component.outputs if port.seconds} if component else {},
    )


def _placed(context: Context, name: str, component: Component | None) -> dict[str, Scalar]:
    """The parameters of a node that its placement decides."""
    precision = context.assignment.precision(name)
    offered = component.params.get(PRECISION) if component else None
    return {PRECISION: precision} if precision and offered and precision in offered.choices else {}


def _states(graph: Graph) -> Iterator[StatePlan]:
    for index, (name, state) in enumerate(graph.states.items()):
        yield StatePlan(
            index=index, name=name, kind=state.kind, scope=state.scope, width=state.width, capacity=state.capacity
        )


def _stream(context: Context, walks: tuple[WalkPlan, ...], index: int, stream: Stream) -> StreamPlan:
    given = stream.chunks.model_dump(exclude={"policy", "continue_after_done"}, exclude_none=True)
    producing = [
        (walk, e) for walk in walks for e in walk.edges if e.target.kind == "stream" and e.target.index == index
    ]
    return StreamPlan(
        index=index,
        name=stream.name,
        walks=tuple(dict.fromkeys(walk.index for walk, _ in producing)),
        policy=stream.chunks.policy,
        settings={key: int(value) for key, value in given.items()},
        continue_after_done=bool(getattr(stream.chunks, "continue_after_done", False)),
        credits=stream.credits,
        producers=tuple(sorted({walk.uses[edge.source.use].rank for walk, edge in producing})),
        consumers=tuple(sorted(context.consumers.get(stream.name, ()))),
        seconds=_seconds(context, walks, index),
    )


def _seconds(context: Context, walks: tuple[WalkPlan, ...], index: int) -> float:
    """Playback of an item of a stream, as a port at one of its ends declares it."""
    nodes, found = tuple(context.assignment.graph.nodes.values()), [0.0]

    def component(walk: WalkPlan, use: int) -> Component | None:
        return component_of(context.catalogue, nodes[walk.uses[use].node])

    for walk in walks:
        for edge in walk.edges:
            source, target = edge.source, edge.target
            if target.kind == "stream" and target.index == index and (gives := component(walk, source.use)):
                found.append(declared.seconds if (declared := gives.output(source.port)) else 0.0)
            elif source.kind == "stream" and source.index == index and (reads := component(walk, target.use)):
                found.append(declared.seconds if (declared := reads.input(target.port)) else 0.0)
    return max(found)


def _rank(called: Mapping[Rank, set[int]], context: Context, rank: Rank, device: str) -> RankPlan:
    assignment, placement = context.assignment, context.assignment.placement
    here = RankPlan(
        rank=rank,
        device=device,
        nodes=(),
        kv_bytes=0,
        budget=(),
        shards=assignment.shards(rank),
        sequence_parallel=sequence_parallel(placement, rank),
        expert_parallel=expert_parallel(placement, rank),
        host=context.host(rank),
    )
    return replace(here, nodes=tuple(sorted(called.get(here.serving, ()))))


def _called(walks: Sequence[WalkPlan]) -> Mapping[Rank, set[int]]:
    """Rank -> the nodes that are called there."""
    found: dict[Rank, set[int]] = {}
    for walk in walks:
        for use in walk.uses:
            if use.op == "call":
                found.setdefault(use.rank, set()).add(use.node)
    return found
