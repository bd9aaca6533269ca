"""A plan as text, as `walkgraph plan` prints it. Stable, so that two plans can be compared line by line."""

from collections.abc import Iterable, Iterator, Sequence

from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import Copy, show_bytes
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.neighbours import hosts_of
from walkgraph.placement.host.topology import Link, Topology
from walkgraph.placement.routes import HandedRoute
from walkgraph.placement.tables import LOCAL, TO_CLIENT, Alternative, EdgePlan, Plan, RankPlan, StreamPlan, WalkPlan

_BAR = 24
_NAME = 20
_LINE = 100


def render(
    plan: Plan,
    problems: Sequence[Problem] = (),
    copies: Sequence[Copy] = (),
    handed: Sequence[HandedRoute] = (),
    hardware: Hardware | None = None,
) -> str:
    """Ranks with their nodes and memory; Walks with their loops and the edges between ranks; calls of tasks; streams;
    the ranks of runs by their replicas; results that a later step reads on another rank; what goes between hosts; state
    copies. Walks and streams are those of runs on the first replicas. `hardware`: it adds the ways between the GPUs of
    the host that plans, and what the links between hosts cost."""
    walks, host = plan.walks_of(), hardware.topology if hardware else Topology()
    sections = [
        [f"plan of `{plan.graph}`  {plan.digest[:12]}"],
        *(list(_rank(plan, rank, host)) for rank in plan.ranks),
        ["ways between GPUs", *_links(plan, host)],
        ["walks", *(line for walk in walks if not _is_move(walk) for line in _walk(plan, walk))],
        ["calls, through the conductor and the service", *(line for walk in walks for line in _calls(plan, walk))],
        ["streams", *(line for stream in plan.streams_of() for line in _stream(plan, stream))],
        ["replicas", *(_alternative(plan, one) for one in plan.alternatives if one.replicas)],
        ["results that change rank", *(_handed(route) for route in handed if route.source != route.target)],
        ["between hosts", *_between_hosts(plan, copies, hardware)],
        ["states that change rank", *(_copy(plan, copy) for copy in copies)],
        ["problems", *(f"  {p.severity:<8} {p.pointer or '/'}  {p.code}: {p.message}" for p in problems)],
    ]
    kept = [section for i, section in enumerate(sections) if i == 0 or len(section) > 1]
    return "\n\n".join("\n".join(line.rstrip() for line in section) for section in kept) + "\n"


# ── ranks ───────────────────────────────────────────────────────────────────────────────────────


LINKS = {
    "nvlink": "NVLink",
    "pcie": "a PCIe switch",
    "bridge": "a PCIe host bridge",
    "node": "their NUMA node",
    "system": "the way between NUMA nodes",
}


def link_words(link: Link) -> str:
    """`over NVLink`."""
    return f"over {LINKS[link.kind]}" + ("" if link.peers else ", without reading each other's memory")


def _links(plan: Plan, host: Topology) -> Iterator[str]:
    devices = {rank.device for rank in plan.ranks if not rank.host}
    for link in host.links:
        if {link.first, link.second} <= devices:
            yield f"  {link.first} and {link.second}  {link_words(link)}"


def _rank(plan: Plan, rank: RankPlan, host: Topology) -> Iterator[str]:
    node = None if rank.host else host.node(rank.device)
    total = sum(size for _, size in rank.budget)
    how = ", whole experts" if rank.expert_parallel else ", whole weights" if rank.sequence_parallel else ""
    shard = f"  shard {rank.shards.index(rank.rank) + 1} of {len(rank.shards)}{how}" if rank.shards else ""
    near = "" if node is None else f"  NUMA node {node}"
    where = (f" of {rank.host}" if rank.host else "") + (" (any host)" if rank.unpinned else "")
    yield f"rank {rank.rank}  {rank.device}{where}{near}  {show_bytes(total)}{shard}"
    yield from _wrapped("nodes", [plan.nodes[index].name for index in rank.nodes])
    for name, size in rank.budget:
        yield f"  {name:<{_NAME}} {show_bytes(size):>10}  {_bar(size, total)}"


