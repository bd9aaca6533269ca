"""Interfaces that the loop of a rank works with: its core, its engine, its parts of loops that span devices."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import zmq

from walkgraph.abi.calls import Call, Scalar, StateKey
from walkgraph.engine.engine import Begun, Done, Forwarded, LoopDone, Stepped, Swapped
from walkgraph.engine.loops.spec import Items, LoopCall, StreamItems
from walkgraph.engine.pacing.playback import Playbacks
from walkgraph.ids import Rank
from walkgraph.wire.messages import BetweenParts
from walkgraph.wire.standing import Standing
from walkgraph.worker.events import CallBegun, CallDone, Command, Event, Ref
from walkgraph.worker.io import moving
from walkgraph.worker.observe import samples, work_telemetry


class CoreLike(Protocol):
    @property
    def runs(self) -> tuple[str, ...]: ...

    def handle(self, event: Event) -> list[Command]: ...

    def standing(self, run: str) -> Standing | None: ...


class StateTableLike(samples.StateReader, Protocol):
    """`engine.states`, as far as the loop needs it."""

    def drop(self, keys: Iterable[StateKey]) -> None: ...

    def audit(self) -> None: ...


class LimitsLike(Protocol):
    def admit(self, run: str, params: Mapping[str, Scalar], salt: str = "") -> None: ...


class LoopsLike(Protocol):
    @property
    def playbacks(self) -> Playbacks: ...

    def allow(
        self,
        run: str,
        step: int,
        use: int,
        iteration: tuple[int, ...],
        upto: int,
        items: Sequence[StreamItems] = (),
        fed: int | None = None,
    ) -> None: ...


class SwapLike(Protocol):
    def suspend(self, run: str) -> None: ...

    def resume(self, run: str) -> None: ...


class HoldsLike(Protocol):
    def hold_loops(self, run: str) -> None: ...

    def release_loops(self, run: str) -> None: ...


class EngineLike(work_telemetry.MeasuredEngine, Protocol):
    """`engine.Engine`, as far as the loop needs it."""

    @property
    def idle(self) -> bool: ...

    @property
    def resting(self) -> bool: ...

    @property
    def wakes(self) -> int | None: ...

    @property
    def states(self) -> StateTableLike: ...

    @property
    def transfers(self) -> moving.StateMover: ...

    @property
    def limits(self) -> LimitsLike: ...

    @property
    def loops(self) -> LoopsLike: ...

    @property
    def swap(self) -> SwapLike: ...

    @property
    def holds(self) -> HoldsLike: ...

    def add(self, call: Call) -> None: ...

    def add_loop(self, call: LoopCall) -> None: ...

    def step(self) -> Sequence[Begun | Done | Forwarded | Items | LoopDone | Stepped | Swapped]: ...

    def drop(self, run: str) -> None: ...


class LoopParts(Protocol):
    """This rank's parts of loops that span devices."""

    def take(self, rank: Rank, message: BetweenParts) -> None:
        """Handle a peer's message."""
        ...

    def gone(self, rank: Rank) -> None:
        """Handle the death of a peer. Work that touches its memory is over when this returns."""
        ...

    def wait(self, poller: zmq.Poller) -> None:
        """Wait briefly for a message if only the device can make progress, and its work may need peers."""
        ...

    def stepped(self, *, quiet: bool) -> None:
        """Note that the engine has stepped. `quiet`: the step returned no events."""
        ...


class NoParts:
    """Stands for the parts of a rank that has none."""

    def take(self, rank: Rank, message: BetweenParts) -> None: ...

    def gone(self, rank: Rank) -> None: ...

    def wait(self, poller: zmq.Poller) -> None: ...

    def stepped(self, *, quiet: bool) -> None: ...


def called(done: Begun | Done | LoopDone) -> CallBegun | CallDone:
    call = done.call
    ref = Ref(call.run, call.step, call.use, call.iteration)
    if isinstance(done, Begun):
        return CallBegun(ref, done.outputs)
    if isinstance(done, Done):
        read, found = done.read.tokens, done.read.found
        how = done.outputs, done.error, done.busy, done.queued
        return CallDone(ref, *how, read=read, found=found, kept=done.kept, links=done.links)
    return CallDone(ref, done.outputs, done.error, done.busy, done.queued, done.iterations, done.reason)
