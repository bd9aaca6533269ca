"""The loops that a rank's engine will run, before any request has come: what it makes ready while it loads."""

from collections.abc import Iterator, Mapping, Sequence

from walkgraph.networks.base import StateKey
from walkgraph.networks.loops import Channel, LoopCall, LoopInput, LoopSend, LoopUse
from walkgraph.placement.tables import EdgePlan, Plan
from walkgraph.worker.fold import Port
from walkgraph.worker.tables import RegionTable, UseTable, WalkTable

_RUN = "warm-up"
Active = Mapping[int, tuple[bool, ...]]
"""Use of the core, on whatever rank -> whether it is called, iteration by iteration."""
_MOST_FORMS = 4
"""Kinds of iterations of one loop that are made ready; others are when the first one comes."""


def loop_templates(plan: Plan, tables: Sequence[WalkTable]) -> Iterator[LoopCall]:
    """One for each resident loop, without entering values: an operator's examples stand for these. Its iterations are
    those that runs are likeliest to have."""
    for table in tables:
        for index, use in table.uses.items():
            if use.region is not None:
                yield _template(plan, table, index, use.region)


def _template(plan: Plan, table: WalkTable, index: int, region: RegionTable) -> LoopCall:
    forms, emits = _forms(region), region.plan.emits
    active: Active = {use: tuple(form[use] for form in forms) for use in forms[0]}
    always = {edge.source.port for edge in emits if edge.index not in region.readers}
    return LoopCall(
        run=_RUN,
        walk=table.plan.name,
        step=0,
        use=index,
        loop=region.plan.loop.name,
        iteration=(),
        body=tuple(
            _use(plan, use, ports, active, region) for use, ports in zip(region.body, region.plan.ports, strict=True)
        ),
        times=len(forms),
        until=region.plan.until,
        outputs=region.plan.outputs,
        wanted={edge.source.port: (False,) * len(forms) for edge in emits if edge.source.port not in always},
        sends=tuple(_send(place, edge, active, region) for place, edge in region.plan.sends),
        leads=region.plan.leads,
    )


def _forms(region: RegionTable) -> list[dict[int, bool]]:
    """Which uses are called in an iteration: those without conditions of their own, then one condition after the other
    holds, in the order of the body; in the last one all do."""
    uses = sorted((*region.plan.uses, *region.plan.others), key=lambda use: use.index)
    asked = list(dict.fromkeys(use.when for use in uses if use.when))
    held = [*range(min(len(asked), _MOST_FORMS - 1)), len(asked)]
    return [{use.index: not use.when or use.when in asked[:count] for use in uses} for count in held]


def _send(place: int, edge: EdgePlan, active: Active, region: RegionTable) -> LoopSend:
    reads = active[edge.target.use]
    there = reads if edge.carried else _both(active[edge.source.use], reads)
    channel = Channel(edge.index, region.ranks[edge.target.use])
    return LoopSend(place, edge.source.port, channel, None if all(there) else there)


def _both(one: tuple[bool, ...], other: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(a and b for a, b in zip(one, other, strict=True))


def _use(plan: Plan, use: UseTable, ports: Sequence[Port], forms: Active, region: RegionTable) -> LoopUse:
    node, active = use.node, forms[use.plan.index]
    slots = node.states if node is not None else {}
    return LoopUse(
        node=node.name if node is not None else "",
        inputs=tuple(_input(port, active, forms, region) for port in ports),
        params={**(node.defaults if node is not None else {}), **use.literals},
        varying=dict.fromkeys(sorted(use.varying), (0.0,) * len(active)),
        states={slot: StateKey(_RUN, plan.states[state].name) for slot, state in slots.items()},
        seed=0,
        active=None if all(active) else active,
        name=use.plan.name,
    )


def _input(port: Port, active: tuple[bool, ...], forms: Active, region: RegionTable) -> LoopInput:
    edge = port.across
    if edge is not None:
        channel = Channel(edge.index, region.ranks[edge.source.use])
        comes = active if edge.carried else _both(active, forms[edge.source.use])
        return LoopInput(port.name, "value" if edge.carried else "channel", channel=channel, comes=comes)
    if port.entry is not None:
        return LoopInput(port.name, "each" if port.each else "value", carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)
