"""Folds the uses of maps into standing uses: the table of a Walk is that around its maps, and each map has one for its
items.

A standing use waits for all that its uses wait for outside the map: choices, conditions, the uses that share a state
with one of them. Values that enter stay in the walker around it, which they reach under the same keys as without a map;
values that leave with `collect` leave the standing use.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec.structs import replace as changed

from walkgraph.placement.tables import EdgePlan, EdgeSource, LoopPlan, UsePlan, WalkPlan
from walkgraph.worker.tables.walk_tables import Inside, LoopTable, MapTable, UseTable, WalkTable, evaluator


def with_maps(walk: WalkPlan, uses: Mapping[int, UseTable], heads: Mapping[int, UseTable], floor: int = 0) -> WalkTable:
    """The table of these uses. `heads`: map -> the table of its head, also of another rank. `floor`: the number of
    loops around all the uses. Readers of inputs and streams are left out."""
    around, inside = dict(uses), dict[int, int]()
    for loop in walk.loops:
        body = {i: use for i, use in around.items() if loop.index in use.plan.loops[floor:]} if loop.width else {}
        if body:
            standing = len(walk.uses) + loop.index
            around = {i: _pointed(use, body, standing) for i, use in around.items() if i not in body}
            around[standing] = _standing(walk, loop, body, heads, standing)
            inside |= dict.fromkeys(body, standing)
    loops = {loop: inside[use] for use in inside for loop in _beneath(uses[use].plan.loops, around[inside[use]])}
    choices = {
        choice: inside[use]
        for use in inside
        for choice, depth, _ in uses[use].cases
        if depth > len(around[inside[use]].plan.loops)
    }
    in_loops, in_branches = _members(around)
    return WalkTable(
        plan=walk,
        uses=around,
        inside=Inside(inside, loops, choices),
        loops=tuple(_loop_table(walk, loop, tuple(in_loops.get(loop.index, ()))) for loop in walk.loops),
        branches=tuple(tuple(in_branches.get(choice.index, ())) for choice in walk.choices),
        readers={},
        streaming=_streaming(around),
        stream_readers={},
    )


def _streaming(uses: Mapping[int, UseTable]) -> Mapping[int, tuple[int, ...]]:
    """Stream -> the uses that read it, or feed it one call at a time."""
    found: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for index, use in uses.items():
        read = [edge.source.index for edges in use.streams for edge in edges if edge.source.kind == "stream"]
        for stream in dict.fromkeys([*read, *(edge.target.index for edge in use.paced)]):
            found[stream] += (index,)
    return dict(found)


def _beneath(loops: tuple[int, ...], standing: UseTable) -> tuple[int, ...]:
    """The loops around a use that are inside the map it is in."""
    return loops[len(standing.plan.loops) + 1 :]


def _members(uses: Mapping[int, UseTable]) -> tuple[Mapping[int, list[int]], Mapping[int, list[int]]]:
    """(loop -> the uses in it, choice -> the uses in its branches)."""
    in_loops: defaultdict[int, list[int]] = defaultdict(list)
    in_branches: defaultdict[int, list[int]] = defaultdict(list)
    for index, use in uses.items():
        own = (use.map.plan.index,) if use.map is not None else ()
        for loop in dict.fromkeys((*use.plan.loops, *own)):
            in_loops[loop].append(index)
        for choice in dict.fromkeys(number for number, _, _ in use.cases):
            in_branches[choice].append(index)
    return in_loops, in_branches


def _loop_table(walk: WalkPlan, loop: LoopPlan, uses: tuple[int, ...]) -> LoopTable:
    outer: tuple[str, ...] = ()
    parent = loop.parent
    while parent >= 0:
        outer = (walk.loops[parent].name, *outer)
        parent = walk.loops[parent].parent
    return LoopTable(
        plan=loop,
        times=evaluator(loop.times) if loop.times else None,
        outer=outer,
        uses=uses,
    )


# ── one map ─────────────────────────────────────────────────────────────────────────────────────


def _standing(
    walk: WalkPlan, loop: LoopPlan, body: Mapping[int, UseTable], heads: Mapping[int, UseTable], index: int
) -> UseTable:
    head = heads[loop.index]
    depth = len(head.plan.loops)
    leaving = [edge for use in body.values() for edge in use.outputs if edge.common <= depth]
    collected = tuple(_collected(edge, index, depth) for edge in leaving if edge.leave == "collect")
    table = MapTable(
        plan=loop,
        depth=depth,
        width=evaluator(loop.width),
        body=with_maps(walk, {i: _within(use, body, depth) for i, use in body.items()}, heads, depth + 1),
        collected=collected,
        sent=tuple(edge for edge in leaving if edge.leave == "each" and edge.target.chosen),
    )
    before = [pair for use in body.values() for pair in use.before if pair[0] not in body]
    after = [pair for use in body.values() for pair in use.after if pair[0] not in body]
    entering = (edge for use in body.values() for _, edges in use.inputs for edge in edges if _enters(edge, depth))
    return replace(
        head,
        plan=UsePlan(
            index=index,
            name=loop.name,
            op="loop",
            node=-1,
            rank=next(iter(body.values())).plan.rank,
            loops=head.plan.loops,
            when=head.plan.when,
            before=(),
            states=(),
            cases=head.plan.cases,
        ),
        inputs=tuple((f"{edge.target.use}.{edge.target.port}", (edge,)) for edge in entering),
        outputs=collected,
        before=tuple(dict.fromkeys(before)),
        after=tuple(dict.fromkeys(after)),
        neighbours=_unique(other for other, _ in (*before, *after)),
        asked=(),
        scoped=tuple(
            dict.fromkeys((state, keyed) for use in body.values() for state, keyed in use.scoped if keyed <= depth)
        ),
        decides=None,
        counts=None,
        map=table,
    )


def _enters(edge: EdgePlan, depth: int) -> bool:
    return edge.source.kind in ("use", "input") and edge.common <= depth


def _collected(edge: EdgePlan, standing: int, depth: int) -> EdgePlan:
    """The edge as it leaves the standing use: with one value, unless a loop around the map goes on collecting."""
    source = EdgeSource(kind="use", use=standing, port=str(edge.index))
    return changed(edge, source=source, leave="none" if edge.common == depth else "collect")


def _within(use: UseTable, body: Mapping[int, UseTable], depth: int) -> UseTable:
    """A use as the walker of an item sees it."""
    return replace(
        use,
        before=tuple(pair for pair in use.before if pair[0] in body),
        after=tuple(pair for pair in use.after if pair[0] in body),
        neighbours=tuple(other for other in use.neighbours if other in body),
        scoped=tuple((state, keyed) for state, keyed in use.scoped if keyed > depth),
    )


def _pointed(use: UseTable, body: Mapping[int, UseTable], standing: int) -> UseTable:
    """A use outside a map, which waits for the standing use instead of those in the map."""

    def pairs(given: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple(dict.fromkeys((standing if other in body else other, shared) for other, shared in given))

    before, after = pairs(use.before), pairs(use.after)
    return replace(use, before=before, after=after, neighbours=_unique(other for other, _ in (*before, *after)))


def _unique(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(values))
