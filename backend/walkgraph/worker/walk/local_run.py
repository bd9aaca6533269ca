"""The part of one run that one rank does: turns events into commands until that part is over."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from walkgraph.abi.calls import CallFailed, StateKey
from walkgraph.engine.loops.spec import Items
from walkgraph.errors import ErrorInfo
from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.send_order import steps_in_order
from walkgraph.placement.tables import EdgePlan, Leg, Plan, StepPlan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Gate, Watch
from walkgraph.worker.events import (
    Arrived,
    CallBegun,
    CallDone,
    Command,
    DropStates,
    MoveState,
    PieceCame,
    Ref,
    Report,
    Send,
    Started,
)
from walkgraph.worker.loops.device_loops import DeviceLoops
from walkgraph.worker.observe.control import Control
from walkgraph.worker.state_parts import StateParts
from walkgraph.worker.tables.walk_tables import WalkTable
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.call_arguments import Calls, no_value
from walkgraph.worker.walk.effects import Effects
from walkgraph.worker.walk.run_host import RunHost
from walkgraph.worker.walk.run_streams import Streams
from walkgraph.worker.walk.steps import Steps
from walkgraph.worker.walk.times import Times
from walkgraph.worker.walk.walker import Walker


class LocalRun:
    """The part of one run on one rank. Event methods return the commands that follow."""

    def __init__(self, plan: Plan, tables: Sequence[WalkTable], rank: Rank, event: Started, watch: Watch) -> None:
        self.run: RunId = event.run
        self.sent = self.received = 0
        """The number of messages to and from other ranks."""
        self._plan, self._tables, self._rank = plan, tables, rank
        self._in_order = steps_in_order(event.itinerary.send_orders, rank)
        self._effects = Effects()
        self._streams = Streams(plan, tables, rank, event.run, event.itinerary, self._send)
        self._changed = self._streams.changes()
        """Streams by which a use may be able to go on."""
        live = None if event.itinerary.more else event.itinerary.streams
        calls = Calls(plan, rank, event.run, event.session, event.params, event.priority, live, event.selected)
        self._loops = DeviceLoops(calls, self._streams)
        self._times = Times()
        self._begun: dict[Ref, Collection[str]] = {}
        """Calls whose run went on before they were done -> the ports whose values were passed on then. Only their end
        is still to be reported, and what goes into streams."""
        self._exports: list[Command] = []
        """Exports that wait for these calls."""
        self._over = self._leg_told = False
        self._control = Control(plan, rank, event, watch, self._loops.refs)
        self._watched = None if self._control.needless else self._control
        self.steps = Steps(plan, tables, rank, event, self._control, self._effects, shaping.text)
        self.parts = StateParts(tables, calls, self.steps, self._effects, self._send)
        self._host = RunHost(
            plan, self.steps, calls, self._loops, self._streams, self._control, self._effects, self._send
        )

    # ── events ──

    def begin(self, early: Iterable[Arrived]) -> list[Command]:
        for event in early:
            self.received += 1
            self._take(event)
        return self._progress()

    def arrived(self, event: Arrived) -> list[Command]:
        self.received += 1
        self._take(event)
        return self._progress()

    def extend(self, leg: Leg) -> list[Command]:
        """Take the next leg."""
        self._leg_told = False
        self._in_order = steps_in_order(leg.send_orders, self._rank)
        self._host.extended(leg.kept, self.steps.extend(leg))
        return self._progress()

    def watch(self, watch: Watch) -> None:
        self._control.watch(watch)
        self._watched = None if self._control.needless else self._control
        self.steps.watch()

    def obey(self, gate: Gate) -> list[Command]:
        out = [] if self._over else self._control.obey(gate)
        self._watched = None if self._control.needless else self._control
        return out

    def called(self, event: CallBegun | CallDone) -> list[Command]:
        walker, begun = self.steps.holding(event.ref), bool(self._begun) and event.ref in self._begun
        if self._over or (walker is None and not begun):
            return []
        if isinstance(event, CallBegun):
            # A watched run passes on only values that are complete.
            if walker is not None and self._watched is None:
                self._begun[event.ref] = event.outputs.keys()
                walker.finish(event.ref.use, event.outputs)
            return self._progress()
        given = self._begun.pop(event.ref, ())
        walk = self._tables[self.steps.all[event.ref.step].walk]
        table = walk.use(event.ref.use)
        outputs: dict[str, Any] | ErrorInfo = event.outputs or {}
        if table.device_loop is None:
            self._times.add(walk.plan.name, table, event)
        else:
            self._times.add_loop(walk.plan.name, table.device_loop, self._loops.calls(event), event)
            outputs = self._loops.end(event)
        if event.error is not None:
            self._effects.failure = event.error
        elif isinstance(outputs, ErrorInfo):
            self._effects.failure = outputs
        elif begun:
            late = {port: value for port, value in outputs.items() if port not in given}
            for edge in table.outputs if late else ():
                if edge.target.kind == "stream" and edge.source.port in late:
                    self._streams.give(event.ref.step, edge, (late[edge.source.port],))
            self._close_streams(event.ref.step)
        elif walker is not None:
            if self._watched is not None and table.device_loop is None:
                self._effects.commands += self._watched.outputs(event.ref, outputs)
            walker.finish(event.ref.use, outputs)
        return self._progress()

    def piece(self, event: PieceCame) -> list[Command]:
        """Take a value that a called task has sent."""
        walker = self.steps.holding(event.ref)
        if self._over or walker is None:
            return []
        walker.pass_on(event.ref.use, event.port, event.value)
        return self._progress()

    def items(self, event: Items) -> list[Command]:
        """Take the values that a device loop hands out while it runs."""
        call = event.call
        ref = Ref(self.run, call.step, call.use, call.iteration)
        walker = self.steps.holding(ref)
        if self._over or walker is None:
            return []
        for edge, iterations, values in self._loops.items(event, ref):
            if edge.target.kind == "stream":
                self._streams.give(call.step, edge, values)
            else:
                for at, value in zip(iterations, values, strict=True):
                    walker.give(edge, at, value)
        self._loops.judge(event, ref)
        return self._progress()

    # ── status ──

    @property
    def walkers(self) -> Iterable[Walker]:
        return self.steps.walkers.values()

    @property
    def busy(self) -> bool:
        """True if the engine has work of the run: a call, or a loop that can go on."""
        running = (
            Ref(self.run, walker.step, use.plan.index, at)
            for outer in self.walkers
            for walker in outer.everywhere()
            for use, at, state in walker.progress.standing()
            if state == "running" and use.map is None
        )
        return bool(self._begun) or any(not (self._loops.starved(ref) or self.parts.waits(ref)) for ref in running)

    def credit(self, edges: Iterable[EdgePlan]) -> bool:
        """True if the streams that these edges feed may take another item."""
        return self._streams.open(edges)

    # ── inside ──

    def _progress(self) -> list[Command]:
        effects = self._effects
        try:
            going = True
            while going:
                while not self._over and effects.failure is None and self._advance():
                    pass
                # A list, because credits that go out meanwhile are commands too.
                effects.commands.extend(list(self._loops.allow()))
                # Items that a loop has taken give credit, which may let others go on.
                going = bool(self._changed) and not self._over and effects.failure is None
        except ExpressionError as error:
            effects.failure = no_value(error)
        except CallFailed as error:
            effects.failure = ErrorInfo(code="node_error", message=str(error))
        out = effects.take()
        if effects.failure is not None and not self._over:
            self._over = True
            return [Report(m.RankFailed(rank=self._rank, run=self.run, error=effects.failure))]
        if self._begun or self._exports:
            # If one of these calls fails, no other rank computes with a state that it should have changed.
            self._exports += filter(_exports_state, out)
            out = [one for one in out if not _exports_state(one)]
            if not self._begun:
                out += self._exports
                self._exports.clear()
        return out if self._watched is None else self._watched.take(out)

    def _advance(self) -> bool:
        """True if anything moved, so that there may be more to do."""
        steps, moved = self.steps, False
        if self._changed:
            changed = tuple(self._changed)
            self._changed.clear()
            for walker in steps.walkers.values():
                _rouse(walker, changed)
        for walker in steps.walkers.values():
            moved |= walker.advance()
        ended = [index for index, walker in steps.walkers.items() if walker.over] if moved else ()
        for index in ended:
            self._end_step(steps.all[index], steps.end(index))
        begun = steps.begin(self._host)
        if begun:
            self.parts.begun()
        while steps.passed:
            self._close_step(steps.passed.pop())
        if not self._over and not self._begun and steps.over:
            self._end()
        # What moved may have woken a walker that was asked before, opened a stream, or ended an item of a map.
        return begun or bool(ended or self._changed) or (moved and any(map(_restless, steps.walkers.values())))

    def _end(self) -> None:
        """Report that all steps here are over: of the run, or of a leg."""
        if not self.steps.more:
            self._over = True
            self._effects.commands.append(Report(self._times.told(self._rank, self.run)))
            return
        verdict, kept = self.steps.verdict, self.steps.keep()
        if not self._leg_told and verdict is not None and kept is not None:
            self._leg_told = True
            for name, value in kept:
                result = m.LegResult(rank=self._rank, run=self.run, name=name, value=m.Absent())
                self._effects.commands.append(Report(result, value))
            self._effects.commands.append(Report(m.LegDone(rank=self._rank, run=self.run, verdict=verdict)))

    def _end_step(self, step: StepPlan, walker: Walker) -> None:
        keys = [
            StateKey(self.run, state.name, (step.index,))
            for index, depth in walker.table.plan.state_scopes.items()
            if depth == 0 and (state := self._plan.states[index]).scope in ("walk", "iteration")
        ]
        if keys:
            self._effects.commands.append(DropStates(tuple(keys)))
        self._close_step(step.index)

    def _close_step(self, step: int) -> None:
        """Close a step that is over, or passed by."""
        self._streams.leave(step)
        self._close_streams(step)
        self._host.ended(step)
        if step in self._in_order:
            self._effects.commands.append(Report(m.Sent(rank=self._rank, run=self.run, step=step)))

    def _take(self, event: Arrived) -> None:
        match event.message:
            case m.Deliver() as message:
                self._host.steps_chosen(self.steps.deliver(event, message))
            case m.StepChosen() as message:
                self._host.steps_chosen(self.steps.choose(message.choice, message.branch))
            case m.Until() | m.Chosen() | m.Counted() | m.ItemDone() as message:
                self.steps.judge(event, message)
            case m.StatePart() | m.PartTaken() as message:
                self.parts.take(event, message)
            case m.StreamItem() | m.StreamDone() | m.Credit() as message:
                self._streams.take(message, event.value)
            case _:
                # The worker's links handle the others.
                pass

    def _send(self, rank: Rank, message: m.BetweenWorkers, value: Any, transport: str) -> None:
        if rank == self._rank:
            self._take(Arrived(message, value))
        else:
            self.sent += 1
            edge = isinstance(message, m.Deliver | m.StatePart)
            walk = self._tables[self.steps.all[message.step].walk].plan.name if edge else ""
            self._effects.commands.append(Send(rank, message, value, transport, walk))

    def _close_streams(self, step: int) -> None:
        """Close the streams of a step that is over. Calls whose outputs were passed on early may still fail; until
        they end, streams stay open, so that they end with the error."""
        if step in self.steps.finished and not any(ref.step == step for ref in self._begun):
            self._streams.close(step)


def _exports_state(command: Command) -> bool:
    return isinstance(command, MoveState) and command.op == "export"


def _rouse(walker: Walker, streams: Iterable[int]) -> None:
    """Let the uses go on that read or feed these streams."""
    for one in walker.everywhere():
        for stream in streams:
            one.mailbox.awake.update(one.table.streaming.get(stream, ()))


def _restless(walker: Walker) -> bool:
    """True if a walker may move although nothing comes."""
    return bool(walker.mailbox.awake or walker.table.inside.uses)
