"""Runs the tasks that runs call: in this process, without HTTP, for the caller of the run that calls.

    CallTask of a version ──> begin ──> Submit to the called graph's version ──> its end ──> TaskAnswer
                                                                   the calling run ends ──> its called runs are aborted

A call has the rights and the rate limit of the calling run's caller, and what is left of its deadline. It counts as a
request, but not as one more concurrent run: the caller has one run, which waits.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from walkgraph.errors import ErrorInfo, InvalidInput, Refused, WalkgraphError
from walkgraph.graph.checks.called import MOST_DEEP, SEED
from walkgraph.graph.document import Graph
from walkgraph.graph.steps import approvals_of
from walkgraph.ids import RunId
from walkgraph.placement.request import task_of
from walkgraph.placement.tables import Scalar
from walkgraph.service.access.callers import Caller
from walkgraph.service.calls import answers
from walkgraph.service.http import limits
from walkgraph.service.http.problems import Unavailable
from walkgraph.service.runs.runs import LiveRun, new_run_id
from walkgraph.service.runs.tasks import defaults
from walkgraph.service.values import tensors, values
from walkgraph.telemetry import traceparent
from walkgraph.wire import messages as m


class Serving(Protocol):
    """A version of a deployment, as a call sees it."""

    @property
    def graph(self) -> Graph | None: ...

    def submit(self, message: m.Submit) -> LiveRun: ...


class TaskCalls:
    def __init__(self, find: Callable[[str], Serving], valid: Callable[[Caller], bool]) -> None:
        """`find`: the version that serves a graph; raises NotFound and Unavailable. `valid`: false for the caller of a
        key that has ended."""
        self._find, self._valid = find, valid
        self._called: dict[RunId, dict[LiveRun, asyncio.Task[None]]] = {}
        """Calling run -> the runs it waits for."""

    def begin(self, own: Serving, parent: LiveRun, call: m.CallTask) -> None:
        """`own`: the version that `parent` runs in; it serves the calls of its own graph's tasks."""
        try:
            child = self._begun(own, parent, call)
        except WalkgraphError as error:
            answers.answer(parent, call, error=_of_call(call, error.info()))
            return
        follow = asyncio.create_task(self._follow(parent, call, child))
        self._called.setdefault(parent.id, {})[child] = follow

    def ended(self, parent: LiveRun) -> None:
        """Aborts the runs that an ended run was waiting for."""
        for child in self._called.pop(parent.id, ()):
            child.abort()

    def _begun(self, own: Serving, parent: LiveRun, call: m.CallTask) -> LiveRun:
        graph, _, name = call.task.partition("/")
        if parent.depth >= MOST_DEEP:
            raise Refused(f"tasks may call each other {MOST_DEEP} deep, and this call is deeper")
        caller = parent.caller
        if caller is not None:
            if not self._valid(caller) or not caller.may("infer"):
                raise Refused("the key of this run has ended, or may not run tasks")
            caller.meter.take()
        version = own if own.graph is not None and own.graph.name == graph else self._find(graph)
        if version.graph is None:
            raise Unavailable(f"the deployment of `{graph}` is not ready yet; try again")
        task = task_of(version.graph, name)
        if approvals_of(task):
            raise Refused(f"the task `{call.task}` waits for a person; only a client can run it")
        child = version.submit(_submit(version.graph, name, parent, call))
        child.caller, child.calling = caller, parent.id
        above = traceparent.of_run(parent.id, traceparent.parse(parent.parent))
        child.parent = traceparent.write(above)
        return child

    async def _follow(self, parent: LiveRun, call: m.CallTask, child: LiveRun) -> None:
        if call.pieces:
            async for event in child.follow():
                if isinstance(event, m.Output) and event.name in call.pieces and parent.finished is None:
                    answers.piece(parent, call, event.name, event.value)
        end = await child.ended()
        self._called.get(parent.id, {}).pop(child, None)
        if parent.finished is not None:
            return
        error, outputs = end.error, _outputs(child, call)
        if error is None and sum(map(values.size_of, outputs.values())) > limits.CALL_BYTES:
            message = f"its outputs have more than {limits.CALL_BYTES} bytes; take fewer of them"
            error = ErrorInfo(code="out_of_memory", message=message)
        if error is not None:
            error, outputs = _of_call(call, error), {}
        answers.answer(parent, call, outputs, error, called=child.id, queued=end.queued)


def _submit(graph: Graph, name: str, parent: LiveRun, call: m.CallTask) -> m.Submit:
    """Raises InvalidInput for values that the task doesn't take."""
    task = task_of(graph, name)
    given = call.value.items if isinstance(call.value, m.Named) else {}
    if sum(map(values.size_of, given.values())) > limits.CALL_BYTES:
        raise InvalidInput(f"the values of a call may have {limits.CALL_BYTES} bytes; pass smaller ones")
    inputs = {key: _several(value) for key, value in given.items() if key in task.inputs}
    params: dict[str, Scalar] = {SEED: call.seed, **call.params}
    for key, value in given.items():
        if key not in task.inputs:
            params[key] = tensors.scalar_of(value, f"/params/{key}")
    _judge([value for several in inputs.values() for value in several])
    inputs |= defaults(task, inputs, lambda key: tensors.kind_of(graph, name, key))
    return m.Submit(
        run=new_run_id(),
        task=name,
        params=params,
        inputs=inputs,
        outputs=tuple(dict.fromkeys((*call.outputs, *call.pieces))) or None,
        priority=parent.priority,
        deadline=call.deadline,
        depth=parent.depth + 1,
        salt=parent.salt,
    )


def _judge(given: Sequence[m.Value]) -> None:
    """Raises InvalidInput for values that a client couldn't send either."""
    if sum(isinstance(value, m.Blob) for value in given) > limits.MEDIA:
        raise InvalidInput(f"a call takes at most {limits.MEDIA} pictures, sounds or videos")
    for value in given:
        if isinstance(value, m.Small) and len(str(value.value)) > limits.TEXT_CHARACTERS:
            raise InvalidInput(f"a text may have {limits.TEXT_CHARACTERS} characters; pass a shorter one")


def _several(value: m.Value) -> tuple[m.Value, ...]:
    return value.items if isinstance(value, m.Many) else (value,)


def _outputs(run: LiveRun, call: m.CallTask) -> dict[str, m.Value]:
    """Output -> its last value, where consecutive texts and sounds of a pass are one. Without those that were only
    passed on."""
    passed = set(call.pieces) - set(call.outputs)
    sent: dict[str, list[m.Output]] = {}
    for output in run.outputs:
        if output.name not in passed:
            sent.setdefault(output.name, []).append(output)
    return {name: values.joined(pieces)[-1] for name, pieces in sent.items()}


def _of_call(call: m.CallTask, error: ErrorInfo) -> ErrorInfo:
    """The error of the use that called: it names the task, and what went wrong there."""
    inside = f" in node `{error.node}`" if error.node else ""
    return answers.error_of(call, error, f"the task `{call.task}` failed{inside}: {error.message}")