def _bar(size: int, total: int) -> str:
    """A bar in eighths of a column; any size above 0 shows at least one eighth."""
    eighths = max(1, round(size * _BAR * 8 / total)) if size and total else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _wrapped(label: str, names: Sequence[str]) -> Iterator[str]:
    line = f"  {label:<{_NAME}} "
    for i, name in enumerate(names):
        word = name + (", " if i + 1 < len(names) else "")
        if len(line) + len(word.rstrip()) > _LINE:
            yield line.rstrip()
            line = " " * (_NAME + 3)
        line += word
    yield line


# ── walks ───────────────────────────────────────────────────────────────────────────────────────


def _is_move(walk: WalkPlan) -> bool:
    return walk.name.startswith("move:")


def _walk(plan: Plan, walk: WalkPlan) -> Iterator[str]:
    crossing = [edge for edge in walk.edges if edge.transport not in {LOCAL, TO_CLIENT}]
    local = sum(edge.transport == LOCAL for edge in walk.edges)
    ranks = _ranks(walk.ranks)
    chunk = "  per chunk" if walk.chunked else ""
    yield f"  {walk.name}{chunk}  {ranks} · {_count(len(walk.uses), 'use')} · {_count(local, 'local edge')}"
    for loop in walk.loops:
        depth = 0
        parent = loop.parent
        while parent >= 0:
            depth, parent = depth + 1, walk.loops[parent].parent
        kind = "map" if loop.width else "loop"
        yield f"  {'  ' * depth}  {kind} {loop.name}  {_ends(plan, walk, loop.index)} · {_ranks(loop.ranks)}"
        yield f"  {'  ' * depth}    {loop.why}"
    for choice in walk.choices:
        yield f"    choose {choice.by}  {', '.join(choice.cases)} · decided on {_ranks((walk.uses[choice.use].rank,))}"
    for edge in crossing:
        yield f"    {_source(walk, edge)} → {_target(walk, edge)}  {_path(walk, edge)}  {edge.transport}"


def _calls(plan: Plan, walk: WalkPlan) -> Iterator[str]:
    """The uses that call tasks; a Walk that runs per chunk shows them once."""
    for use in () if walk.chunked else walk.uses:
        task = plan.nodes[use.node].task if use.op == "call" else ""
        if task:
            yield f"  {walk.name}  {use.name} → {task}  from {_ranks((use.rank,))}"


def _ends(plan: Plan, walk: WalkPlan, index: int) -> str:
    loop = walk.loops[index]
    if loop.width:
        head = walk.uses[loop.head]
        return f"up to `{loop.times}` items of {head.name.partition(':')[2]}, counted on {_ranks((head.rank,))}"
    if loop.stream is not None:
        return f"until stream `{plan.streams[loop.stream].name}` ends"
    ends = " or ".join(_ending(plan, walk, use, port) for use, port in loop.endings)
    until = f", until {ends}" if ends else ""
    return f"`{loop.times}` times{until}"


def _ending(plan: Plan, walk: WalkPlan, index: int, port: str) -> str:
    use = walk.uses[index]
    reasons = plan.nodes[use.node].reasons.get(port, ()) if use.op == "call" else ()
    return f"{use.name}.{port}" + (f" (may be {' or '.join(reasons)})" if reasons else "")


def _source(walk: WalkPlan, edge: EdgePlan) -> str:
    return f"{walk.uses[edge.source.use].name}.{edge.source.port}"


def _target(walk: WalkPlan, edge: EdgePlan) -> str:
    match edge.target.kind:
        case "use":
            carried = "  (next iteration)" if edge.carried else ""
            return f"{walk.uses[edge.target.use].name}.{edge.target.port}{carried}"
        case "stream":
            return f"stream {edge.target.port}"
        case _:
            return f"{edge.target.kind} {edge.target.port}"


def _path(walk: WalkPlan, edge: EdgePlan) -> str:
    source = walk.uses[edge.source.use].rank
    return f"{source}>{walk.uses[edge.target.use].rank}" if edge.target.kind == "use" else f"from {source}"


