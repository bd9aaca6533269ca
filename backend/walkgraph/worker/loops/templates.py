"""The loops that a rank's engine will run, before any request has come: what it makes ready while it loads."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.engine.loops.spec import Anew, Channel, LoopCall, LoopInput, LoopSend, LoopUse
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.placement.compiler.inside import INDEX
from walkgraph.placement.tables import EdgePlan, Plan
from walkgraph.worker.loops.unrolling import Instance, Unrolled, unrolls
from walkgraph.worker.walk.cursor import indices
from walkgraph.worker.walk.walk_tables import Params, RegionTable, UseTable, WalkTable, evaluator

_RUN = "warm-up"
Active = Mapping[int, tuple[bool, ...]]
"""Use of the core, on whatever rank -> whether it is called, iteration by iteration."""
_MOST_FORMS = 4
"""Kinds of iterations of one loop that are made ready; others are when the first one comes."""


def loop_templates(plan: Plan, tables: Sequence[WalkTable]) -> Iterator[LoopCall]:
    """Of each resident loop one for every size that the tasks give it by their defaults, without entering values: an
    operator's examples stand for these. Its iterations are those that runs are likeliest to have."""
    for table in tables:
        for index, use in table.uses.items():
            if use.region is not None:
                for sizes in _sizes(table, use.region):
                    yield _template(plan, table, index, use.region, sizes)


class _Sizes(NamedTuple):
    """What follows from parameters."""

    times: Mapping[int, int]
    """Of the loops inside."""
    widths: Mapping[int, int]
    """Of states that begin anew, or may have several sequences."""
    params: Mapping[str, Scalar]
    """Themselves."""


def _sizes(table: WalkTable, region: RegionTable) -> list[_Sizes]:
    """Of each kind of run that tasks tell of; where none does, there may be one that reads no parameters. Loops of one
    size are made ready for the first kind."""
    found: list[_Sizes] = []
    sized = bool(region.times or region.widths)
    for params in (table.plan.usual or ({},))[: None if sized else 1]:
        try:
            counts = {loop: int(count(params, {})) for loop, count in region.times.items()}
            widths = {state: int(width(params, {})) for state, width in region.widths.items()}
        except ExpressionError:
            continue
        if unrolls(region.plan.inside, counts):
            found.append(_Sizes(counts, widths, params))
    return found


def _template(plan: Plan, table: WalkTable, index: int, region: RegionTable, sizes: _Sizes) -> LoopCall:
    forms, emits, unrolled = _forms(region), region.plan.emits, Unrolled(region.plan.inside, sizes.times)
    active: Active = {use: tuple(form[use] for form in forms) for use in forms[0]}
    always = {edge.source.port for edge in emits if edge.index not in region.readers}
    until = region.plan.until
    return LoopCall(
        run=_RUN,
        walk=table.plan.name,
        step=0,
        use=index,
        loop=region.plan.loop.name,
        iteration=(),
        body=tuple(_body(_Of(plan, region, unrolled, active, sizes.params))),
        times=len(forms),
        until=(unrolled.last(until[0]), until[1]) if until is not None else None,
        outputs=tuple(unrolled.outputs(region.plan.outputs)),
        wanted={edge.source.port: (False,) * len(forms) for edge in emits if edge.source.port not in always},
        sends=tuple(_send(unrolled.last(place), edge, active, region) for place, edge in region.plan.sends),
        anew=(anew := _anew(plan, region, sizes)),
        widths={key: n for s, n in sizes.widths.items() if (key := _key(plan, s)) not in anew},
        usual=region.plan.loop.usual,
        leads=region.plan.leads,
    )


def _anew(plan: Plan, region: RegionTable, sizes: _Sizes) -> dict[StateKey, Anew]:
    copied = {
        _key(plan, fork.states[1]): Anew(_key(plan, fork.states[0]), sizes.widths[fork.states[1]])
        for fork in region.plan.forks
    }
    return copied | {_key(plan, state): Anew(None, sizes.widths[state]) for state in region.plan.anew}


def _key(plan: Plan, state: int) -> StateKey:
    return StateKey(_RUN, plan.states[state].name)


