"""From a client's JSON to a run under way: what the routes of tasks and of runs share."""

from typing import Any

from walkgraph.errors import NotFound
from walkgraph.graph.document import Task
from walkgraph.placement.request import task_of
from walkgraph.service import runs
from walkgraph.service.asked import remembered
from walkgraph.service.deployments import Managed
from walkgraph.service.deps import Services
from walkgraph.service.runs import LiveRun
from walkgraph.service.tasks import read_request


def submit(services: Services, deployment: str, task: str, body: Any) -> LiveRun:
    """Check a request and hand it over."""
    managed = services.deployments.get(deployment)
    message = read_request(runs.new_run_id(), task, declared(managed, task), body, services.settings.run_timeout)
    run = services.deployments.submit(managed, message)
    run.asked = remembered(body)
    return run


def declared(managed: Managed, name: str) -> Task:
    managed.tasks()
    if managed.graph is None:
        raise NotFound(f"the deployment `{managed.id}` has no task `{name}`")
    return task_of(managed.graph, name)
