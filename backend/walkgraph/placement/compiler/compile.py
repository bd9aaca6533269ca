"""Compile Walks into tables: uses, loops and edges with their ranks and transports. Total: parts that a check refuses
are left out.

`tables` explains the columns; `graph.structure` has found the order of uses and the route of every edge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from walkgraph.graph.document import Choose, Fork, Map, Whole
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.ports import parse_type
from walkgraph.graph.structure import Entry, Route, WalkStructure
from walkgraph.ids import Rank
from walkgraph.placement.compiler.context import Context
from walkgraph.placement.tables import (
    LOCAL,
    TO_CLIENT,
    ChoicePlan,
    EdgePlan,
    EdgeSource,
    LoopPlan,
    Op,
    Target,
    UsePlan,
    WalkPlan,
    flag_beside,
)

CHUNK = "chunk"


def compile_walk(context: Context, walk: WalkStructure, index: int) -> WalkPlan:
    """The table of one Walk of the document."""
    builder = _Walk(context, walk)
    return WalkPlan(
        index=index,
        name=walk.name,
        chunked=False,
        inputs=tuple(walk.walk.inputs),
        uses=builder.ordered(),
        loops=builder.loops(),
        edges=_EdgeTables(context, walk, builder.at, builder.uses).made(builder.moved),
        ranks=tuple(sorted({use.rank for use in builder.uses})),
        state_scopes=builder.state_scopes(),
        choices=builder.choices(),
        modalities=_modalities(walk),
    )


def _modalities(walk: WalkStructure) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in walk.walk.inputs.items():
        with suppress(ValueError):  # a check reports it at the input
            found[name] = parse_type(text).modality
    return found


def chunked(context: Context, plan: WalkPlan, index: int) -> WalkPlan:
    """The same Walk for a step `per: chunk`: its whole body inside one more, outermost loop that ends with its
    stream."""
    loops = (
        LoopPlan(
            index=0,
            name=CHUNK,
            parent=-1,
            times="",
            until=None,
            stream=_ending_stream(context, plan),
            drop_last=False,
            ranks=plan.ranks,
        ),
        *(replace(loop, index=loop.index + 1, parent=loop.parent + 1) for loop in plan.loops),
    )
    scopes = {context.state_index[name]: state.scope for name, state in context.assignment.graph.states.items()}
    return replace(
        plan,
        index=index,
        chunked=True,
        uses=tuple(replace(use, loops=(0, *(loop + 1 for loop in use.loops))) for use in plan.uses),
        loops=loops,
        edges=tuple(_in_chunk(edge) for edge in plan.edges),
        state_scopes={state: depth + (scopes[state] == "iteration") for state, depth in plan.state_scopes.items()},
    )


def move(context: Context, state: str, source: Rank, target: Rank, index: int) -> WalkPlan:
    """A Walk that only carries a state from one rank to another."""
    state_index = context.state_index[state]
    uses = (
        _state_use(0, f"export:{state}", "export", source, None, (state_index,)),
        replace(_state_use(1, f"import:{state}", "import", target, None, (state_index,)), writes=(state_index,)),
    )
    transport = context.transport(source, (target,), None)
    edge = EdgePlan(
        index=0,
        source=EdgeSource(kind="use", use=0, port="state"),
        target=Target(kind="use", use=1, port="state"),
        common=0,
        transport=transport,
        on_device=context.on_device(transport),
        parts=context.assignment.graph.states[state].kind == "paged_kv",
    )
    return WalkPlan(
        index=index,
        name=f"move:{state}:{source}>{target}",
        chunked=False,
        inputs=(),
        uses=uses,
        loops=(),
        edges=(edge,),
        ranks=tuple(sorted((source, target))),
        state_scopes={},
    )


def _ending_stream(context: Context, plan: WalkPlan) -> int | None:
    """The stream that sets the Walk's pace: one that comes in chunks and ends (one that continues after done never
    does)."""
    read = [e for e in plan.edges if e.source.kind == "stream"]
    chunks = {e.source.index: context.assignment.graph.streams[e.source.index].chunks for e in read}
    ends = [e for e in read if not getattr(chunks[e.source.index], "continue_after_done", False)]
    pieces = [e for e in ends if not (e.enter_each or isinstance(chunks[e.source.index], Whole))]
    return next((e.source.index for e in (*pieces, *ends, *read)), None)


def _in_chunk(edge: EdgePlan) -> EdgePlan:
    source, target = edge.source, edge.target
    if source.kind == "loop":
        source = replace(source, index=source.index + 1)
    if target.kind == "use":
        inside = edge.common + (source.kind in {"use", "loop"})
        return replace(edge, source=source, common=inside, enter_each=edge.enter_each or source.kind == "stream")
    if target.kind == "result":
        return replace(edge, source=source, leave="last" if edge.leave == "none" else edge.leave)
    return replace(edge, source=source, leave="pieces" if edge.leave == "pieces" else "each")


# ── one walk ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Access:
    """The states that a use accesses: name -> True if it only reads."""

    reads: Mapping[str, bool]


class _Walk:
    def __init__(self, context: Context, walk: WalkStructure) -> None:
        self.context = context
        self.walk = walk
        self.states = context.assignment.graph.states
        self.uses: list[UsePlan] = []
        self.access: list[_Access] = []
        self.moved: list[tuple[int, int]] = []
        """(export, import) pairs, each joined by an edge."""
        self.at: dict[int, int] = {}
        """Entry -> use index."""
        for entry in walk.entries:
            if isinstance(entry.item, Fork):
                self._fork(entry, entry.item)
            elif isinstance(entry.item, Choose):
                self._head(entry, "choose", entry.item.choose)
            elif isinstance(entry.item, Map):
                self._head(entry, "map", entry.item.map)
            elif entry.node in context.node_index:
                self._call(entry)

    def _call(self, entry: Entry) -> None:
        self.at[entry.index] = len(self.uses)
        use = UsePlan(
            index=len(self.uses),
            name=entry.name,
            op="call",
            node=self.context.node_index[entry.node],
            rank=self.context.assignment.rank(entry.node, self.walk.name),
            loops=entry.loop_indices,
            when=entry.whens,
            before=(),
            states=(),
            cases=entry.cases,
        )
        self._add(use, _node_access(self.context, self.walk, entry))

    def _head(self, entry: Entry, op: Op, source: str) -> None:
        """A choice is made, and a map's list counted, where the value comes from, or else where what it decides is."""
        self.at[entry.index] = len(self.uses)
        rank = self.context.assignment.head_rank(entry, self.walk)
        self._add(_state_use(len(self.uses), f"{op}:{source}", op, rank, entry, ()), _Access({}))

    def choices(self) -> tuple[ChoicePlan, ...]:
        ranks: dict[int, set[Rank]] = {choice.index: set() for choice in self.walk.choices}
        for use in self.uses:
            for number, _ in use.cases:
                ranks[number].add(use.rank)
        return tuple(
            ChoicePlan(
                index=choice.index,
                use=self.at[choice.entry.index],
                by=choice.item.choose,
                cases=tuple(choice.item.cases),
                ranks=tuple(sorted(ranks[choice.index])),
            )
            for choice in self.walk.choices
        )

    def _fork(self, entry: Entry, fork: Fork) -> None:
        index = self.context.state_index
        if fork.fork not in index or fork.into not in index:
            return
        source, target = self.context.assignment.fork_homes(fork, self.walk.name)
        here, there = index[fork.fork], index[fork.into]
        first = len(self.uses)
        if source == target:
            use = _state_use(first, f"fork:{fork.fork}>{fork.into}", "fork", source, entry, (here, there))
            self._add(use, _Access({fork.fork: True, fork.into: False}))
            return
        export = _state_use(first, f"export:{fork.fork}", "export", source, entry, (here,))
        self._add(export, _Access({fork.fork: True}))
        take = _state_use(first + 1, f"import:{fork.into}", "import", target, entry, (there,))
        self._add(take, _Access({fork.into: False}))
        self.moved.append((first, first + 1))

    def _add(self, use: UsePlan, access: _Access) -> None:
        self.uses.append(use)
        self.access.append(access)

    def ordered(self) -> tuple[UsePlan, ...]:
        before = self._before()
        return tuple(replace(use, before=before[use.index], writes=self._writes(use)) for use in self.uses)

    def _writes(self, use: UsePlan) -> tuple[int, ...]:
        index = self.context.state_index
        return tuple(index[s] for s, only in self.access[use.index].reads.items() if not only and s in index)

    def _before(self) -> list[tuple[int, ...]]:
        """Use -> the earlier uses on its rank that it waits for: those that share a state with it and don't both only
        read, and those whose values precede its own."""
        turns = self._in_turn()
        having: dict[str, list[int]] = {}
        found: list[tuple[int, ...]] = []
        for use in self.uses:
            mine = self.access[use.index].reads
            earlier = {
                other
                for state, only in mine.items()
                for other in having.get(state, ())
                if not (only and self.access[other].reads[state])
            }
            earlier |= {other for uses in turns if use.index in uses for other in uses if other < use.index}
            found.append(tuple(sorted(other for other in earlier if self.uses[other].rank == use.rank)))
            for state in mine:
                having.setdefault(state, []).append(use.index)
        return found

    def _in_turn(self) -> list[set[int]]:
        """Uses whose values follow each other in one output or stream, iteration by iteration: those of a merge."""
        merged: dict[tuple[int, str], set[int]] = {}
        for route in self.walk.routes:
            if route.merge and route.target.kind == "out" and route.source.entry is not None:
                merged.setdefault((route.index, ""), set()).add(self.at.get(route.source.entry.index, -1))
        for stream in self.context.assignment.graph.streams:
            ends = self.walk.ports(stream.from_) if self.walk.name in stream.walks else ()
            uses = {self.at.get(end.entry.index, -1) for end in ends if end.entry is not None}
            if len(uses) > 1:
                merged[-1, stream.name] = uses
        return list(merged.values())

    def loops(self) -> tuple[LoopPlan, ...]:
        found: list[LoopPlan] = []
        heads = {at.loop: at for at in self.walk.maps}
        for loop in self.walk.loops:
            head = heads.get(loop.index)
            ranks = {use.rank for use in self.uses if loop.index in use.loops}
            until = self._until(loop.item.until)
            found.append(
                LoopPlan(
                    index=loop.index,
                    name=loop.name,
                    parent=loop.parent,
                    times=loop.item.times,
                    until=next(iter(until), None),
                    until_else=until[1:],
                    stream=None,
                    drop_last=loop.item.drop_last,
                    ranks=tuple(sorted(ranks)),
                    head=self.at[head.entry.index] if head is not None else -1,
                    width=head.item.width if head is not None else "",
                )
            )
        return tuple(found)

    def _until(self, reference: str | None) -> tuple[tuple[int, str], ...]:
        ends = self.walk.ports(reference) if reference is not None else ()
        return tuple((self.at[e.entry.index], e.port) for e in ends if e.entry is not None and e.entry.index in self.at)

    def state_scopes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, state in self.states.items():
            around = [use.loops for use, a in zip(self.uses, self.access, strict=True) if name in a.reads]
            if not around or state.scope not in {"walk", "iteration"}:
                continue
            found[self.context.state_index[name]] = 0 if state.scope == "walk" else _shared(around)
        return found


