"""Paused runs: what each rank holds of them, as one list for the service; what is let pass, as gates for the ranks.

    steer(pause), a breakpoint, held from the start ──> paused ──steer(resume)──> goes on
                                                     paused ──steer(step, iteration)──> paused

A rank tells what it holds whenever that changes; what it said before it was opened, and comes after, is dropped. The
time that a run is paused doesn't count against its deadline.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from walkgraph.conductor.events import Command, ToRank, ToService
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.watching import HeldCall

Mode = Literal["close", "open", "one", "through"]

PAUSED_SECONDS = 3600.0
"""A run that is paused and not steered for so long ends: others wait for what it holds."""


@dataclass(slots=True)
class _Pause:
    since: float
    steered: float
    held: dict[Rank, tuple[HeldCall, ...]] = field(default_factory=dict[Rank, tuple[HeldCall, ...]])
    asked: dict[Rank, int] = field(default_factory=dict[Rank, int])
    """The last gate that a rank was sent."""
    goes: bool = False
    """Some of its ranks' gates are open, or let an iteration pass: one that comes to a breakpoint closes them."""
    breakpoint: str = ""
    told: m.Paused | None = None


class Steering:
    def __init__(self) -> None:
        self._paused: dict[RunId, _Pause] = {}
        self._opened: dict[RunId, int] = {}
        """Runs that were paused and go on -> their last gate."""
        self._spent: dict[RunId, float] = {}
        """Seconds that they were paused."""
        self._gates = 0

    def __len__(self) -> int:
        """Runs of which something is kept."""
        return len({*self._paused, *self._opened, *self._spent})

    def paused(self, run: RunId) -> bool:
        return run in self._paused

    def deadline(self, run: RunId, deadline: float) -> float:
        """When a run ends that would have to be over at `deadline` if it were never paused."""
        pause = self._paused.get(run)
        return deadline + self._spent.get(run, 0.0) if pause is None else pause.steered + PAUSED_SECONDS

    def begin(self, run: RunId, now: float) -> None:
        """It starts with its gates closed; that it is paused was told while it waited."""
        self._pause(run, now).told = m.Paused(run=run, held=())

    def steer(self, message: m.Steer, ranks: Iterable[Rank], now: float) -> list[Command]:
        """`ranks`: those that take part in the run. What it isn't in a state for is left alone: the list that it was
        asked from is an old one."""
        pause = self._paused.get(message.run)
        if message.action == "pause":
            # Ranks of one that is paused tell anew what held calls were given: who asks has not seen it.
            pause = pause or self._pause(message.run, now)
            pause.steered, pause.goes = now, False
            return [*self._gate(message.run, "close", ranks), *self._tell(message.run, pause)]
        if pause is None:
            return []
        pause.steered = now
        if message.action == "resume":
            return self._resume(message.run, pause, ranks, now)
        held = _in_order(pause)
        call = message.call or next(iter(held), None)
        if call is None or call not in held:
            return []
        mode: Mode = "through"
        if message.action == "step":
            # Of a loop on a device there may be parts on other ranks, which wait for each other.
            mode, ranks = "one", [*ranks] if call.loop else [call.rank]
            for rank in [rank for rank in ranks if rank in pause.held]:
                pause.held[rank] = tuple(other for other in pause.held[rank] if not _goes(other, call))
        pause.breakpoint, pause.goes = "", mode == "through"
        return [*self._gate(message.run, mode, ranks, call), *self._tell(message.run, pause)]

    def halted(self, message: m.Halted, ranks: Iterable[Rank], now: float) -> list[Command]:
        run = message.run
        if message.gate < self._opened.get(run, 0):
            return []
        pause = self._paused.get(run)
        if pause is None:
            if not message.breakpoint:
                return []
            pause = self._pause(run, now)
            pause.goes = True
        pause.held[message.rank] = message.held
        commands: list[Command] = []
        if message.breakpoint and message.gate >= pause.asked.get(message.rank, 0):
            pause.breakpoint = message.breakpoint
            if pause.goes:
                pause.goes = False
                commands = self._gate(run, "close", [rank for rank in ranks if rank != message.rank])
        return [*commands, *self._tell(run, pause)]

    def forget(self, run: RunId) -> None:
        """It is over."""
        self._paused.pop(run, None)
        self._opened.pop(run, None)
        self._spent.pop(run, None)

    # ── inside ──

    def _pause(self, run: RunId, now: float) -> _Pause:
        pause = self._paused[run] = _Pause(now, now)
        return pause

    def _resume(self, run: RunId, pause: _Pause, ranks: Iterable[Rank], now: float) -> list[Command]:
        commands = self._gate(run, "open", ranks)
        del self._paused[run]
        self._opened[run] = self._gates
        self._spent[run] = self._spent.get(run, 0.0) + now - pause.since
        return [*commands, ToService(m.Resumed(run=run))]

    def _gate(self, run: RunId, mode: Mode, ranks: Iterable[Rank], call: HeldCall | None = None) -> list[Command]:
        self._gates += 1
        gate = m.Gate(run=run, mode=mode, call=call, number=self._gates)
        targets = sorted(ranks)
        self._paused[run].asked.update(dict.fromkeys(targets, self._gates))
        return [ToRank(rank, gate) for rank in targets]

    def _tell(self, run: RunId, pause: _Pause) -> list[Command]:
        paused = m.Paused(run=run, held=tuple(_in_order(pause)), breakpoint=pause.breakpoint)
        if paused == pause.told:
            return []
        pause.told = paused
        return [ToService(paused)]


def _goes(one: HeldCall, let: HeldCall) -> bool:
    """Whether a held call is the one that is let pass, or a part of the same loop."""
    same = (one.step, one.loop, one.iteration) == (let.step, let.loop, let.iteration)
    return one == let or (same and bool(let.loop))


def _in_order(pause: _Pause) -> list[HeldCall]:
    held = (call for calls in pause.held.values() for call in calls)
    return sorted(held, key=lambda call: (call.rank, call.step, call.iteration))
