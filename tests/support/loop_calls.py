"""Entries of device loops written down use by use, for tests that hand them to an engine without a plan; and a real
entry as if it had been written so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey, Timed
from walkgraph.engine.loops.spec import (
    Channel,
    ChannelPort,
    LoopCall,
    LoopOutput,
    LoopSource,
    LoopSpec,
    LoopUse,
    LoopUseSpec,
    Mask,
    Place,
    state_name,
)

TIMED = (None, Timed(0.02, chunk=0.1), Timed(0.5, chunk=1.0), Timed(0.5, plays=False, chunk=1.0))
"""Loops that are not played as they come, that are near their deadlines, and that are ahead."""


@dataclass(frozen=True, slots=True)
class LoopInput:
    port: str
    source: Literal["absent", "value", "each", "item", "use", "stack", "index", "channel"]
    value: Any = None
    use: int = -1
    output: str = ""
    part: int | None = None
    stacked: tuple[Place, ...] = ()
    carried: Place | None = None
    channel: Channel | None = None
    """With `value` it is as `carried`, of a use on another rank."""
    comes: Mask | None = None


@dataclass(frozen=True, slots=True)
class WrittenUse:
    node: str
    inputs: tuple[LoopInput, ...]
    params: Mapping[str, Scalar]
    varying: Mapping[str, tuple[Scalar, ...]]
    states: Mapping[str, StateKey]
    seed: int
    active: Mask | None = None
    name: str = ""
    inner: tuple[int, ...] = ()


class WrittenSend(NamedTuple):
    use: int
    port: str
    channel: Channel
    active: Mask | None


@dataclass(kw_only=True)
class _Writing:
    states: dict[StateKey, str]
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    reads: list[ChannelPort] = field(default_factory=list[ChannelPort])
    comes: list[Mask | None] = field(default_factory=list["Mask | None"])

    def use(self, at: int, use: WrittenUse) -> LoopUseSpec:
        sources = {port.port: self.source(at, port) for port in use.inputs}
        return LoopUseSpec(
            use.node,
            use.name,
            {port: source for port, source in sources.items() if source is not None},
            {slot: self.states[key] for slot, key in use.states.items()},
            tuple(sorted(use.varying)),
            use.inner,
        )

    def source(self, at: int, port: LoopInput) -> LoopSource | None:
        plain = self.plain(at, port)
        if port.channel is not None:
            self.reads.append(ChannelPort(at, port.port, port.channel))
            self.comes.append(port.comes)
            number, entry = len(self.reads) - 1, plain.entry if plain is not None else None
            kind: Any = "channel" if port.source == "channel" else "behind"
            return LoopSource(kind, channel=number, entry=entry)
        if port.carried is None:
            return plain
        if plain is None or not plain.enters:
            return LoopSource("carried", port.carried, first=plain)
        return LoopSource("carried", port.carried, entry=plain.entry, sliced=plain.sliced)

    def plain(self, at: int, port: LoopInput) -> LoopSource | None:
        match port.source:
            case "value" | "each":
                entry = f"{at}.{port.port}"
                self.values[entry] = port.value
                each = port.source == "each"
                return LoopSource("each" if each else "entering", entry=entry, sliced=each)
            case "use":
                return LoopSource("internal", (port.use, port.output), part=port.part)
            case "stack":
                return LoopSource("stack", places=port.stacked)
            case "index" | "item":
                return LoopSource(port.source)
            case _:
                return None


def written(
    run: str,
    walk: str,
    step: int,
    use: int,
    loop: str,
    iteration: tuple[int, ...],
    body: Sequence[WrittenUse],
    times: int,
    until: Place | None,
    outputs: tuple[LoopOutput, ...],
    *,
    sends: Sequence[WrittenSend] = (),
    usual: tuple[int, ...] = (),
    leads: bool = True,
    **more: Any,
) -> LoopCall:
    keys = dict.fromkeys(key for one in body for _, key in sorted(one.states.items()))
    writing = _Writing(states={key: state_name(index) for index, key in enumerate(keys)})
    spec = LoopSpec(
        walk=walk,
        use=use,
        loop=loop,
        uses=tuple(writing.use(at, one) for at, one in enumerate(body)),
        until=until,
        outputs=outputs,
        reads=tuple(writing.reads),
        sends=tuple(ChannelPort(one.use, one.port, one.channel) for one in sends),
        usual=usual,
        leads=leads,
    )
    return LoopCall(
        spec=spec,
        run=run,
        step=step,
        iteration=iteration,
        times=times,
        uses=tuple(LoopUse(one.params, one.varying, one.seed, one.active) for one in body),
        values=writing.values,
        states={name: key for key, name in writing.states.items()},
        comes=tuple(writing.comes),
        goes=tuple(one.active for one in sends),
        **more,
    )


def rewritten(call: LoopCall, **changes: Any) -> LoopCall:
    """With other fields of what `written` takes, or of the call."""
    spec, names = call.spec, ("walk", "use", "loop", "until", "outputs", "usual", "leads")
    kept = {name: getattr(spec, name) for name in names}
    sends = [WrittenSend(*one, active=goes) for one, goes in zip(spec.sends, call.goes, strict=True)]
    own = ("run", "step", "iteration", "times", "grain", "offset", "allowed", "wanted", "anew", "widths", "priority")
    kept |= {name: getattr(call, name) for name in (*own, "ready_at")}
    return written(**{**kept, "body": body_of(call), "sends": sends, **changes})


def body_of(call: LoopCall) -> tuple[WrittenUse, ...]:
    """The uses of an entry as they are written down."""
    return tuple(
        WrittenUse(
            use.node,
            tuple(_input(call, port, source) for port, source in use.sources.items()),
            given.params,
            given.varying,
            {slot: call.states[name] for slot, name in use.states.items()},
            given.seed,
            given.active,
            use.name,
            use.inner,
        )
        for use, given in zip(call.spec.uses, call.uses, strict=True)
    )


def _input(call: LoopCall, port: str, source: LoopSource) -> LoopInput:
    carried = source.place if source.kind == "carried" else None
    if source.kind in ("channel", "behind"):
        channel, comes = call.spec.reads[source.channel].channel, call.comes[source.channel]
        kind: Any = "channel" if source.kind == "channel" else "value"
        return LoopInput(port, kind, source.given(call.values), channel=channel, comes=comes)
    if source.enters:
        each = source.sliced
        return LoopInput(port, "each" if each else "value", source.given(call.values), carried=carried)
    if carried is not None:
        first = LoopInput(port, "absent") if source.first is None else _input(call, port, source.first)
        return replace(first, carried=carried)
    if source.kind == "index":
        return LoopInput(port, "index")
    if source.kind == "stack":
        return LoopInput(port, "stack", stacked=source.places)
    assert source.place is not None
    return LoopInput(port, "use", use=source.place[0], output=source.place[1], part=source.part)
