"""What a rank tells of its work: calls, tensors that leave, gauges. Nothing is made where telemetry is off."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from walkgraph.engine.engine import Done, LoopDone, Stepped
from walkgraph.ids import Rank, RunId
from walkgraph.networks.loops import LoopCall
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire import messages as m
from walkgraph.worker.events import Send
from walkgraph.worker.links import Links

GAUGE_SECONDS = 1.0


class Teller:
    def __init__(self, rank: Rank, emitter: Emitter, clock: Callable[[], float]) -> None:
        self._rank, self._emitter, self._clock = rank, emitter, clock
        self._gauged = 0.0

    def served(self, done: Done | LoopDone, batch: int) -> None:
        """`batch`: calls with the same number were one forward."""
        if self._emitter.level is not None:
            counted = _calls(done)
            every = max(1, sum(counted.values()))
            for span in self._spans(done, counted, batch, self._clock()):
                self._emitter.call(span, counted[span.node], counted[span.node] / every)

    def began(self, call: LoopCall) -> None:
        """A loop on the device, whose calls are told once it has ended."""
        if self._emitter.level != "summary":
            return
        for node in dict.fromkeys(use.node for use in call.body if use.active is None or any(use.active)):
            self._emitter.begin(
                t.Activity(
                    run=RunId(call.run),
                    rank=self._rank,
                    node=node,
                    walk=call.walk,
                    iteration=(*call.iteration, 0),
                    calls=0,
                    busy=0.0,
                    queued=0.0,
                    launched=call.ready_at,
                    finished=call.ready_at,
                    batch=0,
                )
            )

    def stepped(self, stepped: Stepped, batch: int) -> None:
        """The iterations of a launch, as if they had been called one after the other."""
        once = (stepped.ended - stepped.began) / stepped.iterations
        for call, first in stepped.calls:
            for k in range(stepped.iterations):
                for use in call.body:
                    if use.active is not None and not any(use.active[first + k : first + k + 1]):
                        continue
                    self._emitter.call(
                        t.CallSpan(
                            run=RunId(call.run),
                            rank=self._rank,
                            walk=call.walk,
                            node=use.node,
                            step=call.step,
                            iteration=(*call.iteration, first + k),
                            ready=stepped.began + k * once,
                            launched=stepped.began + k * once,
                            finished=stepped.began + (k + 1) * once,
                            batch=len(stepped.calls),
                            batch_number=batch,
                            failed=False,
                        )
                    )

    def sent(self, send: Send) -> None:
        nbytes = _tensor_bytes(send.value) if self._emitter.level is not None else 0
        if not nbytes or not isinstance(send.message, m.Deliver | m.StreamItem):
            return
        stream = isinstance(send.message, m.StreamItem)
        self._emitter.emit(
            t.Transfer(
                run=send.message.run,
                source=self._rank,
                target=send.rank,
                edge=send.message.stream if isinstance(send.message, m.StreamItem) else send.message.edge,
                stream=stream,
                step=-1 if isinstance(send.message, m.StreamItem) else send.message.step,
                nbytes=nbytes,
                at=self._clock(),
            )
        )

    def flush(self, runs: int, links: Links, pages: Callable[[], tuple[int, int]]) -> None:
        """Gauges, where it is time for them, and all that was told so far. `pages`: free and total."""
        now = self._clock()
        if self._emitter.level is not None and now - self._gauged >= GAUGE_SECONDS:
            self._gauged = now
            free, total = pages()
            self._emitter.emit(
                t.RankGauge(
                    rank=self._rank,
                    at=now,
                    runs=runs,
                    pages_free=free,
                    pages_total=total,
                    out_tickets=links.tickets_out,
                    rejected=links.rejected,
                )
            )
        self._emitter.flush(now, force=not runs)

    def _spans(self, done: Done | LoopDone, counted: Iterable[str], batch: int, now: float) -> Iterable[t.CallSpan]:
        """One for each node that was called: the iterations of a loop are those of its last."""
        call = done.call
        last = (max(0, done.iterations - 1),) if isinstance(done, LoopDone) else ()
        for node in counted:
            yield t.CallSpan(
                run=RunId(call.run),
                rank=self._rank,
                walk=call.walk,
                node=node,
                step=call.step,
                iteration=(*call.iteration, *last),
                ready=call.ready_at,
                launched=call.ready_at + done.queued,
                finished=now,
                batch=done.batch,
                batch_number=batch,
                failed=done.error is not None,
            )


def _calls(done: Done | LoopDone) -> Mapping[str, int]:
    """Node -> how often it was called; a loop's time is shared out by that, as nothing else tells its nodes apart."""
    if isinstance(done, Done):
        return {done.call.node: 1}
    found: dict[str, int] = {}
    tried = max(1, done.iterations)
    for use in done.call.body:
        count = tried if use.active is None else sum(use.active[:tried])
        if count:
            found[use.node] = found.get(use.node, 0) + count
    return found


def _tensor_bytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_tensor_bytes, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return sum(map(_tensor_bytes, value))
    return int(getattr(value, "nbytes", 0))
