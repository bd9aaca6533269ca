"""Calls of tasks that a rank has asked for: their inputs go to the conductor, their outputs come back as those of any
call.

The engine has no part in it, so a run that waits for a task can be suspended.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from walkgraph.abi.calls import Call
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.engine.device.marks import Timing
from walkgraph.errors import ErrorInfo, WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import WorkerPost
from walkgraph.worker.events import CallDone, PieceCame, Ref, RunCall
from walkgraph.worker.io import values


class AskedTasks:
    def __init__(
        self,
        rank: Rank,
        send: Callable[[m.CallTask, Mapping[str, Any]], None],
        ended: Callable[[Forwarded, t.TaskCalled], None],
        clock: Callable[[], float],
        post: WorkerPost | None = None,
    ) -> None:
        """`ended` takes the time of each call, and which run it was. `post`: large values of answers come by it; None:
        they all come in their messages."""
        self._rank, self._send, self._ended, self._clock = rank, send, ended, clock
        self._post = post
        self._calls: dict[Ref, RunCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def ask(self, command: RunCall) -> None:
        """Ask for the task of a call that is ready now."""
        call = command.call
        if self._post is not None:
            self._post.expect(call.run)
        self._calls[Ref(call.run, call.step, call.use, call.iteration)] = command
        asked = m.CallTask(
            run=RunId(call.run),
            rank=self._rank,
            step=call.step,
            use=call.use,
            iteration=call.iteration,
            task=command.task,
            walk=call.walk,
            node=call.node,
            name=call.name,
            seed=_seed(call),
            params={name: value for name, value in call.params.items() if name != "seed"},
            outputs=command.outputs,
            pieces=command.pieces,
        )
        self._send(asked, call.inputs)

    def piece(self, piece: m.TaskPiece) -> PieceCame | CallDone | None:
        """A value of a call that is under way; its end, if the value can't be read."""
        ref = Ref(piece.run, piece.step, piece.use, piece.iteration)
        command = self._calls.get(ref)
        if command is None:
            return None
        try:
            return PieceCame(ref, piece.output, values.unpack(piece.value, opened=self._opener(piece.run)))
        except WalkgraphError as fault:
            del self._calls[ref]
            return CallDone(ref, error=_unreadable(command.call, self._rank, fault))

    def answered(self, answer: m.TaskAnswer) -> CallDone | None:
        """The end of the call; None if it isn't under way."""
        ref = Ref(answer.run, answer.step, answer.use, answer.iteration)
        command = self._calls.pop(ref, None)
        if command is None:
            return None
        call = command.call
        outputs: dict[str, Any] = {}
        error = answer.error
        opened = self._opener(answer.run)
        try:
            outputs = {name: values.unpack(value, opened=opened) for name, value in answer.outputs.items()}
        except WalkgraphError as fault:
            error = _unreadable(call, self._rank, fault)
        began, ended = call.ready_at + answer.queued, max(self._clock(), call.ready_at + answer.queued)
        timing = Timing(call.ready_at, call.ready_at, began, ended)
        work = Forwarded([call], [call.ready_at], () if error is None else (0,), timing)
        self._ended(work, self._told(command, answer.called, ended, failed=error is not None))
        return CallDone(ref, outputs if error is None else None, error, ended - began, answer.queued)

    def _opener(self, run: str) -> Callable[[m.Posted], m.Value] | None:
        return None if self._post is None else self._post.opener(run)

    def _told(self, command: RunCall, called: str, answered: float, *, failed: bool) -> t.TaskCalled:
        call = command.call
        return t.TaskCalled(
            run=RunId(call.run),
            rank=self._rank,
            walk=call.walk,
            node=call.node,
            use=call.name,
            step=call.step,
            iteration=call.iteration,
            task=command.task,
            called=called,
            asked=call.ready_at,
            at=answered,
            failed=failed,
        )

    def forget(self, run: str) -> None:
        self._calls = {ref: one for ref, one in self._calls.items() if ref.run != run}


def _seed(call: Call) -> int:
    """Differs from call to call of a run, and is the same when the run is repeated."""
    digest = blake2b(f"{call.seed}:{call.step}:{call.use}:{call.iteration}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _unreadable(call: Call, rank: Rank, fault: WalkgraphError) -> ErrorInfo:
    message = f"the outputs of the task that `{call.node}` called can't be read: {fault}"
    return ErrorInfo(
        code=fault.code,
        message=message,
        node=call.node,
        use=call.name,
        walk=call.walk,
        iteration=call.iteration,
        rank=rank,
    )
