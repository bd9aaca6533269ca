"""An engine's way with a device loop, by the book: one iteration after the other, use by use, on plain values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walkgraph.abi.calls import Call
from walkgraph.engine.loops.spec import Channel, Items, LoopCall, LoopSource, LoopUse, LoopUseSpec
from walkgraph.errors import ErrorInfo
from walkgraph.worker.events import CallDone, Ref
from walkgraph.worker.walk import shaping

_NOTHING = object()
_LATER = object()


Rooms = dict[tuple[Any, ...], tuple[int, Any]]
"""Of channels: the last iteration whose value was sent, and the value."""


class FakeLoop:
    def __init__(
        self,
        call: LoopCall,
        functions: Mapping[str, Callable[[Call], dict[str, Any]]],
        calls: list[Call],
        rooms: Rooms | None = None,
        begin: Callable[[], None] = lambda: None,
    ):
        """`rooms`: of all ranks' channels. `begin`: makes the states that an iteration begins with."""
        self.begin = begin
        self.call, self.functions, self.calls, self.rooms = call, functions, calls, {} if rooms is None else rooms
        self.now: list[dict[str, Any]] = []
        """Of the iteration that is under way."""
        self.ref = Ref(call.run, call.step, call.use, call.iteration)
        self.allowed = call.allowed
        self.done = 0
        """Iterations."""
        self.told = 0
        """Iterations that were handed out."""
        self.before: list[dict[str, Any]] = []
        self.kept: dict[str, list[Any]] = {out.key: [] for out in call.spec.outputs}

    @property
    def blocked(self) -> bool:
        return self.allowed is not None and self.done >= self.allowed

    def advance(self) -> Sequence[Items | CallDone]:
        """One iteration, and what is to be told after it."""
        call = self.call
        try:
            if not self.iterate():
                return []
            now, self.now = self.now, []
        except ValueError as error:
            failure = ErrorInfo(code="node_error", message=str(error))
            return [CallDone(self.ref, None, failure, iterations=self.done, stopped=False)]
        self.before = now
        until = call.spec.until
        stop = until is not None and bool(now[until[0]].get(until[1]))
        for out in call.spec.outputs:
            if out.kind == "collect" and not now[out.use]:
                continue  # of iterations that call it alone
            wanted = call.wanted.get(out.key) if out.kind == "each" else None
            there = wanted is None or wanted[self.done]
            self.kept[out.key].append(now[out.use].get(out.port) if there else None)
        self.done += 1
        if stop or self.done == call.times:
            return [*self.items(stop), self.end(stop)]
        due = call.grain and (call.offset + self.done) % call.grain == 0
        return self.items(stop) if due or self.blocked else []

    def items(self, stop: bool) -> list[Items]:
        each = [out.key for out in self.call.spec.outputs if out.kind == "each"]
        if self.done == self.told or not each:
            return []
        values = {key: self.kept[key][self.told : self.done] for key in each}
        found = Items(self.call, self.told, self.done - self.told, values, stop)
        self.told = self.done
        return [found]

    def end(self, stop: bool) -> CallDone:
        outputs: dict[str, Any] = {}
        for out in self.call.spec.outputs:
            if out.kind == "collect" and self.kept[out.key]:
                outputs[out.key] = self.kept[out.key]
            elif out.kind == "last" and self.kept[out.key][-1] is not None:
                outputs[out.key] = self.kept[out.key][-1]
        return CallDone(self.ref, outputs, iterations=self.done, stopped=stop)

    def iterate(self) -> bool:
        """As far as the channels' values have come; true at the end of the iteration."""
        now = self.now
        if not now:
            self.begin()
        uses = enumerate(zip(self.call.spec.uses, self.call.uses, strict=True))
        for place, (use, own) in list(uses)[len(now) :]:
            assert own.active is None or len(own.active) == self.call.times
            if own.active is not None and not own.active[self.done]:
                now.append({})
                continue
            found = {port: self.value(source, now) for port, source in use.sources.items()}
            if _LATER in found.values():
                return False
            given = {port: value for port, value in found.items() if value is not _NOTHING}
            call = self.one(use, own, given)
            self.calls.append(call)
            now.append(self.functions[use.node](call))
            for send, goes in zip(self.call.spec.sends, self.call.goes, strict=True):
                if send.use == place and (goes is None or goes[self.done]):
                    self.rooms[self.room(send.channel)] = self.done, now[place][send.port]
        return True

    def room(self, channel: Channel) -> tuple[Any, ...]:
        return self.call.run, self.call.step, self.call.loop, self.call.iteration, channel.number

    def came(self, channel: Channel, iteration: int) -> Any:
        last, value = self.rooms.get(self.room(channel), (-1, None))
        assert last <= iteration, "it was overwritten before it was read"
        return value if last == iteration else _LATER

    def value(self, source: LoopSource, now: list[dict[str, Any]]) -> Any:
        if source.kind == "channel":
            channel, comes = self.call.spec.reads[source.channel].channel, self.call.comes[source.channel]
            return self.came(channel, self.done) if comes is None or comes[self.done] else _NOTHING
        if source.kind == "behind" and self.done > 0:
            return self.came(self.call.spec.reads[source.channel].channel, self.done - 1)
        if source.kind == "carried" and self.done > 0:
            assert source.place is not None
            return self.before[source.place[0]].get(source.place[1], _NOTHING)
        if source.first is not None:
            return self.value(source.first, now)
        return self.entering(source) if source.enters else self.given(source, now)

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
