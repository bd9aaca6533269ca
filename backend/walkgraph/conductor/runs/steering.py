"""Paused runs: collects the calls that ranks hold into one list for the service, and sends gates to the ranks.

    steer(pause), a breakpoint, held from the start ──> paused ──steer(resume)──> goes on
                                                     paused ──steer(step, iteration)──> paused

A rank reports its held calls whenever they change; reports from before a resume that arrive after it are dropped. Time
in pause doesn't count against a run's deadline.
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
"""A run that is paused and not steered for so long ends, since others wait for its memory."""


@dataclass(slots=True)
class _Pause:
    since: float
    steered: float
    held: dict[Rank, tuple[HeldCall, ...]] = field(default_factory=dict[Rank, tuple[HeldCall, ...]])
    asked: dict[Rank, int] = field(default_factory=dict[Rank, int])
    """Number of the last gate sent to each rank."""
    goes: bool = False
    """True if some ranks' gates are open or let an iteration pass; a rank that reaches a breakpoint closes them."""
    breakpoint: str = ""
    told: m.Paused | None = None


class Steering:
    def __init__(self) -> None:
        self._paused: dict[RunId, _Pause] = {}
        self._opened: dict[RunId, int] = {}
        """Resumed runs -> number of their last gate."""
        self._spent: dict[RunId, float] = {}
        """Seconds that resumed runs were paused."""
        self._gates = 0

    def __len__(self) -> int:
        """Number of runs with any record here."""
        return len({*self._paused, *self._opened, *self._spent})

    def paused(self, run: RunId) -> bool:
        return run in self._paused

    def deadline(self, run: RunId, deadline: float) -> float:
        """A run's deadline, extended by its pauses."""
        pause = self._paused.get(run)
        return deadline + self._spent.get(run, 0.0) if pause is None else pause.steered + PAUSED_SECONDS

    def begin(self, run: RunId, now: float) -> None:
        """Records that a run starts with closed gates. The service heard of the pause while the run waited."""
        self._pause(run, now).told = m.Paused(run=run, held=())

    def steer(self, message: m.Steer, ranks: Iterable[Rank], now: float) -> list[Command]:
        """Handles a client's command. `ranks`: those that take part in the run. Ignores commands that don't fit its
        state, since the client acted on an outdated list."""
        pause = self._paused.get(message.run)
        if message.action == "pause":
            # If it is paused already, its ranks report their held calls again: the client may not have seen them.
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
            # A device loop may have parts on other ranks, which wait for each other.
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
        """Drops the records of a finished run."""
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
    """True if a held call is the one that is let pass, or another part of the same device loop."""
    same = (one.step, one.loop, one.iteration) == (let.step, let.loop, let.iteration)
    return one == let or (same and bool(let.loop))


def _in_order(pause: _Pause) -> list[HeldCall]:
    held = (call for calls in pause.held.values() for call in calls)
    return sorted(held, key=lambda call: (call.rank, call.step, call.iteration))
