"""Reference implementation of a device loop: iteration by iteration, use by use, on plain values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from walkgraph.abi.calls import Call
from walkgraph.engine.loops.spec import (
    Channel,
    Items,
    LoopCall,
    LoopOutput,
    LoopSource,
    LoopUse,
    LoopUseSpec,
    Place,
    StreamItems,
)
from walkgraph.errors import ErrorInfo
from walkgraph.placement.tables import BOUND, STOP
from walkgraph.worker.events import CallDone, Ref
from walkgraph.worker.walk import shaping

_NOTHING = object()
_LATER = object()

ChannelValues = dict[tuple[Any, ...], tuple[int, Any]]
"""Channel -> (iteration of the last value sent, value)."""


class PlainLoop:
    def __init__(
        self,
        call: LoopCall,
        functions: Mapping[str, Callable[[Call], dict[str, Any]]],
        calls: list[Call] | None = None,
        channels: ChannelValues | None = None,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`calls` collects the calls. `channels`: shared by all ranks. `begin` prepares the states before each
        iteration."""
        self.begin = begin
        self.call, self.functions, self.calls = call, functions, calls
        self.channels: ChannelValues = {} if channels is None else channels
        self.now: list[dict[str, Any]] = []
        """Outputs of the uses in the current iteration."""
        self.ref = Ref(call.run, call.step, call.use, call.iteration)
        self.allowed, self.fed = call.allowed, call.fed
        self.done = 0
        """Finished iterations."""
        self.told = 0
        """Iterations whose items were handed out."""
        self.before: list[dict[str, Any]] = []
        self.kept: dict[str, list[Any]] = {out.key: [] for out in call.spec.outputs}
        self.items_of: dict[Place, list[Any]] = {}
        """The items that streams have brought so far, by the port that reads them."""

    def put_items(self, items: StreamItems) -> None:
        there, values = self.items_of.setdefault(items.place, []), cast(Any, items.values)
        if len(there) != items.first:
            raise RuntimeError(f"items from {items.first} on come after {len(there)}")
        there += list(values.split(1))

    @property
    def full(self) -> bool:
        return self.allowed is not None and self.done >= self.allowed

    @property
    def blocked(self) -> bool:
        return self.full or (self.fed is not None and self.done >= self.fed)

    def advance(self) -> Sequence[Items | CallDone]:
        """Computes one iteration; returns the events that follow."""
        call = self.call
        try:
            if not self.iterate():
                return []
        except ValueError as error:
            failure = ErrorInfo(code="node_error", message=str(error))
            return [CallDone(self.ref, None, failure, iterations=self.done)]
        stop = self.turn()
        for out in call.spec.outputs:
            if out.kind == "collect" and (not self.before[out.use] or (stop and out.drops)):
                continue  # collected only from iterations that call the use
            self.kept[out.key].append(self.gave(out))
        if stop or self.done == call.times:
            return [*self.items(stop), self.end(stop)]
        due = call.grain and (call.offset + self.done) % call.grain == 0
        return self.items(stop) if due or self.full else []

    def turn(self) -> bool:
        """Goes on to the next iteration. Returns True if the finished one raised `until`."""
        self.before, self.now = self.now, []
        self.done += 1
        until = self.call.spec.until
        return until is not None and bool(self.before[until[0]].get(until[1]))

    def gave(self, out: LoopOutput) -> Any:
        """The finished iteration's value of an output; None if there is none, or it isn't wanted."""
        wanted = self.call.wanted.get(out.key) if out.kind == "each" else None
        there = wanted is None or wanted[self.done - 1]
        return self.before[out.use].get(out.port) if there else None

    def last(self) -> dict[str, Any]:
        """Outputs that leave with the last iteration's value."""
        found = {out.key: self.gave(out) for out in self.call.spec.outputs if out.kind == "last"}
        return {key: value for key, value in found.items() if value is not None}

    def items(self, stop: bool) -> list[Items]:
        each = [out.key for out in self.call.spec.outputs if out.kind == "each"]
        if self.done == self.told or not each:
            return []
        values = {key: self.kept[key][self.told : self.done] for key in each}
        found = Items(self.call, self.told, self.done - self.told, values, stop)
        self.told = self.done
        return [found]

    def end(self, stop: bool) -> CallDone:
        outputs = self.last()
        for out in self.call.spec.outputs:
            if out.kind == "collect" and self.kept[out.key]:
                outputs[out.key] = self.kept[out.key]
        named = (name for name, key in self.call.spec.reasons if outputs.get(key))
        return CallDone(self.ref, outputs, iterations=self.done, reason=next(named, STOP) if stop else BOUND)

    def iterate(self) -> bool:
        """Computes the iteration as far as the channels' values have arrived. Returns True at its end."""
        now = self.now
        if not now:
            self.begin()
        uses = enumerate(zip(self.call.spec.uses, self.call.uses, strict=True))
        for place, (use, own) in list(uses)[len(now) :]:
            if own.active is not None and not own.active[self.done]:
                now.append({})
                continue
            found = {
                port: self.item((place, port)) if source.kind == "item" else self.value(source, now)
                for port, source in use.sources.items()
            }
            if _LATER in found.values():
                return False
            given = {port: value for port, value in found.items() if value is not _NOTHING}
            call = self.one(use, own, given)
            if self.calls is not None:
                self.calls.append(call)
            now.append(dict(self.functions[use.node](call)))
            self.merge(place, now)
            for send, goes in zip(self.call.spec.sends, self.call.goes, strict=True):
                if send.use == place and (goes is None or goes[self.done]):
                    self.channels[self.place(send.channel)] = self.done, now[place][send.port]
        return True

    def merge(self, last: int, now: list[dict[str, Any]]) -> None:
        """Add the outputs of merges that are complete with this use."""
        for merge in self.call.spec.merges:
            if merge.place[0] == last:
                use, port = merge.choice.by
                source, output = merge.places[min(merge.choice.taken(int(now[use][port])), len(merge.places) - 1)]
                if output in now[source]:
                    now[last][merge.port] = now[source][output]

    def place(self, channel: Channel) -> tuple[Any, ...]:
        return self.call.run, self.call.step, self.call.loop, self.call.iteration, channel.number

    def came(self, channel: Channel, iteration: int) -> Any:
        last, value = self.channels.get(self.place(channel), (-1, None))
        if last > iteration:
            raise RuntimeError(f"channel {channel.number} was overwritten before it was read")
        return value if last == iteration else _LATER

    def value(self, source: LoopSource, now: list[dict[str, Any]]) -> Any:
        if source.kind == "channel":
            channel, comes = self.call.spec.reads[source.channel].channel, self.call.comes[source.channel]
            return self.came(channel, self.done) if comes is None or comes[self.done] else _NOTHING
        if source.kind == "behind" and self.done > 0:
            return self.came(self.call.spec.reads[source.channel].channel, self.done - 1)
        if source.kind == "carried" and self.done > 0:
            use, port = source.place or (0, "")
            return self.before[use].get(port, _NOTHING)
        if source.first is not None:
            return self.value(source.first, now)
        return self.entering(source) if source.enters else self.given(source, now)

    def item(self, place: Place) -> Any:
        """The stream's item of this iteration. One that has not come never comes: no iteration is allowed before."""
        there = self.items_of.get(place, ())
        return there[self.done] if self.done < len(there) else _NOTHING

    def entering(self, source: LoopSource) -> Any:
        value = source.given(self.call.values)
        if source.sliced:
            return value[self.done] if self.done < len(value) else _NOTHING
        return value

    def given(self, source: LoopSource, now: list[dict[str, Any]]) -> Any:
        match source.kind:
            case "internal" if source.place is not None:
                found = now[source.place[0]].get(source.place[1], _NOTHING)
                if source.part is None or found is _NOTHING:
                    return found
                return found[source.part] if source.part < len(found) else _NOTHING
            case "stack":
                values = (now[use].get(output, _NOTHING) for use, output in source.places)
                there = [value for value in values if value is not _NOTHING]
                return shaping.stack(there) if there else _NOTHING
            case "index":
                return self.done
            case _:
                return _NOTHING

    def one(self, use: LoopUseSpec, own: LoopUse, given: dict[str, Any]) -> Call:
        call = self.call
        return Call(
            run=call.run,
            node=use.node,
            walk=call.walk,
            step=call.step,
            use=call.use,
            iteration=(*call.iteration, self.done, *use.inner),
            inputs=given,
            params={**own.params, **{name: values[self.done] for name, values in own.varying.items()}},
            states={slot: call.states[name] for slot, name in use.states.items()},
            seed=own.seed,
        )
