"""Streams: producers, consumers, chunk policies that can be met, and steps that take part."""

from collections.abc import Mapping

from walkgraph.graph.checks.context import Context
from walkgraph.graph.document import Fixed, LeftContext, Sliding, Stream, Whole
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.steps import StepAt
from walkgraph.graph.structure import End, Route, WalkStructure, end, partitions, segments

Reader = tuple[str, Route]
"""A Walk and its edge from the stream."""


def check_streams(context: Context) -> None:
    readers = _readers(context)
    for position, stream in enumerate(context.graph.streams):
        path = ("streams", str(position))
        if _by_name(context)[stream.name] is not stream:
            message = f"there are two streams `{stream.name}`; rename this one"
            context.add("duplicate_name", (*path, "name"), message)
            continue
        _producers(context, path, stream)
        _policy(context, path, stream, readers.get(stream.name, ()))
        _consumers(context, path, stream, readers.get(stream.name, ()))
    if _partitions(context, readers):
        for task, steps in context.steps.items():
            _task(context, task, steps, readers)


def _readers(context: Context) -> Mapping[str, tuple[Reader, ...]]:
    found: dict[str, list[Reader]] = {}
    for walk, facts in context.facts.items():
        for route in facts.routes:
            if route.source.kind == "stream":
                found.setdefault(route.source.name, []).append((walk, route))
    return {name: tuple(readers) for name, readers in found.items()}


def _by_name(context: Context) -> Mapping[str, Stream]:
    """Streams by name; the first one where two share a name."""
    return {stream.name: stream for stream in reversed(context.graph.streams)}


def _producers(context: Context, path: Path, stream: Stream) -> None:
    for i, name in enumerate(stream.walks):
        facts = context.facts.get(name)
        if facts is None:
            if not context.draft.is_broken("walks", name):
                message = f"no Walk `{name}` in the graph; {context.nearest(name, context.facts)}"
                context.add("unknown_walk", (*path, "walks", str(i)), message)
            continue
        named = end(stream.from_, facts.uses, target=False)
        if named.kind not in ("use", "merge") or named.name.startswith("@"):
            context.add("bad_reference", (*path, "from"), "a stream comes from a use; write `use.port` or `@merge.x`")
            return
        if named.kind == "merge" and named.name not in facts.walk.merges:
            if not context.draft.has_gaps("walks", name, "merges"):
                advice = context.nearest(named.name, facts.walk.merges)
                message = f"Walk `{name}` has no merge `{named.name}`; {advice}"
                context.add("unknown_merge", (*path, "from"), message)
            continue
        for source in facts.ports(stream.from_):
            _producer(context, path, name, facts, source)


def _producer(context: Context, path: Path, walk: str, facts: WalkStructure, source: End) -> None:
    if source.entry is None:
        if not context.draft.has_gaps("walks", walk, "body"):
            message = f"Walk `{walk}` has no use `{source.name}`; {context.nearest(source.name, facts.uses)}"
            context.add("unknown_use", (*path, "from"), message)
        return
    component = context.component(source.entry.node)
    if component and component.output(source.port) is None:
        message = f"`{component.name}` has no output `{source.port}`"
        advice = context.nearest(source.port, [port.name for port in component.outputs])
        context.add("unknown_port", (*path, "from"), f"{message}; {advice}")


def _policy(context: Context, path: Path, stream: Stream, readers: tuple[Reader, ...]) -> None:
    chunks = stream.chunks
    where = (*path, "chunks")
    match chunks:
        case Fixed(size=most):
            name = "size"
        case Sliding(window=most):
            name = "window"
            if chunks.stride > chunks.window:
                message = f"`stride` {chunks.stride} skips items between windows of {chunks.window}; lower it"
                context.add("policy_unmet", (*where, "stride"), message)
        case LeftContext(chunk=most):
            name = "chunk"
        case Whole():
            name, most = "", 0
    first = None if isinstance(chunks, Whole) else chunks.first
    if first is not None and first > most:
        message = f"`first` is {first}, more than `{name}` {most}: a first chunk is a smaller one; lower it"
        context.add("policy_unmet", (*where, "first"), message)
    for walk, route in readers:
        _length(context, where, stream, walk, route)
        each = route.edge.each
        if isinstance(chunks, Whole) and each:
            message = f"Walk `{walk}` takes one chunk per iteration, and `whole` gives a single one; use `fixed`"
            context.add("policy_unmet", where, message)
        if isinstance(chunks, Fixed) and chunks.continue_after_done and not each:
            message = f"Walk `{walk}` reads it without `each`, so nothing continues after the end; remove it"
            context.add("policy_unmet", (*where, "continue_after_done"), message)


def _length(context: Context, path: Path, stream: Stream, walk: str, route: Route) -> None:
    """Check that a port with a fixed first size gets chunks of exactly that many rows."""
    port, items = context.input(route.target), context.stream_types.get(stream.name)
    wanted = port.type.shape[0] if port and port.type.shape else None
    rows = items.shape[0] if items and items.shape else None
    match stream.chunks:
        case Fixed(size=count) | Sliding(window=count):
            pass
        case LeftContext(chunk=chunk, context=before):
            count = chunk + before
        case Whole():
            return
    if isinstance(wanted, int) and isinstance(rows, int) and wanted != count * rows:
        message = f"`{route.edge.to}` of Walk `{walk}` takes {wanted} rows, and a chunk has {count * rows}"
        context.add("policy_unmet", path, f"{message}; change the policy, or read another port")


def _consumers(context: Context, path: Path, stream: Stream, readers: tuple[Reader, ...]) -> None:
    if not readers and not context.draft.has_gaps("walks"):
        message = f"no Walk reads `@stream.{stream.name}`; draw an edge from it, or remove the stream"
        context.add("unused_stream", path, message, "warning")


