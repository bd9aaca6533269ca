"""Decides which outputs are read back to the host: those that leave for a client, a stream, a node on the CPU or,
through host memory, another rank; and those that end a loop, say why, or take a branch, which the worker reads when it
steps the loop or the choice. All others stay on the device. A call may say that it needs less (`Call.unread`)."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from walkgraph.abi.calls import Call
from walkgraph.engine.load import WARM_UP
from walkgraph.placement.tables import LOCAL, EdgePlan, Plan, RankPlan, UsePlan, WalkPlan

WalkUse = tuple[str, str]
"""A Walk, and the name of a use there, as in `Call`."""
ReadBack = Mapping[str, str | None]
"""Output that is copied to the host -> the dtype in which its floats are; None: their own."""


def host_ports(plan: Plan, here: RankPlan) -> dict[WalkUse, frozenset[str]]:
    """Use of a node on this rank's device -> its output ports that are copied to the host. A warm-up call, which has
    the name of its node, gives what any use of the node does."""
    found = defaultdict[WalkUse, set[str]](set)
    for walk in plan.walks:
        mine = {use.index: plan.nodes[use.node] for use in _calls_here(plan, walk, here)}
        read = [
            (edge.source.use, edge.source.port)
            for edge in walk.edges
            if edge.source.kind == "use" and edge.source.use in mine and read_back(plan, walk, edge)
        ]
        endings = [ending for loop in walk.loops for ending in loop.endings if ending[0] in mine]
        whys = [(use, why) for use, port in endings for why in mine[use].reasons.get(port, ())]
        for use, port in (*read, *endings, *whys):
            found[walk.name, walk.uses[use].name].add(port)
            found[WARM_UP, mine[use].name].add(port)
    return {place: frozenset(ports) for place, ports in found.items()}


def read_of(call: Call, ports: Collection[str]) -> ReadBack:
    """The outputs of a call that are copied to the host. `ports`: those of its use."""
    return {port: call.sent_as.get(port) for port in ports if port not in call.unread}


def chained(plan: Plan, here: RankPlan) -> frozenset[WalkUse]:
    """Uses on this rank's device whose outputs go only to calls on that device, each value to a call as it is, in all
    variants of their Walk. What follows them can be launched before they are done."""
    staying, others = set[WalkUse](), set[WalkUse]()
    for walk in plan.walks:
        edges = (edge for edge in walk.edges if edge.source.kind == "use")
        leaving = {edge.source.use for edge in edges if not _stays(plan, walk, edge)}
        judging = {use for loop in walk.loops for use, _ in loop.endings}
        for use in _calls_here(plan, walk, here):
            (others if use.index in leaving | judging else staying).add((walk.name, use.name))
    return frozenset(staying - others)


def _calls_here(plan: Plan, walk: WalkPlan, here: RankPlan) -> Iterator[UsePlan]:
    """The uses of nodes on this rank's device."""
    for use in walk.uses:
        if use.op == "call" and use.rank == here.rank and not plan.nodes[use.node].host:
            yield use


def _stays(plan: Plan, walk: WalkPlan, edge: EdgePlan) -> bool:
    """True if the edge carries a value unchanged to calls on the same device, perhaps of later Walks."""
    if edge.leave == "collect":
        return False
    if edge.target.kind == "result":
        return edge.transport == LOCAL and not read_back(plan, walk, edge)
    if edge.target.kind != "use":
        return False
    source, target = walk.uses[edge.source.use], walk.uses[edge.target.use]
    return target.op == "call" and target.rank == source.rank and not plan.nodes[target.node].host


def read_back(plan: Plan, walk: WalkPlan, edge: EdgePlan) -> bool:
    """True if the values of an edge that begins on a device are read on the host."""
    if edge.target.kind == "result":
        return edge.target.chosen or edge.target.host or not (edge.on_device or edge.transport == LOCAL)
    if edge.target.kind != "use":
        return True
    target = walk.uses[edge.target.use]
    if target.op == "choose":
        return True
    if target.rank != walk.uses[edge.source.use].rank:
        return not edge.on_device
    return target.op == "call" and plan.nodes[target.node].host
