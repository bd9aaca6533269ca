"""The loops that a rank's engine will run, before any request has come: what it makes ready while it loads."""

from collections.abc import Iterator, Sequence

from walkgraph.networks.base import StateKey
from walkgraph.networks.loops import LoopCall, LoopInput, LoopUse
from walkgraph.placement.tables import Plan
from walkgraph.worker.fold import Port
from walkgraph.worker.tables import RegionTable, UseTable, WalkTable

_RUN = "warm-up"


def loop_templates(plan: Plan, tables: Sequence[WalkTable]) -> Iterator[LoopCall]:
    """One for each resident loop, without entering values: an operator's examples stand for these."""
    for table in tables:
        for index, use in table.uses.items():
            if use.region is not None:
                yield _template(plan, table, index, use.region)


def _template(plan: Plan, table: WalkTable, index: int, region: RegionTable) -> LoopCall:
    pairs = zip(region.body, region.plan.ports, strict=True)
    return LoopCall(
        run=_RUN,
        walk=table.plan.name,
        step=0,
        use=index,
        loop=region.plan.loop.name,
        iteration=(),
        body=tuple(_use(plan, use, ports) for use, ports in pairs),
        times=1,
        until=region.plan.until,
        outputs=region.plan.outputs,
    )


def _use(plan: Plan, use: UseTable, ports: Sequence[Port]) -> LoopUse:
    node = use.node
    slots = node.states if node is not None else {}
    return LoopUse(
        node=node.name if node is not None else "",
        inputs=tuple(_input(port) for port in ports),
        params=dict(use.literals),
        varying=dict.fromkeys(sorted(use.varying), (0.0,)),
        states={slot: StateKey(_RUN, plan.states[state].name) for slot, state in slots.items()},
        seed=0,
    )


def _input(port: Port) -> LoopInput:
    if port.entry is not None:
        return LoopInput(port.name, "each" if port.each else "value", carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)