class _EdgeTables:
    """Makes the edges of a Walk, once its uses have their places."""

    def __init__(self, context: Context, walk: WalkStructure, at: Mapping[int, int], uses: Sequence[UsePlan]) -> None:
        """`at`: entry -> use."""
        self.context, self.walk, self.at, self.uses = context, walk, at, uses

    def made(self, moved: Iterable[tuple[int, int]]) -> tuple[EdgePlan, ...]:
        """One for each route, then those into streams and between states. `moved`: (export, import) pairs."""
        found: list[EdgePlan] = []
        for route in self.walk.taken:
            edge = self._edge(len(found), route)
            if edge is not None:
                found.append(edge)
                found.extend(self._flags_beside(edge, route))
        for stream in self.context.assignment.graph.streams:
            for end in self.walk.ports(stream.from_) if self.walk.name in stream.walks else ():
                if end.entry is not None and end.entry.index in self.at:
                    found.append(self._stream_edge(len(found), stream.name, end.entry, end.port))
        for pair in moved:
            found.append(self._state_edge(len(found), *pair))
        return tuple(found)

    def _edge(self, index: int, route: Route) -> EdgePlan | None:
        source, target = self._source(route), self._target(route)
        if source is None or target is None:
            return None
        transport = self._transport(route)
        return EdgePlan(
            index=index,
            source=source,
            target=target,
            common=route.common,
            carried=route.carried,
            leave="pieces" if route.edge.each and target.kind == "out" and self._asks_service(route) else route.leave,
            gather="stack" if isinstance(route.edge.collect, bool) else route.edge.collect,
            enter_each=route.enter == "each",
            skipped=route.skipped,
            transport=transport,
            on_device=self.context.on_device(transport),
            merged=route.merge,
        )

    def _flags_beside(self, edge: EdgePlan, route: Route) -> Iterator[EdgePlan]:
        """The edges of the flags that say why a result ended a loop of steps: they go where it goes."""
        entry, result = route.source.entry, edge.target.port
        if entry is None or edge.target.kind != "result" or (self.walk.name, result) not in self.context.endings:
            return
        flags = self.context.reasons(entry.node).get(route.source.port, ())
        for index, flag in enumerate(flags, edge.index + 1):
            source, target = replace(edge.source, port=flag), replace(edge.target, port=flag_beside(result, flag))
            yield replace(edge, index=index, source=source, target=target)

    def _asks_service(self, route: Route) -> bool:
        node = self.context.assignment.graph.nodes.get(route.source.entry.node) if route.source.entry else None
        component = self.context.catalogue.get(node.component) if node is not None else None
        return component is not None and component.by_service

    def _source(self, route: Route) -> EdgeSource | None:
        end = route.source
        match end.kind:
            case "use" if end.entry is not None and end.entry.index in self.at:
                return EdgeSource(kind="use", use=self.at[end.entry.index], port=end.port)
            case "in" if end.name in self.walk.walk.inputs:
                return EdgeSource(kind="input", port=end.name)
            case "stream" if end.name in self.context.stream_index:
                return EdgeSource(kind="stream", port=end.name, index=self.context.stream_index[end.name])
            case "loop" if route.target.entry is not None and route.common > 0:
                return EdgeSource(kind="loop", port="index", index=route.target.entry.loop_indices[route.common - 1])
            case _:
                return None

    def _target(self, route: Route) -> Target | None:
        end, source = route.target, route.source
        match end.kind:
            case "use" if end.entry is not None and end.entry.index in self.at:
                return Target(kind="use", use=self.at[end.entry.index], port=end.port)
            case "choice" | "map" if end.entry is not None and end.entry.index in self.at:
                return Target(kind="use", use=self.at[end.entry.index], port="value")
            case "out":
                modality = self._modality(source.entry, source.port) if source.entry is not None else None
                return Target(kind="out", port=end.name, modality=modality or "", chosen=self._apart(route))
            case "result":
                result = self.walk.name, end.name
                chosen, host = result in self.context.chosen, result in self.context.read_on_host
                return Target(kind="result", port=end.name, chosen=chosen, host=host)
            case _:
                return None

    def _apart(self, route: Route) -> bool:
        """True if several ranks send the output, each from a branch."""
        ports, ranks = self.walk.ports(route.edge.from_) if route.merge else (), self.context.assignment.entry_ranks
        return len({rank for port in ports if port.entry is not None for rank in ranks(port.entry, self.walk)}) > 1

    def _stream_edge(self, index: int, name: str, entry: Entry, port: str) -> EdgePlan:
        transport = self._to_ranks(entry, port, self.context.consumers.get(name, frozenset()), host=True)
        return EdgePlan(
            index=index,
            source=EdgeSource(kind="use", use=self.at[entry.index], port=port),
            target=Target(kind="stream", port=name, index=self.context.stream_index[name]),
            common=0,
            leave="each" if entry.loops else "none",
            transport=transport,
            on_device=self.context.on_device(transport),
        )

    def _state_edge(self, index: int, export: int, take: int) -> EdgePlan:
        source, target = self.uses[export], self.uses[take]
        transport = self.context.transport(source.rank, (target.rank,), None)
        return EdgePlan(
            index=index,
            source=EdgeSource(kind="use", use=export, port="state"),
            target=Target(kind="use", use=take, port="state"),
            common=len(source.loops),
            transport=transport,
            on_device=self.context.on_device(transport),
        )

    def _transport(self, route: Route) -> str:
        if route.target.kind == "out":
            return TO_CLIENT
        source, target = route.source.entry, route.target.entry
        if source is None:
            return LOCAL
        if route.target.kind == "result":
            readers = self.context.result_readers.get(self.walk.name, frozenset[Rank]())
            if (self.walk.name, route.target.name) in self.context.chosen:
                first = self.walk.named_results[route.target.name].source.entry
                readers |= {self.uses[self.at[first.index]].rank} if first is not None else set[Rank]()
            return self._to_ranks(source, route.source.port, readers)
        if target is None:
            return LOCAL
        here, there = self.uses[self.at[source.index]].rank, self.uses[self.at[target.index]].rank
        host = self.context.on_host(source.node) or self.context.on_host(target.node)
        return self.context.transport(here, (there,), self._modality(source, route.source.port), host=host)

    def _to_ranks(self, source: Entry, port: str, readers: frozenset[Rank], *, host: bool = False) -> str:
        """The transport to several ranks, possibly including this one. `host`: items of a stream are kept and joined on
        the host."""
        here, modality = self.uses[self.at[source.index]].rank, self._modality(source, port)
        host = host or self.context.on_host(source.node)
        return self.context.transport(here, readers, modality, host=host)

    def _modality(self, source: Entry, port: str) -> str | None:
        node = self.context.assignment.graph.nodes.get(source.node)
        component = component_of(self.context.catalogue, node) if node is not None else None
        output = component.output(port) if component else None
        return output.type.modality if output else None


