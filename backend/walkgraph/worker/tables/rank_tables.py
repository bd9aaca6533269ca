"""A plan's tables prepared for one rank. Made once, when the plan is loaded."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from walkgraph.abi.calls import Link
from walkgraph.graph.language.expressions import parse
from walkgraph.ids import Rank
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.loop_contents import index_names
from walkgraph.placement.tables import EdgePlan, LoopPlan, Plan, UsePlan, WalkPlan
from walkgraph.worker.loops.lowering import DeviceLoop, Lowering, device_loops
from walkgraph.worker.tables.chains import Chain, chains, entrance, is_inside, joined
from walkgraph.worker.tables.map_tables import with_maps
from walkgraph.worker.tables.use_ends import UseEnds
from walkgraph.worker.tables.walk_tables import (
    Conditions,
    DeviceLoopTable,
    Reader,
    UseTable,
    WalkTable,
    evaluator,
    use_table,
)


def walk_tables(plan: Plan, rank: Rank) -> tuple[WalkTable, ...]:
    return tuple(_walk_table(plan, walk, rank, {}) for walk in plan.walks)


def fused_tables(plan: Plan, rank: Rank, plain: tuple[WalkTable, ...]) -> tuple[WalkTable, ...]:
    """The tables in which chains of small nodes are one call. `plain`: those in which none is, which stay as they are
    for Walks without chains."""
    return tuple(_fused_table(plan, walk, rank, table) for walk, table in zip(plan.walks, plain, strict=True))


def _fused_table(plan: Plan, stepped: WalkPlan, rank: Rank, plain: WalkTable) -> WalkTable:
    walk, _ = device_loops(plan, stepped, rank)
    found = {chain[-1]: chain for chain in chains(plan, walk, UseEnds(plan, walk), rank)}
    return _walk_table(plan, stepped, rank, found) if found else plain


def _walk_table(plan: Plan, stepped: WalkPlan, rank: Rank, found: Mapping[int, Chain]) -> WalkTable:
    """`found`: the chains that are one call, by their last use."""
    walk, loops_here = device_loops(plan, stepped, rank)
    before = UseEnds(plan, walk)
    plain, walk = walk, joined(walk, found)
    ends = UseEnds(plan, walk) if found else before
    uses = {use.index: use_table(plan, walk, ends, use) for use in walk.uses if use.rank == rank}
    for index, chain in found.items():
        uses[index] = replace(uses[index], links=tuple(_links(plan, plain, before, chain)))
    for index, loop in loops_here.items():
        uses[index] = _standing(plan, stepped, uses[index], loop)
    heads = {loop.index: use_table(plan, walk, ends, walk.uses[loop.head]) for loop in walk.loops if loop.width}
    readers: dict[str, list[EdgePlan]] = defaultdict(list)
    for edge in walk.edges:
        if edge.source.kind == "input" and edge.target.use in uses:
            readers[edge.source.port].append(edge)
    reading = {(e.source.index, e.target.use) for e in walk.edges if e.source.kind == "stream" and e.target.use in uses}
    reading |= {(edge.source.index, first) for first, loop in loops_here.items() for _, edge in loop.items}
    return replace(
        with_maps(walk, uses, heads),
        readers={name: tuple(edges) for name, edges in readers.items()},
        stream_readers=Counter(stream for stream, _ in reading),
        homes=Facts(plan)[stepped.index].homes if _moves_in_parts(plan.walks) else {},
        parts=next((walk.uses[edge.source.use].states[0] for edge in walk.edges if _leaves(walk, edge, rank)), -1),
    )


def _moves_in_parts(walks: Iterable[WalkPlan]) -> bool:
    return any(edge.parts for walk in walks for edge in walk.edges)


def _leaves(walk: WalkPlan, edge: EdgePlan, rank: Rank) -> bool:
    return edge.parts and walk.uses[edge.source.use].rank == rank


def _links(plan: Plan, walk: WalkPlan, ends: UseEnds, chain: Chain) -> Iterator[tuple[Link, UseTable]]:
    for index in chain:
        use = use_table(plan, walk, ends, walk.uses[index])
        node = plan.nodes[use.plan.node]
        edges = [(port, edge) for port, edges in use.inputs for edge in edges]
        passed = {port: edge.source.port for port, edge in edges if is_inside(edge, chain)}
        entering = {port: entrance(walk, edge) for port, edge in edges if port not in passed}
        yield Link(node.name, index, use.plan.name, entering, passed, node.required), use


def _standing(plan: Plan, stepped: WalkPlan, use: UseTable, loop: DeviceLoop) -> UseTable:
    """The table of a standing use. Values that leave while the loop runs don't pass through the walker."""
    return replace(
        use,
        outputs=tuple(edge for edge in use.outputs if edge.leave != "each"),
        paced=tuple(edge for edge in loop.emits if edge.target.kind == "stream"),
        device_loop=_device_loop_table(plan, stepped, loop),
    )


def _device_loop_table(plan: Plan, stepped: WalkPlan, loop: DeviceLoop) -> DeviceLoopTable:
    ends = UseEnds(plan, stepped)
    uses = tuple(use_table(plan, stepped, ends, use, loop.plan) for use in loop.uses)
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