def _ranks(ranks: Iterable[int]) -> str:
    found = list(ranks)
    return ("rank " if len(found) == 1 else "ranks ") + ", ".join(str(rank) for rank in found)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _alternative(plan: Plan, one: Alternative) -> str:
    taken = ", ".join(f"{replica + 1} of {count}" for count, replica in one.replicas.items())
    walks = [walk for walk in plan.walks_of(one.index) if not walk.chunked and not _is_move(walk)]
    crossing = sum(edge.transport not in {LOCAL, TO_CLIENT} for walk in walks for edge in walk.edges)
    stepped = [f"{walk.name}.{loop.name}" for walk in walks for loop in walk.loops if not loop.resident]
    shown = f" · stepped: {', '.join(stepped)}" if stepped else ""
    return f"  {taken}  {_ranks(one.ranks)} · {_count(crossing, 'edge')} between ranks{shown}"


# ── hosts ──────────────────────────────────────────────────────────────────────────────────────


def _between_hosts(plan: Plan, copies: Sequence[Copy], hardware: Hardware | None) -> Iterator[str]:
    """Edges of values between each two hosts, by their transport, and states with their bytes; with the time that a
    value takes at least, or the bytes, where the link is known."""
    hosts = hosts_of(plan)
    edges: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
    for walk in plan.walks_of():
        for edge in () if _is_move(walk) else walk.edges:
            for target in _value_targets(plan, walk, edge):
                path = hosts[walk.uses[edge.source.use].rank], hosts[target], edge.transport
                edges.setdefault(path, set()).add((walk.name, edge.index))
    for (source, target, transport), found in sorted(
        edges.items(), key=lambda item: [name or "here" for name in item[0]]
    ):
        if source != target:
            link = hardware.link(source, target) if hardware else None
            least = f", each {show_time(link.seconds(0))} or more" if link else ""
            yield f"  {source or 'here'} → {target or 'here'}  {_count(len(found), 'edge')}, {transport}{least}"
    for copy in copies:
        source, target = hosts[copy.source], hosts[copy.target]
        if source != target:
            link = hardware.link(source, target) if hardware else None
            time = f", {show_time(link.seconds(copy.bytes))}" if link and copy.bytes else ""
            yield f"  {source or 'here'} → {target or 'here'}  state {_copy(plan, copy).lstrip()}{time}"


def show_time(seconds: float) -> str:
    """`0.21 ms`: two figures at least."""
    unit, name = (1e-3, "ms") if seconds < 1 else (1, "s")
    number = seconds / unit
    digits = next((digits for digits, least in enumerate((100, 1, 0.1)) if number >= least), 3)
    return f"{number:.{digits}f} {name}"


def _value_targets(plan: Plan, walk: WalkPlan, edge: EdgePlan) -> Sequence[Rank]:
    """Ranks that an edge leads to from a use; none if it carries a state."""
    if edge.source.kind != "use" or walk.uses[edge.source.use].op == "export":
        return ()
    match edge.target.kind:
        case "use":
            return (walk.uses[edge.target.use].rank,)
        case "stream":
            return plan.streams[edge.target.index].consumers
        case _:
            return ()


# ── streams and states ──────────────────────────────────────────────────────────────────────────


def _stream(plan: Plan, stream: StreamPlan) -> Iterator[str]:
    settings = ", ".join(f"{name} {value}" for name, value in stream.settings.items())
    after = ", goes on after the end" if stream.continue_after_done else ""
    policy = stream.policy + (f"({settings})" if settings else "") + after
    walks = ", ".join(dict.fromkeys(plan.walks[walk].name for walk in stream.walks))
    ranks = f"{_ranks(stream.producers)} to {_ranks(stream.consumers)}"
    yield f"  {stream.name}  {policy} · {_count(stream.credits, 'credit')} · {ranks} · from {walks}"


def _handed(route: HandedRoute) -> str:
    path = f"{route.source}>{route.target}  {route.transport}"
    return f"  {route.result} → {route.input}  {path}  in task {route.task}"


def _copy(plan: Plan, copy: Copy) -> str:
    walk = plan.walks[copy.walk]
    where = "between steps" if _is_move(walk) else f"in {walk.name}"
    size = f"{show_bytes(copy.bytes)}, largest {show_bytes(copy.largest)}" if copy.largest else "size not known"
    how = "in parts while it grows" if copy.parts else "whole"
    path = f"{copy.source}>{copy.target}  {where}  {size}  {copy.transport}, {how}"
    return f"  {plan.states[copy.state].name}  {path}"
