"""Problems and warnings about a placement of a graph, each with its place in the placement."""

from collections.abc import Iterable, Iterator
from math import prod

from walkgraph.graph.blueprints.boxes import JOIN, nodes_around
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.problems import Problem, nearest
from walkgraph.placement.capacity.shards import judge_moves, judge_shards
from walkgraph.placement.compiler.assignment import MOST_ALTERNATIVES, Assignment
from walkgraph.placement.document import ALL, Group
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.named import place_of
from walkgraph.placement.tables import EdgePlan, Plan, UsePlan, WalkPlan
from walkgraph.placement.transports import Transports, carries_all


def judge(
    assignment: Assignment, hardware: Hardware, catalogue: Catalogue, transports: Transports
) -> Iterator[Problem]:
    """Problems that need no tables: names, ranks, devices, transports, and features that the runtime lacks."""
    placement, graph = assignment.placement, assignment.graph
    if placement.graph not in {None, graph.name}:
        yield _warn(
            "other_graph", "/graph", f"this placement was made for `{placement.graph}`; check that it still fits"
        )
    yield from _ranks(assignment, hardware)
    if placement.transport is not None:
        hosts = {place_of(placement, hardware, entry.rank) for entry in placement.ranks}
        yield from _transport(placement.transport, transports, apart=len(hosts) > 1)
    for index, group in enumerate(placement.groups):
        yield from _group(assignment, hardware, group, f"/groups/{index}")
    yield from _too_many(assignment)
    yield from judge_shards(assignment, hardware, catalogue)
    yield from _unplaced(assignment)
    yield from _split_states(assignment)
    yield from _unavailable(assignment, catalogue)


def judge_plan(plan: Plan) -> Iterator[Problem]:
    """Problems found in the tables: ranks without work, and loops that wait for a transfer in every iteration."""
    for rank in plan.ranks:
        if not rank.nodes:
            message = f"no node is on rank {rank.rank}; remove the rank or place nodes there"
            yield _warn("idle_rank", "/ranks", message)
        elif rank.device != "cpu" and all(plan.nodes[node].host for node in rank.nodes):
            message = f"rank {rank.rank} holds `{rank.device}` for nodes that run on the CPU; give it the device `cpu`"
            yield _warn("idle_gpu", "/ranks", message)
        for node in (plan.nodes[index] for index in rank.nodes if rank.device != "cpu"):
            if node.kept and not node.host and (given := _from_gpus(plan, node.index)):
                message = (
                    f"outputs of `{node.name}` are kept only where all of its inputs come from a CPU, and "
                    f"{_list(given)} on a GPU gives it some; move that, or remove `kept`"
                )
                yield _warn("not_kept", "/groups", message)
    yield from judge_moves(plan)
    reported: set[tuple[str, int]] = set()
    for walk in plan.walks:
        yield from _apart_streams(plan, walk)
        if not walk.chunked:
            yield from _spanning_loops(plan, walk, reported)


def _from_gpus(plan: Plan, node: int) -> list[str]:
    """Nodes on GPUs that give a node its inputs."""
    gpus = {rank.rank for rank in plan.ranks if rank.device != "cpu"}
    found: dict[str, None] = {}
    for walk in plan.walks:
        for edge in walk.edges:
            if edge.source.kind == "use" and edge.target.kind == "use" and walk.uses[edge.target.use].node == node:
                source = walk.uses[edge.source.use]
                if source.op == "call" and source.rank in gpus and not plan.nodes[source.node].host:
                    found[plan.nodes[source.node].name] = None
    return list(found)


def _apart_streams(plan: Plan, walk: WalkPlan) -> Iterator[Problem]:
    """Streams that branches on several ranks feed: their items would have no order."""
    uses: dict[int, list[UsePlan]] = {}
    for edge in walk.edges:
        if edge.target.kind == "stream":
            uses.setdefault(edge.target.index, []).append(walk.uses[edge.source.use])
    for stream, feeding in uses.items():
        ranks = sorted({use.rank for use in feeding})
        if len(ranks) > 1:
            names = _list(dict.fromkeys(use.name for use in feeding))
            message = f"{names} feed stream `{plan.streams[stream].name}` from ranks {_list(ranks)}, branch by branch"
            yield Problem("unsupported", "/groups", f"{message}; place them on one rank")


def _warn(code: str, pointer: str, message: str) -> Problem:
    return Problem(code, pointer, message, "warning")


# ── names and ranks ─────────────────────────────────────────────────────────────────────────────