def _partitions(context: Context, readers: Mapping[str, tuple[Reader, ...]]) -> bool:
    """True if every stream joins two partitions; only then can the lists of steps be judged."""
    apart = True
    groups = {node: i for i, group in enumerate(partitions(context.graph)) for node in group}

    def group(walk: str) -> int | None:
        nodes = (entry.node for entry in context.facts[walk].entries if entry.node in groups)
        return next((groups[node] for node in nodes), None)

    for position, stream in enumerate(context.graph.streams):
        path = ("streams", str(position))
        producers = {group(walk) for walk in stream.walks if walk in context.facts} - {None}
        consumers: dict[int, str] = {}
        for walk, _ in readers.get(stream.name, ()):
            found = group(walk)
            if found is None:
                continue
            if found in producers:
                message = f"Walk `{walk}` reads it in the partition that writes it: they share nodes"
                context.add("same_partition", path, f"{message}; draw an edge inside one Walk, or use other nodes")
                apart = False
            consumers.setdefault(found, walk)
        if len(consumers) > 1:
            message = f"Walks {', '.join(f'`{walk}`' for walk in consumers.values())} of several partitions read it"
            context.add("stream_read_twice", path, f"{message}; give each a stream of its own")
    return apart


# ── steps ───────────────────────────────────────────────────────────────────────────────────────


def _task(context: Context, task: str, steps: tuple[StepAt, ...], readers: Mapping[str, tuple[Reader, ...]]) -> None:
    lanes: dict[str, set[str]] = {}
    for at in steps:
        lanes.setdefault(at.step.walk, set()).add(at.lane)
    reads: dict[str, list[tuple[Stream, Route]]] = {}
    for stream in _by_name(context).values():
        for walk, route in readers.get(stream.name, ()):
            reads.setdefault(walk, []).append((stream, route))
    for at in steps:
        path = ("tasks", task, *segments(at.pointer))
        streams = reads.get(at.step.walk, [])
        for stream, _ in streams:
            producing = [walk for walk in stream.walks if walk in lanes]
            if not producing and not context.draft.has_gaps("tasks", task, "steps"):
                message = f"Walk `{at.step.walk}` reads `@stream.{stream.name}`, and no step of the task writes it; add"
                context.add(
                    "stream_without_producer",
                    path,
                    f"{message} one of {', '.join(f'`{walk}`' for walk in stream.walks)}",
                )
            if any(at.lane in lanes[walk] for walk in producing):
                message = f"Walk `{at.step.walk}` reads what `{producing[0]}` writes, and waits for it in one list"
                context.add("same_steps", path, f"{message}; give each partition its own list of steps")
        _chunked(context, path, at, streams)
    _lanes(context, task, steps)


def _chunked(context: Context, path: Path, at: StepAt, streams: list[tuple[Stream, Route]]) -> None:
    single = {s.name for s, route in streams if not route.edge.each}
    pieces = {s.name for s, route in streams if not route.edge.each and not isinstance(s.chunks, Whole)}
    if at.step.per is None and pieces:
        name = min(pieces)
        message = f'`@stream.{name}` comes in chunks; run the Walk `"per": "chunk"`, or let an edge enter a loop'
        context.add("needs_per_chunk", path, f"{message} with `each`")
    known = at.step.walk in context.facts and not context.draft.has_gaps("walks", at.step.walk, "edges")
    known = known and not context.draft.has_gaps("streams")
    if at.step.per == "chunk" and not single and known:
        message = f"Walk `{at.step.walk}` reads no stream chunk by chunk; remove `per`"
        context.add("chunk_without_stream", (*path, "per"), message)
    if at.step.per == "chunk" and at.step.walk in context.facts:
        _per_chunk(context, at.step.walk, context.facts[at.step.walk])
    if at.step.per == "chunk" and len(pieces) > 1:
        message = (
            f"the Walk reads {', '.join(f'`{name}`' for name in sorted(pieces))} in chunks; only one can set the pace"
        )
        context.add("two_chunked_streams", (*path, "per"), f"{message}: read the others `whole` or with `each`")


def _per_chunk(context: Context, walk: str, facts: WalkStructure) -> None:
    """Report values that the loop over the chunks would take apart."""
    for route in facts.routes:
        path = ("walks", walk, "edges", str(route.index))
        if route.target.kind == "out" and route.leave in ("last", "collect"):
            message = f"the Walk runs per chunk, and `@out.{route.target.name}` already leaves a loop; send every"
            context.add("per_chunk_loop", path, f"{message} value (`each`), or pass it through a use after the loop")
        if route.source.kind == "in" and route.enter == "each":
            message = f"the Walk runs per chunk, and `@in.{route.source.name}` enters a loop slice by slice"
            context.add("per_chunk_loop", path, f"{message}; pass it through a use before the loop")


def _lanes(context: Context, task: str, steps: tuple[StepAt, ...]) -> None:
    """Check that each node belongs to one list of steps, as lists run side by side."""
    owner: dict[str, tuple[str, str]] = {}
    firsts = {(at.lane, at.step.walk): at for at in reversed(steps)}
    for at in reversed(firsts.values()):
        facts = context.facts.get(at.step.walk)
        for entry in facts.entries if facts else ():
            lane, walk = owner.setdefault(entry.node, (at.lane, at.step.walk)) if entry.node else (at.lane, "")
            if lane != at.lane:
                message = f"node `{entry.node}` is used by `{walk}` in `{lane}` and by `{at.step.walk}` in `{at.lane}`"
                path = ("tasks", task, *segments(at.pointer))
                context.add("partition_in_two_lists", path, f"{message}; put both Walks into one list")
