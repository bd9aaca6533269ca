"""The loops that a rank's engine will run, before any request has come: what it makes ready while it loads."""

from collections.abc import Iterator, Sequence
from itertools import product

from walkgraph.networks.base import StateKey
from walkgraph.networks.loops import LoopCall, LoopInput, LoopUse
from walkgraph.placement.tables import Plan
from walkgraph.worker.fold import Port
from walkgraph.worker.tables import RegionTable, UseTable, WalkTable

_RUN = "warm-up"
_MOST_FORMS = 4
"""Ways to leave out uses with conditions that are made ready."""


def loop_templates(plan: Plan, tables: Sequence[WalkTable]) -> Iterator[LoopCall]:
    """One for each resident loop, without entering values: an operator's examples stand for these. Its iterations call
    all of its uses with conditions, some, and none."""
    for table in tables:
        for index, use in table.uses.items():
            if use.region is not None:
                yield _template(plan, table, index, use.region)


def _template(plan: Plan, table: WalkTable, index: int, region: RegionTable) -> LoopCall:
    pairs = list(zip(region.body, region.plan.ports, strict=True))
    conditional = [place for place, one in enumerate(region.conditions) if one.fixed or one.varying]
    chosen = list(product((True, False), repeat=len(conditional)))[:_MOST_FORMS]
    active = {place: tuple(row[i] for row in chosen) for i, place in enumerate(conditional)}
    return LoopCall(
        run=_RUN,
        walk=table.plan.name,
        step=0,
        use=index,
        loop=region.plan.loop.name,
        iteration=(),
        body=tuple(_use(plan, use, ports, active.get(place)) for place, (use, ports) in enumerate(pairs)),
        times=len(chosen),
        until=region.plan.until,
        outputs=region.plan.outputs,
    )


def _use(plan: Plan, use: UseTable, ports: Sequence[Port], active: tuple[bool, ...] | None) -> LoopUse:
    node = use.node
    slots = node.states if node is not None else {}
    return LoopUse(
        node=node.name if node is not None else "",
        inputs=tuple(_input(port) for port in ports),
        params={**(node.defaults if node is not None else {}), **use.literals},
        varying=dict.fromkeys(sorted(use.varying), (0.0,)),
        states={slot: StateKey(_RUN, plan.states[state].name) for slot, state in slots.items()},
        seed=0,
        active=active,
    )


def _input(port: Port) -> LoopInput:
    if port.entry is not None:
        return LoopInput(port.name, "each" if port.each else "value", carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)