def _ranks(assignment: Assignment, hardware: Hardware) -> Iterator[Problem]:
    ranks = [entry.rank for entry in assignment.placement.ranks]
    if not ranks:
        yield Problem("no_ranks", "/ranks", 'there is no rank; add one (`{"rank": 0, "device": "cpu"}`)')
    for index, entry in enumerate(assignment.placement.ranks):
        if entry.rank in ranks[:index]:
            message = f"rank {entry.rank} is given twice; keep one"
            yield Problem("duplicate_rank", f"/ranks/{index}/rank", message)
        elif entry.rank >= len(set(ranks)):
            message = f"ranks count from 0 without gaps: {len(set(ranks))} ranks end with {len(set(ranks)) - 1}"
            yield Problem("rank_gap", f"/ranks/{index}/rank", message)
        host = hardware.at(assignment.placement.host(entry.rank) or "")
        if host is not None and host.devices and host.device(entry.device) is None:
            names = ", ".join(f"`{d.name}`" for d in host.devices)
            message = f"`{entry.device}` is not on host `{host.host}`; use one of {names}"
            yield Problem("no_device", f"/ranks/{index}/device", message)


def _transport(name: str, transports: Transports, *, apart: bool) -> Iterator[Problem]:
    """Problems with the transport that a placement names. `apart`: its ranks are on several hosts."""
    usable = [other for other in transports if carries_all(transports, other, apart=apart)]
    if name not in transports:
        message = f"there is no transport `{name}`; {nearest(name, usable)}"
        yield Problem("unknown_transport", "/transport", message)
    elif name not in usable:
        message = f"`{name}` doesn't carry every tensor between ranks; name one of {_list(usable)}, or remove it"
        yield Problem("unsupported", "/transport", message)
    elif not transports[name].installed:
        extra = transports[name].extra
        message = f"`{name}` is not installed; run `pip install 'walkgraph[{extra}]'`, or remove `transport`"
        yield Problem("not_installed", "/transport", message)


def _group(assignment: Assignment, hardware: Hardware, group: Group, at: str) -> Iterator[Problem]:
    graph = assignment.graph
    ranks = {entry.rank for entry in assignment.placement.ranks}
    standing = {outer for node in graph.nodes if JOIN in node for outer in nodes_around(node)}
    for index, node in enumerate(group.nodes):
        if node != ALL and node not in graph.nodes and node not in standing:
            message = f"the graph has no node `{node}`; {nearest(node, graph.nodes)}"
            yield Problem("unknown_node", f"{at}/nodes/{index}", message)
    for index, walk in enumerate(group.walks or ()):
        if walk not in graph.walks:
            message = f"the graph has no Walk `{walk}`; {nearest(walk, graph.walks)}"
            yield Problem("unknown_walk", f"{at}/walks/{index}", message)
    for index, rank in enumerate(group.ranks):
        if rank not in ranks:
            message = f"there is no rank {rank}; add it to `ranks` or take one of {_list(sorted(ranks))}"
            yield Problem("unknown_rank", f"{at}/ranks/{index}", message)
    yield from _widths(group, at)
    if group.replicas > 1:
        yield from _replicas(assignment, hardware, group, at)


def _widths(group: Group, at: str) -> Iterator[Problem]:
    count, width = group.width * group.replicas, "sequence" if group.sequence_parallel > 1 else "tensor"
    if len(group.ranks) != count:
        message = (
            f"`{width}_parallel` times `replicas` is {count}, but {len(group.ranks)} ranks are given; make them equal"
        )
        yield Problem("rank_count", f"{at}/ranks", message)


def _replicas(assignment: Assignment, hardware: Hardware, group: Group, at: str) -> Iterator[Problem]:
    """Replicas on one rank, which could hold only one of them, and on one GPU, where they only take turns."""
    placement = assignment.placement
    devices = {entry.rank: (place_of(placement, hardware, entry.rank), entry.device) for entry in placement.ranks}
    taken, used = set[int](), set[tuple[str, str]]()
    for index, rank in enumerate(group.ranks):
        place = devices.get(rank, ("", "cpu"))
        if rank in taken:
            message = f"rank {rank} holds two replicas; give each a rank of its own"
            yield Problem("same_rank", f"{at}/ranks/{index}", message)
        elif place[1] != "cpu" and place in used:
            message = f"`{place[1]}` holds two replicas, which take turns on it; give each a GPU of its own"
            yield _warn("shared_device", f"{at}/ranks/{index}", message)
        taken.add(rank)
        used.add(place)


