"""Starts a run from a client's JSON, for the routes of tasks and of runs."""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import HTTPConnection

from walkgraph.errors import InvalidInput, Refused, WalkgraphError
from walkgraph.graph.document import Task
from walkgraph.placement.request import task_of
from walkgraph.service.access.access import REQUEST_ID
from walkgraph.service.access.admission import count_run
from walkgraph.service.access.callers import SERVICE, Caller, caller_of
from walkgraph.service.access.rates import RateLimited
from walkgraph.service.deployments.managed import Managed
from walkgraph.service.deps import Services
from walkgraph.service.runs import runs
from walkgraph.service.runs.disconnects import leave
from walkgraph.service.runs.glimpses import texts_of
from walkgraph.service.runs.idempotency import NAME, handle_of
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.tasks import read_request
from walkgraph.service.values.stops import Cut, stops_of
from walkgraph.starters import unknown_words
from walkgraph.telemetry import socket_times, traceparent


def submit(
    services: Services,
    deployment: str,
    task: str,
    body: Any,
    caller: HTTPConnection | None = None,
    *,
    asks: bool = False,
) -> LiveRun:
    """Checks a request and submits its run. Keeps the caller's trace context; the answer gets the run's span and id.
    A repeated `Idempotency-Key` returns the earlier run. `asks`: the task may wait for a person."""
    try:
        handle = handle_of(services.idempotency, caller, deployment, task, body) if caller is not None else None
        if handle is not None:
            run = handle.run(lambda: _submitted(services, deployment, task, body, caller, asks=asks))
            # Behind the message to the conductor, which leaves at the end of this turn at the latest.
            asyncio.get_running_loop().call_soon(handle.settle)
        else:
            run = _submitted(services, deployment, task, body, caller, asks=asks)
    except WalkgraphError as error:
        services.metrics.refused(deployment, error)
        if isinstance(error, RateLimited):
            services.admission.refused[error.reason] += 1
        raise
    if caller is not None:
        parent = traceparent.parse(caller.headers.get(traceparent.HEADER))
        run.parent = traceparent.write(parent) if parent else ""
        caller.scope["state"].setdefault(REQUEST_ID, run.id)
        caller.state.traceparent = traceparent.write(traceparent.of_run(run.id, parent))
    return run


def refuse_if_full(services: Services, deployment: str, request: HTTPConnection) -> None:
    """Call it before a request's body is read, so that refusing a large request is cheap. Raises Overloaded. Requests
    with an `Idempotency-Key` pass, since they may have an answer already."""
    if deployment not in services.deployments or NAME in request.headers:
        return
    try:
        services.deployer.refuse_if_full(services.deployments.get(deployment))
    except WalkgraphError as error:
        services.metrics.refused(deployment, error)
        raise


def submit_all(
    services: Services, deployment: str, task: str, bodies: Iterable[Any], caller: HTTPConnection
) -> list[LiveRun]:
    """Starts one run for each body, as `submit` does. If one fails, the others end."""
    begun: list[LiveRun] = []
    try:
        for body in bodies:
            begun.append(submit(services, deployment, task, body, caller))
    except BaseException:
        leave(begun)
        raise
    return begun


def _submitted(
    services: Services, deployment: str, task: str, body: Any, connection: HTTPConnection | None, *, asks: bool
) -> LiveRun:
    managed = services.deployments.get(deployment)
    ports = managed.ports(task)
    run_id, most = runs.new_run_id(), services.settings.run_timeout
    message = read_request(run_id, task, ports.task, body, most, ports.kind, ports.sources)
    who = caller_of(connection) if connection is not None else SERVICE
    waits = managed.serving.asking.asks(task)
    if waits:
        _refuse_waiting(services, who, body, asks=asks)
    if connection is not None:
        count_run(connection, who)
    if who.key is not None:
        session = who.session(message.session) if message.session is not None else None
        message = msgspec.structs.replace(message, session=session, salt=who.key)
    run = services.deployer.submit(managed, message)
    run.caller, run.request = who, message if waits else None
    if connection is not None:
        run.times.socket = socket_times.of(connection.scope)
    run.unknown_words = unknown_words((held.source for held in ports.graph.weights.values()), texts_of(message))
    if body.get("stop"):
        run.cut = Cut(ports.task.outputs[0], stops_of(body["stop"]) or ())
    who.meter.begun()
    services.runs.remember(run, body)
    return run


def _refuse_waiting(services: Services, who: Caller, body: Any, *, asks: bool) -> None:
    """Refuses a run that will wait for a person, where it can't."""
    if not asks:
        raise Refused("the task waits for a person, which this API has no form for; use `/v1/tasks` or `/api/v1/runs`")
    if body.get("stop"):
        raise InvalidInput("a task that waits for a person takes no stop sequences; leave `stop` out", "/stop")
    services.approvals.refuse_if_full(who)


def declared(managed: Managed, name: str) -> Task:
    return task_of(managed.judged_graph(), name)