def _node_access(context: Context, walk: WalkStructure, entry: Entry) -> _Access:
    """How a use accesses its node's states: a state is only read if all its connected append ports are scratch."""
    node = context.assignment.graph.nodes[entry.node]
    component = context.catalogue.get(node.component)
    slots = {slot.slot: slot for slot in component.states} if component else {}
    reads: dict[str, bool] = {}
    for name, state in node.states.items():
        slot = slots.get(name)
        only = slot is not None and slot.only_reads(lambda port: (entry.name, port) in walk.feeds)
        reads[state] = only and reads.get(state, True)
    return _Access(reads)


def _state_use(index: int, name: str, op: Op, rank: Rank, entry: Entry | None, states: tuple[int, ...]) -> UsePlan:
    """`entry`: its place; None for a Walk without a body."""
    loops, when, cases = (entry.loop_indices, entry.whens, entry.cases) if entry is not None else ((), (), ())
    return UsePlan(
        index=index, name=name, op=op, node=-1, rank=rank, loops=loops, when=when, before=(), states=states, cases=cases
    )


def _shared(around: list[tuple[int, ...]]) -> int:
    """The number of leading loops that all have in common."""
    first = around[0]
    depth = min(len(loops) for loops in around)
    return next((i for i in range(depth) if any(loops[i] != first[i] for loops in around)), depth)