def _forms(region: RegionTable) -> list[dict[int, bool]]:
    """Which uses are called in an iteration: those without conditions of their own, then one condition after the other
    holds, in the order of the body; in the last one all do. What indices of loops inside decide is no matter of the
    iteration."""
    whens: dict[int, tuple[str, ...]] = {use.index: use.when for use in region.plan.others}
    for use, inside in zip(region.body, region.plan.inside, strict=True):
        whens[use.plan.index] = tuple(text for text in use.plan.when if not _decided(use, len(inside), text))
    asked = list(dict.fromkeys(when for _, when in sorted(whens.items()) if when))
    held = [*range(min(len(asked), _MOST_FORMS - 1)), len(asked)]
    return [{use: not when or when in asked[:count] for use, when in sorted(whens.items())} for count in held]


def _decided(use: UseTable, deep: int, text: str) -> bool:
    """Whether a condition of a use follows from indices of the `deep` loops inside that hold it, and parameters."""
    read = parse(text).loops
    return deep > 0 and bool(read) and read <= {INDEX, *use.loop_names[-deep:]}


def _send(place: int, edge: EdgePlan, active: Active, region: RegionTable) -> LoopSend:
    reads = active[edge.target.use]
    there = reads if edge.carried else _both(active[edge.source.use], reads)
    channel = Channel(edge.index, region.ranks[edge.target.use])
    return LoopSend(place, edge.source.port, channel, None if all(there) else there)


def _both(one: tuple[bool, ...], other: tuple[bool, ...]) -> tuple[bool, ...]:
    return tuple(a and b for a, b in zip(one, other, strict=True))


class _Of(NamedTuple):
    """What uses of a template are made of."""

    plan: Plan
    region: RegionTable
    unrolled: Unrolled
    forms: Active
    given: Params


def _body(of: _Of) -> Iterator[LoopUse]:
    asks: list[bool] = []
    """Of the uses so far: whether an iteration calls them."""
    for one in of.unrolled.order:
        use = of.region.body[one.place]
        active = of.forms[use.plan.index]
        if not _called(use, one, of.given):
            active = (False,) * len(active)
        yield _use(of, one, asks, active)
        asks.append(any(active))


def _called(use: UseTable, one: Instance, given: Params) -> bool:
    """Whether conditions that indices of loops inside decide let it be called."""
    where = _where(use, one)
    for text in use.plan.when:
        with suppress(ExpressionError):
            if _decided(use, len(one.inner), text) and not evaluator(text)(given, where):
                return False
    return True


def _where(use: UseTable, one: Instance) -> dict[str, int]:
    return indices(use.loop_names, (*(0,) * (len(use.loop_names) - len(one.inner)), *one.inner))


def _use(of: _Of, one: Instance, asks: Sequence[bool], active: tuple[bool, ...]) -> LoopUse:
    use, ports = of.region.body[one.place], of.region.plan.ports[one.place]
    node = use.node
    slots = node.states if node is not None else {}
    entering = {port.entry: None for port in ports if port.entry is not None}
    sources = (of.unrolled.input(port, one, entering, asks) for port in ports)
    return LoopUse(
        node=node.name if node is not None else "",
        inputs=tuple(_across(source, one.place, active, of.forms, of.region) for source in sources),
        params=_params(use, one, of.given),
        varying=dict.fromkeys(sorted(use.varying), (0.0,) * len(active)),
        states={slot: _key(of.plan, state) for slot, state in slots.items()},
        seed=0,
        active=None if all(active) else active,
        name=use.plan.name,
        inner=one.inner,
    )


def _params(use: UseTable, one: Instance, given: Params) -> dict[str, Scalar]:
    """As a run has them that leaves the task's alone, as far as it is known."""
    found: dict[str, Scalar] = {**(use.node.defaults if use.node is not None else {}), **use.literals}
    where = _where(use, one)
    for name, value in (*use.fixed, *use.computed):
        try:
            found[name] = value(given, where)
        except ExpressionError:
            continue
    return {name: value for name, value in found.items() if name not in use.varying}


def _across(found: LoopInput, place: int, active: tuple[bool, ...], forms: Active, region: RegionTable) -> LoopInput:
    edge = region.plan.across.get((place, found.port))
    if edge is None:
        return found
    channel = Channel(edge.index, region.ranks[edge.source.use])
    comes = active if edge.carried else _both(active, forms[edge.source.use])
    return LoopInput(found.port, "value" if edge.carried else "channel", channel=channel, comes=comes)
