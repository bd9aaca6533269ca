"""The loops that a rank's engine will run, before any request has come: what it makes ready while it loads."""

from collections.abc import Iterator, Sequence

from walkgraph.networks.base import StateKey
from walkgraph.networks.loops import LoopCall, LoopInput, LoopUse
from walkgraph.placement.tables import Plan
from walkgraph.worker.fold import Port
from walkgraph.worker.tables import RegionTable, UseTable, WalkTable

_RUN = "warm-up"
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
    uses = zip(region.body, region.plan.ports, zip(*forms, strict=True), strict=True)
    always = {edge.source.port for edge in emits if edge.index not in region.readers}
    return LoopCall(
        run=_RUN,
        walk=table.plan.name,
        step=0,
        use=index,
        loop=region.plan.loop.name,
        iteration=(),
        body=tuple(_use(plan, use, ports, active) for use, ports, active in uses),
        times=len(forms),
        until=region.plan.until,
        outputs=region.plan.outputs,
        wanted={edge.source.port: (False,) * len(forms) for edge in emits if edge.source.port not in always},
    )


def _forms(region: RegionTable) -> list[tuple[bool, ...]]:
    """Which uses are called in an iteration: those without conditions of their own, then one condition after the other
    holds, in the order of the body; in the last one all do."""
    uses = region.plan.uses
    asked = list(dict.fromkeys(use.when for use in uses if use.when))
    held = [*range(min(len(asked), _MOST_FORMS - 1)), len(asked)]
    return [tuple(not use.when or use.when in asked[:count] for use in uses) for count in held]


def _use(plan: Plan, use: UseTable, ports: Sequence[Port], active: tuple[bool, ...]) -> LoopUse:
    node = use.node
    slots = node.states if node is not None else {}
    return LoopUse(
        node=node.name if node is not None else "",
        inputs=tuple(_input(port) for port in ports),
        params={**(node.defaults if node is not None else {}), **use.literals},
        varying=dict.fromkeys(sorted(use.varying), (0.0,) * len(active)),
        states={slot: StateKey(_RUN, plan.states[state].name) for slot, state in slots.items()},
        seed=0,
        active=None if all(active) else active,
    )


def _input(port: Port) -> LoopInput:
    if port.entry is not None:
        return LoopInput(port.name, "each" if port.each else "value", carried=port.carried)
    if port.source is not None:
        return LoopInput(port.name, "use", use=port.source[0], output=port.source[1], carried=port.carried)
    return LoopInput(port.name, "index" if port.index else "absent", carried=port.carried)
