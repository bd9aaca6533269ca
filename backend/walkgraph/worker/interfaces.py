"""Interfaces of what a rank's loop works with: its core, its engine, its parts of loops that span devices."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import zmq

from walkgraph.abi.calls import Call, Scalar, StateKey
from walkgraph.engine.engine import Begun, Done, Forwarded, LoopDone, Stepped, Swapped
from walkgraph.engine.loops.spec import Items, LoopCall
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
    """What the loop asks of `engine.states`."""

    def drop(self, keys: Iterable[StateKey]) -> None: ...

    def audit(self) -> None: ...


class LimitsLike(Protocol):
    def admit(self, run: str, params: Mapping[str, Scalar]) -> None: ...


class LoopsLike(Protocol):
    def allow(self, run: str, step: int, use: int, iteration: tuple[int, ...], upto: int) -> None: ...


class SwapLike(Protocol):
    def suspend(self, run: str) -> None: ...

    def resume(self, run: str) -> None: ...


class HoldsLike(Protocol):
    def hold_loops(self, run: str) -> None: ...

    def release_loops(self, run: str) -> None: ...


class EngineLike(work_telemetry.MeasuredEngine, Protocol):
    """What the loop asks of `engine.Engine`."""

    @property
    def idle(self) -> bool: ...

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
        """A peer's word."""
        ...

    def gone(self, rank: Rank) -> None:
        """A peer is no more; what touches its memory is over when this returns."""
        ...

    def wait(self, poller: zmq.Poller) -> None:
        """For a message, while nothing but the device can go on and what it does may need peers."""
        ...

    def stepped(self, *, quiet: bool) -> None:
        """`quiet`: nothing has come of the engine's last step."""
        ...


class NoParts:
    """Of a rank that has none."""

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
        return CallDone(
            ref, done.outputs, done.error, done.busy, done.queued, read=done.read.tokens, found=done.read.found
        )
    return CallDone(ref, done.outputs, done.error, done.busy, done.queued, done.iterations, done.stopped)
