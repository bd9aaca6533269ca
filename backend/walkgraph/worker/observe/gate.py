"""The gate that the calls of one run pass on one rank: it lets calls pass, holds them, and reports which are held.
Pure.

    open ──breakpoint, close──> closed ──one, through──> closed, some let pass ──open──> open

A call is anything that a walker asks for: a node's call, a move of a state, a device loop. A device loop may be running
when the gate closes: then it leaves its slot and is reported among the held calls. The loops of one run are held and
freed together.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan, StepPlan
from walkgraph.wire.messages import Halted
from walkgraph.wire.watching import Break, HeldCall
from walkgraph.wire.watching import Gate as Order
from walkgraph.worker.events import Allow, Command, FreeLoops, HoldLoops, MoveState, Ref, Report, RunCall, RunLoop
from walkgraph.worker.observe.observing import held_values

_Called = RunCall | RunLoop | MoveState


class _HeldCommand(NamedTuple):
    command: _Called
    told: HeldCall
    allowed: list[Allow]
    """Permissions that its loop got meanwhile: the engine doesn't know the loop yet."""


class Gate:
    def __init__(
        self,
        plan: Plan,
        rank: Rank,
        run: RunId,
        steps: Sequence[StepPlan],
        loops: Callable[[], Iterable[Ref]],
        number: int = 0,
    ) -> None:
        """`loops`: gives the device loops that were asked for and have not ended, held here or running. `number`: that
        of the last order the run obeyed here."""
        self.breaks: tuple[Break, ...] = ()
        self._plan, self._rank, self._run, self._steps, self._loops = plan, rank, run, steps, loops
        self._open, self._through = True, None
        self._through: HeldCall | None
        self._held: dict[Ref, _HeldCommand] = {}
        """Held calls, in the order in which they came."""
        self._parked = False
        """True while the engine holds the run's loops."""
        self._breakpoint, self._number = "", number
        self._said: tuple[tuple[HeldCall, ...], str] = (), ""

    @property
    def needless(self) -> bool:
        """True if every call passes, now and later."""
        return self._open and not self.breaks

    def take(self, commands: Iterable[Command]) -> list[Command]:
        """The commands that pass, and reports that follow."""
        out: list[Command] = []
        for command in commands:
            if isinstance(command, _Called):
                self._come(command, out)
            elif isinstance(command, Allow) and command.ref in self._held:
                self._held[command.ref].allowed.append(command)
            else:
                out.append(command)
        self._say(out)
        return out

    def obey(self, order: Order) -> list[Command]:
        out: list[Command] = []
        self._number, self._breakpoint = order.number, ""
        match order.mode:
            case "open":
                self._open, self._through, self._said = True, None, ((), "")
                self._let(out, lambda told: True)
                self._free(out)
            case "close":
                self._close(out)
                for held in self._held.values():
                    out += held_values(self._plan, self._steps, held.command)
            case "one":
                self._open, self._through = False, None
                call = order.call or next(iter(self._list()), None)
                self._let(out, lambda told: call is not None and _same(told, call))
            case "through":
                self._open, self._through = False, order.call
                self._let(out, self._within)
        self._say(out)
        return out

    # ── arriving calls ──

    def _come(self, command: _Called, out: list[Command]) -> None:
        told = self._told(command)
        hit = next((one for one in self.breaks if _hits(one, told)), None)
        if hit is not None and (self._open or self._within(told)):
            self._close(out)
            self._breakpoint = hit.id
        if self._open or self._within(told):
            self._pass(command, out)
        else:
            self._held[_ref(command)] = _HeldCommand(command, told, [])
            out += held_values(self._plan, self._steps, command)

    def _close(self, out: list[Command]) -> None:
        self._open, self._through = False, None
        if not self._parked and any(ref not in self._held for ref in self._loops()):
            self._parked = True
            out.append(HoldLoops(self._run))

    # ── passing calls ──

    def _let(self, out: list[Command], which: Callable[[HeldCall], bool]) -> None:
        if self._parked and any(which(told) for told in self._on_device()):
            self._free(out)
        for ref, held in list(self._held.items()):
            if which(held.told):
                del self._held[ref]
                self._pass(held.command, out)
                out += held.allowed

    def _pass(self, command: _Called, out: list[Command]) -> None:
        if isinstance(command, RunLoop):
            self._free(out)
        out.append(command)

    def _free(self, out: list[Command]) -> None:
        if self._parked:
            self._parked = False
            out.append(FreeLoops(self._run))

    def _within(self, told: HeldCall) -> bool:
        """True if a call belongs to the iteration that may run through, or to an earlier one."""
        last = self._through
        if last is None or not 0 <= last.step < len(self._steps):
            return False
        here, there = self._steps[told.step], self._steps[last.step]
        if told.step != last.step:
            return here.partition == there.partition and told.step < last.step
        walk = self._plan.walks[here.walk]
        place = {use.name: use for use in walk.uses}
        use, end = place[told.use], place.get(last.use)
        if end is None:
            return False
        loops = use.loops[: len(told.iteration)]
        for depth, (loop, index) in enumerate(zip(end.loops, last.iteration, strict=False)):
            if loops[depth : depth + 1] != (loop,):
                return use.index < min(one.index for one in walk.uses if loop in one.loops)
            if told.iteration[depth] != index:
                return told.iteration[depth] < index
        return True

    # ── reports ──

    def _say(self, out: list[Command]) -> None:
        said = self._list(), self._breakpoint
        if not self._open and said != self._said:
            self._said = said
            held, breakpoint_ = said
            halted = Halted(rank=self._rank, run=self._run, held=held, breakpoint=breakpoint_, gate=self._number)
            out.append(Report(halted))

    def _list(self) -> tuple[HeldCall, ...]:
        told = [held.told for held in self._held.values()]
        return tuple(sorted([*told, *(self._on_device() if self._parked else ())], key=self._order))

    def _order(self, told: HeldCall) -> tuple[int, tuple[int, ...], int]:
        uses = self._plan.walks[self._steps[told.step].walk].uses
        return told.step, told.iteration, next(use.index for use in uses if use.name == told.use)

    def _on_device(self) -> list[HeldCall]:
        """Device loops that were let pass."""
        return [self._loop(ref) for ref in self._loops() if ref not in self._held]

    def _told(self, command: _Called) -> HeldCall:
        if isinstance(command, RunLoop):
            return self._loop(_ref(command))
        ref = _ref(command)
        node = command.call.node if isinstance(command, RunCall) else ""
        walk = self._plan.walks[self._steps[ref.step].walk]
        return self._call(ref, node, "", walk.name, walk.uses[ref.use].name)

    def _loop(self, ref: Ref) -> HeldCall:
        walk = self._plan.walks[self._steps[ref.step].walk]
        use = walk.uses[ref.use]
        loop = walk.loops[use.loops[len(ref.iteration)]]
        return self._call(ref, self._plan.nodes[use.node].name, loop.name, walk.name, use.name)

    def _call(self, ref: Ref, node: str, loop: str, walk: str, use: str) -> HeldCall:
        return HeldCall(
            rank=self._rank, walk=walk, use=use, node=node, step=ref.step, iteration=ref.iteration, loop=loop
        )


def _hits(one: Break, told: HeldCall) -> bool:
    if told.loop or (one.walk, one.use) != (told.walk, told.use):
        return False
    return one.iteration is None or (told.iteration or (0,))[-1] == one.iteration


def _same(one: HeldCall, other: HeldCall) -> bool:
    """True if two calls are the same. Parts of a loop on several ranks are one call: a part that goes on must not wait
    for held ones."""
    if one.loop or other.loop:
        return (one.step, one.loop, one.iteration) == (other.step, other.loop, other.iteration)
    return (one.step, one.use, one.iteration) == (other.step, other.use, other.iteration)


def _ref(command: _Called) -> Ref:
    if isinstance(command, MoveState):
        return command.ref
    call = command.call
    return Ref(call.run, call.step, call.use, call.iteration)