def _too_many(assignment: Assignment) -> Iterator[Problem]:
    counts = assignment.counts
    if prod(counts) > MOST_ALTERNATIVES:
        message = (
            f"groups with {_list(counts)} replicas make {prod(counts)} combinations, and there may be "
            f"{MOST_ALTERNATIVES}; give groups the same number of replicas, or fewer"
        )
        largest = max(range(len(assignment.placement.groups)), key=lambda i: assignment.placement.groups[i].replicas)
        yield Problem("too_many_replicas", f"/groups/{largest}/replicas", message)


def _unplaced(assignment: Assignment) -> Iterator[Problem]:
    walks: dict[str, list[str]] = {}
    for node, walk in assignment.unplaced:
        walks.setdefault(node, []).append(walk)
    for node, missing in walks.items():
        message = f"node `{node}` has no rank in {_list(missing)}; add it to a group, or a group with the node `*`"
        yield Problem("unplaced", "/groups", message)


def _split_states(assignment: Assignment) -> Iterator[Problem]:
    reported: set[tuple[str, str]] = set()
    places = ((one, state, walk) for one in assignment.alternatives for walk in one.walks for state in one.bound)
    for one, state, walk in places:
        ranks, nodes = one.homes(state, walk), one.bound[state]
        if len(ranks) > 1 and (state, walk) not in reported:
            reported.add((state, walk))
            message = (
                f"state `{state}` would be on ranks {_list(ranks)} at once in Walk `{walk}`; "
                f"place {_list(nodes)} together there"
            )
            placed = assignment.group(nodes[-1], walk)
            yield Problem("split_state", f"/groups/{placed[0]}" if placed else "/groups", message)


def _unavailable(assignment: Assignment, catalogue: Catalogue) -> Iterator[Problem]:
    for name, node in assignment.graph.nodes.items():
        component = catalogue.get(node.component)
        if component is None or component.available:
            continue
        placed = assignment.group(name, None)
        message = f"component `{node.component}` of node `{name}` has no network; it can be planned, not deployed"
        yield _warn("unavailable", f"/groups/{placed[0]}" if placed else "/groups", message)


def _list(items: Iterable[object]) -> str:
    shown = [f"`{item}`" if isinstance(item, str) else str(item) for item in items]
    return ", ".join(shown[:8]) + (" …" if len(shown) > 8 else "")


# ── loops across ranks ──────────────────────────────────────────────────────────────────────────


def _spanning_loops(plan: Plan, walk: WalkPlan, reported: set[tuple[str, int]]) -> Iterator[Problem]:
    """Loops where the values of one iteration go to another rank and back, through their hosts, before the next can
    start. `reported`: (Walk, loop) of those that were reported, perhaps with other replicas."""
    for edge in walk.edges:
        if not edge.carried:
            continue
        loop = walk.uses[edge.target.use].loops[edge.common - 1]
        cycle = _cycle(walk, edge, loop)
        ranks = sorted({walk.uses[use].rank for use in cycle})
        if len(ranks) > 1 and (walk.name, loop) not in reported and not walk.loops[loop].resident:
            reported.add((walk.name, loop))
            names = dict.fromkeys(walk.uses[use].name for use in sorted(cycle))
            message = (
                f"every iteration of loop `{walk.loops[loop].name}` in Walk `{walk.name}` goes between ranks "
                f"{_list(ranks)} and back; unless the branches are heavy, place {_list(names)} on one rank"
            )
            yield _warn("crossing_loop", "/groups", message)


def _cycle(walk: WalkPlan, carried: EdgePlan, loop: int) -> set[int]:
    """Uses on the paths from the carried edge's target to its source within one iteration; empty if there are none."""
    start, goal = carried.target.use, carried.source.use
    after: dict[int, list[int]] = {}
    before: dict[int, list[int]] = {}
    for edge in walk.edges:
        a, b = edge.source.use, edge.target.use
        if not edge.carried and a >= 0 and b >= 0 and loop in walk.uses[a].loops and loop in walk.uses[b].loops:
            after.setdefault(a, []).append(b)
            before.setdefault(b, []).append(a)
    return _reach(start, after) & _reach(goal, before)


def _reach(start: int, edges: dict[int, list[int]]) -> set[int]:
    seen, queue = {start}, [start]
    while queue:
        for use in edges.get(queue.pop(), ()):
            if use not in seen:
                seen.add(use)
                queue.append(use)
    return seen
