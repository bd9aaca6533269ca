"""Decides which outputs are read back to the host: those that leave for a client, a stream, a node on the CPU or,
through host memory, another rank; and those that end a loop, say why, or take a branch, which the worker reads when it
steps the loop or the choice. All others stay on the device. A call may say that it needs less (`Call.unread`)."""

from collections.abc import Collection, Mapping

from walkgraph.abi.calls import Call
from walkgraph.placement.tables import LOCAL, EdgePlan, Plan, RankPlan, WalkPlan

ReadBack = Mapping[str, str | None]
"""Output that is copied to the host -> the dtype in which its floats are; None: their own."""


def host_ports(plan: Plan, here: RankPlan) -> dict[str, frozenset[str]]:
    """Node on this rank's device -> its output ports that are copied to the host."""
    found: dict[str, set[str]] = {}
    for walk in plan.walks:
        for edge in walk.edges:
            if edge.source.kind != "use":
                continue
            use = walk.uses[edge.source.use]
            if use.op == "call" and use.rank == here.rank and read_back(plan, walk, edge):
                found.setdefault(plan.nodes[use.node].name, set()).add(edge.source.port)
        for use, port in [ending for loop in walk.loops for ending in loop.endings]:
            ending = walk.uses[use]
            if ending.op == "call" and ending.rank == here.rank:
                node = plan.nodes[ending.node]
                found.setdefault(node.name, set()).update((port, *node.reasons.get(port, ())))
    return {node: frozenset(ports) for node, ports in found.items() if not _host(plan, node)}


def read_of(call: Call, ports: Collection[str]) -> ReadBack:
    """The outputs of a call that are copied to the host. `ports`: those of its node."""
    return {port: call.sent_as.get(port) for port in ports if port not in call.unread}


def chained(plan: Plan, here: RankPlan) -> frozenset[str]:
    """Nodes on this rank's device whose outputs go only to calls on that device, each value to a call as it is. What
    follows them can be launched before they are done."""
    mine = {
        plan.nodes[use.node].name
        for walk in plan.walks
        for use in walk.uses
        if use.op == "call" and use.rank == here.rank and not plan.nodes[use.node].host
    }
    leaving = {
        plan.nodes[use.node].name
        for walk in plan.walks
        for edge in walk.edges
        if edge.source.kind == "use"
        for use in (walk.uses[edge.source.use],)
        if use.op == "call" and not _stays(plan, walk, edge)
    }
    judging = {
        plan.nodes[walk.uses[use].node].name
        for walk in plan.walks
        for loop in walk.loops
        for use, _ in loop.endings
        if walk.uses[use].op == "call"
    }
    return frozenset(mine - leaving - judging)


def _stays(plan: Plan, walk: WalkPlan, edge: EdgePlan) -> bool:
    """True if the edge carries a value unchanged to a call on the same device."""
    if edge.target.kind != "use" or edge.leave == "collect":
        return False
    source, target = walk.uses[edge.source.use], walk.uses[edge.target.use]
    return target.op == "call" and target.rank == source.rank and not plan.nodes[target.node].host


def read_back(plan: Plan, walk: WalkPlan, edge: EdgePlan) -> bool:
    """True if the values of an edge that begins on a device are read on the host."""
    if edge.target.kind == "result":
        return edge.target.chosen or not (edge.on_device or edge.transport == LOCAL)
    if edge.target.kind != "use":
        return True
    target = walk.uses[edge.target.use]
    if target.op == "choose":
        return True
    if target.rank != walk.uses[edge.source.use].rank:
        return not edge.on_device
    return target.op == "call" and plan.nodes[target.node].host


def _host(plan: Plan, node: str) -> bool:
    return any(one.name == node and one.host for one in plan.nodes)
