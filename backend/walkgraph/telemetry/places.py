"""Names for the numbers in events, from the plan: edges by name, and which node can wait for which."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from walkgraph.placement.tables import EdgeSource, NodePlan, Plan, Target, WalkPlan
from walkgraph.telemetry.trace import Does

_ENCODED = frozenset(("image", "audio", "video", "bytes"))
"""Modalities of files."""


@dataclass(frozen=True)
class Places:
    """Names of one plan; without a plan, edges are named by number, and any node may wait for any."""

    edges: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """(Walk, edge) -> `use.port -> use.port`."""
    streams: dict[int, str] = field(default_factory=dict[int, str])
    """Index -> `@stream.name`."""
    devices: tuple[str, ...] = ()
    """Device of each rank."""
    serving: tuple[int, ...] = ()
    """The rank that serves for each rank: itself, or the first of its shards."""
    hosts: tuple[str, ...] = ()
    """Host of each rank; empty for the service's own."""
    nodes: frozenset[str] = frozenset()
    follows: frozenset[tuple[str, str]] | None = None
    """(node, another that may wait for it), through edges, streams and states of a Walk."""
    readers: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict[tuple[str, str], frozenset[str]])
    """(Walk, edge name) -> the nodes that may read the edge's values."""
    writers: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict[tuple[str, str], frozenset[str]])
    """(Walk, edge name) -> the nodes that may have produced the edge's values."""
    does: dict[str, Does] = field(default_factory=dict[str, Does])
    """Node -> what it does."""
    tokens: frozenset[tuple[str, str, int]] = frozenset()
    """(Walk, device loop, rank) where tokens are generated."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        edges: dict[tuple[str, int], str] = {}
        streams = {stream.index: f"@stream.{stream.name}" for stream in plan.streams}
        for walk in plan.walks:
            uses = {use.index: use.name for use in walk.uses}
            for edge in walk.edges:
                ends = end_name(uses, edge.source, streams), end_name(uses, edge.target, streams)
                edges[walk.name, edge.index] = " -> ".join(ends)
        into, out = _stream_ends(plan)
        ranks = sorted(plan.ranks, key=lambda rank: rank.rank)
        return cls(
            edges=edges,
            streams=streams,
            devices=tuple(rank.device for rank in ranks),
            serving=tuple(rank.serving for rank in ranks),
            hosts=tuple(rank.host for rank in ranks),
            nodes=frozenset(node.name for node in plan.nodes),
            follows=frozenset(_follows(plan, into, out)),
            readers=_ends(plan, edges, streams, out, reading=True),
            writers=_ends(plan, edges, streams, into, reading=False),
            does={node.name: _does(node) for node in plan.nodes},
            tokens=frozenset((walk.name, *made) for walk in plan.walks for made in _making_tokens(plan, walk)),
        )

    def hop(self, walk: str, edge: int, stream: bool) -> str:
        """The name of an edge of a Walk, or of a stream."""
        if stream:
            return self.streams.get(edge, f"stream {edge}")
        return self.edges.get((walk, edge), f"edge {edge}")


def end_name(uses: Mapping[int, str], end: EdgeSource | Target, streams: Mapping[int, str]) -> str:
    """The end of an edge, named as in documents. `uses`, `streams`: names by index."""
    match end.kind:
        case "use":
            return f"{uses[end.use]}.{end.port}"
        case "input":
            return f"@in.{end.port}"
        case "stream":
            return streams.get(end.index, "@stream")
        case "loop":
            return "@loop"
        case "out" | "result":
            return f"@{end.kind}.{end.port}"


def _does(node: NodePlan) -> Does:
    if node.task:
        return "call"
    if not node.host:
        return "compute"
    if not _ENCODED.isdisjoint(node.outputs.values()):
        return "encode"
    return "host" if _ENCODED.isdisjoint(node.inputs.values()) else "decode"


def _nodes(plan: Plan, walk: WalkPlan) -> dict[int, str]:
    """Use -> node, for uses that call nodes."""
    return {use.index: plan.nodes[use.node].name for use in walk.uses if use.node >= 0}


def _stream_ends(plan: Plan) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    """Stream -> the nodes that feed it; stream -> the nodes that read it."""
    into: dict[int, set[str]] = {stream.index: set() for stream in plan.streams}
    out: dict[int, set[str]] = {stream.index: set() for stream in plan.streams}
    for walk in plan.walks:
        nodes = _nodes(plan, walk)
        for edge in walk.edges:
            if edge.target.kind == "stream" and edge.source.use in nodes:
                into[edge.target.index].add(nodes[edge.source.use])
            if edge.source.kind == "stream" and edge.target.use in nodes:
                out[edge.source.index].add(nodes[edge.target.use])
    return into, out


def _follows(plan: Plan, into: dict[int, set[str]], out: dict[int, set[str]]) -> Iterator[tuple[str, str]]:
    for walk in plan.walks:
        nodes = _nodes(plan, walk)
        for edge in walk.edges:
            if edge.source.use in nodes and edge.target.use in nodes:
                yield nodes[edge.source.use], nodes[edge.target.use]
        for use in walk.uses:
            for before in use.before:
                if before in nodes and use.index in nodes:
                    yield nodes[before], nodes[use.index]
        yield from _sharing(plan, walk)
        for loop in walk.loops:
            # An iteration begins once the verdict on the previous one is that the loop goes on.
            for ending in [use for use, _ in loop.endings if use in nodes]:
                inside = {nodes[use.index] for use in walk.uses if loop.index in use.loops and use.index in nodes}
                yield from ((nodes[ending], node) for node in inside)
        yield from _chosen(walk, nodes)
    for stream, feeding in into.items():
        yield from ((one, other) for one in feeding for other in out[stream])


def _chosen(walk: WalkPlan, nodes: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """A use in a branch begins once the value is there by which the branch is taken, and one in a map once its list
    is."""
    heads: list[tuple[int, list[int]]] = []
    for choice in walk.choices:
        inside = [use.index for use in walk.uses if any(number == choice.index for number, _ in use.cases)]
        heads.append((choice.use, inside))
    for loop in walk.loops:
        if loop.width:
            heads.append((loop.head, [use.index for use in walk.uses if loop.index in use.loops]))
    for head, inside in heads:
        values = [edge.source.use for edge in walk.edges if edge.target.use == head and edge.source.use in nodes]
        yield from ((nodes[value], nodes[use]) for value in values for use in inside if use in nodes)


def _sharing(plan: Plan, walk: WalkPlan) -> Iterator[tuple[str, str]]:
    """In a loop, a use of a state waits for the use that changed it in the previous iteration."""
    looped = [use for use in walk.uses if use.node >= 0 and use.loops]
    for writer in looped:
        for use in looped:
            if not set(writer.writes).isdisjoint(plan.nodes[use.node].states.values()):
                yield plan.nodes[writer.node].name, plan.nodes[use.node].name
                yield plan.nodes[use.node].name, plan.nodes[writer.node].name


def _making_tokens(plan: Plan, walk: WalkPlan) -> Iterator[tuple[str, int]]:
    """Loops with a node that generates tokens which somebody reads, with the node's rank."""
    for loop in walk.loops:
        sources = (edge.source for edge in walk.edges if edge.source.kind == "use" and edge.source.use in loop.core)
        ranks = [
            walk.uses[source.use].rank
            for source in sources
            if plan.nodes[walk.uses[source.use].node].outputs.get(source.port) == "tokens"
        ]
        if loop.resident and ranks:
            yield loop.name, min(ranks)


def _ends(
    plan: Plan,
    edges: dict[tuple[str, int], str],
    streams: dict[int, str],
    of_streams: dict[int, set[str]],
    *,
    reading: bool,
) -> dict[tuple[str, str], frozenset[str]]:
    found: dict[tuple[str, str], frozenset[str]] = {}
    for walk in plan.walks:
        nodes = _nodes(plan, walk)
        for edge in walk.edges:
            end = edge.target if reading else edge.source
            if end.use in nodes:
                found[walk.name, edges[walk.name, edge.index]] = frozenset((nodes[end.use],))
        for index, name in streams.items():
            if of_streams[index]:
                found[walk.name, name] = frozenset(of_streams[index])
    return found
