"""Serves the calls of components that call a server outside or are about all runs, in this process.

    CallTask of a version ──> begin ──> a task of the event loop ──> TaskPiece ..., TaskAnswer
                                        the calling run ends ──> the call is cancelled

Ranks wait for answers as they do for those of called tasks, so no engine waits for the network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import structlog

from walkgraph.errors import ErrorInfo, NotFound, WalkgraphError
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.service.calls import answers
from walkgraph.service.http import limits
from walkgraph.service.outward import openai_calls
from walkgraph.service.outward.exchange import Outside
from walkgraph.service.outward.given import Given
from walkgraph.service.outward.http_request import http_request
from walkgraph.service.outward.rate_limits import RateLimits
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import values
from walkgraph.wire import messages as m

Component = Callable[[Given, Outside], Awaitable[Mapping[str, m.Value]]]
Served = Callable[[Given], Awaitable[Mapping[str, m.Value]]]

COMPONENTS: Mapping[str, Component] = {
    "http.request": http_request,
    "openai.chat": openai_calls.chat,
    "openai.embeddings": openai_calls.embeddings,
    "openai.images": openai_calls.images,
}

_log = structlog.get_logger("walkgraph.outward")


class Serving(Protocol):
    """A version of a deployment, as a call sees it."""

    @property
    def graph(self) -> Graph | None: ...


class OutwardCalls:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._served: Mapping[str, Served] = {"control.rate_limit": RateLimits().passed}
        self._calls: dict[RunId, set[asyncio.Task[None]]] = {}
        """Calling run -> its calls under way."""

    def begin(self, own: Serving, run: LiveRun, call: m.CallTask) -> None:
        """`own`: the version that the run is in."""
        if run.finished is not None:
            return
        task = asyncio.create_task(self._serve(own, run, call))
        self._calls.setdefault(run.id, set()).add(task)
        task.add_done_callback(lambda done: self._calls.get(run.id, set()).discard(done))

    def ended(self, run: LiveRun) -> None:
        """Cancels the calls of a run that has ended."""
        for task in self._calls.pop(run.id, ()):
            task.cancel()

    async def _serve(self, own: Serving, run: LiveRun, call: m.CallTask) -> None:
        outputs: Mapping[str, m.Value] = {}
        error: ErrorInfo | None = None
        given = _given(own, run, call)
        seconds = float(given.params.get("seconds", limits.CALL_OUT_SECONDS))
        seconds = seconds if call.deadline is None else min(seconds, call.deadline)
        try:
            async with asyncio.timeout(seconds):
                outputs = await self._called(call.task, given)
        except TimeoutError:
            message = f"there was no whole answer within {seconds:g} s"
            error = ErrorInfo(code="deadline_exceeded", message=message, retryable=True)
        except WalkgraphError as fault:
            error = fault.info()
        except Exception as raised:  # noqa: BLE001 (a run that waits must get an answer)
            # Without its text and traceback, which may hold what was sent.
            _log.error("a call failed", node=call.node, component=call.task, error=type(raised).__name__)
            error = ErrorInfo(code="internal_error", message="the service failed to serve the call; see its log")
        if run.finished is None:
            _answer(run, call, outputs, error)

    async def _called(self, name: str, given: Given) -> Mapping[str, m.Value]:
        served, component = self._served.get(name), COMPONENTS.get(name)
        if served is not None:
            return await served(given)
        if component is None:
            raise NotFound(f"this service serves no component `{name}`; deploy again")
        return await component(given, self._outside)


def _given(own: Serving, run: LiveRun, call: m.CallTask) -> Given:
    node: Any = own.graph.nodes.get(call.node) if own.graph is not None else None

    def send(output: str, value: m.Value) -> None:
        if output in call.pieces and run.finished is None:
            answers.piece(run, call, output, value)

    return Given(
        place=f"{run.deployment}/{call.node}",
        params=call.params,
        seed=call.seed,
        inputs=call.value.items if isinstance(call.value, m.Named) else {},
        outputs=call.outputs,
        pieces=call.pieces,
        literal=node.params if node is not None else {},
        send=send,
    )


def _answer(run: LiveRun, call: m.CallTask, outputs: Mapping[str, m.Value], error: ErrorInfo | None) -> None:
    if error is None and sum(map(values.size_of, outputs.values())) > limits.CALL_BYTES:
        error = ErrorInfo(code="out_of_memory", message=f"the answer has more than {limits.CALL_BYTES} bytes")
    if error is not None:
        answers.answer(run, call, error=answers.error_of(call, error, f"`{call.node}`: {error.message}"))
        return
    answers.answer(run, call, {name: outputs[name] for name in outputs if not call.outputs or name in call.outputs})
