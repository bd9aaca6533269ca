"""A deployment over two hosts, told what to do by lines of JSON: it runs on the first, `python -m ... NAMESPACES`.

The conductor and rank 0 are on the host of this process, rank 1 is on the other.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.deployment import Deployment, deployed, plan_named
from tests.support.far_process import FarProcess
from tests.support.fork_server import actor_server
from tests.support.host_forks import HostForks
from tests.support.namespaces import Host
from tests.support.ray_hosts import RayCluster
from walkgraph.conductor.client import Limits
from walkgraph.wire.processes.host_network import HostNetwork, make_keys


class FarDeployment(FarProcess):
    """The process with a deployment, from outside."""

    def answers(self, tasks: dict[str, dict[str, Any]]) -> list[Any]:
        """Errors and outputs of runs, which are all submitted at once."""
        return [self.ask("end", run) for run in [self.ask("submit", task, params) for task, params in tasks.items()]]


@contextmanager
def far_deployment(
    here: Host, there: Host, graph: str, ray: RayCluster | None = None, **limits: float
) -> Iterator[FarDeployment]:
    """A bundled graph of two ranks, ready. `ray`: the cluster whose actors they are; None: they are forked on their
    hosts."""
    head, environment = (ray.address, ray.environment) if ray is not None else (None, None)
    words = json.dumps([graph, {"": here.address, there.name: there.address}, there.command(), head, limits])
    command = here.command(sys.executable, "-m", "tests.support.far_deployment", words)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        deployment = FarDeployment(process)
        assert deployment.ask("ready")
        yield deployment
        process.communicate()
    finally:
        process.kill()
        process.communicate()


async def answer(deployment: Deployment, what: str, *given: Any) -> Any:
    match what, given:
        case "ready", ():
            await deployment.until(lambda: deployment.process.status is not None and deployment.status.state == "ready")
            return True
        case "state", ():
            return [deployment.status.state, deployment.status.reason]
        case "lost", ():
            await deployment.until(lambda: deployment.status.ranks[1].pid is None)
            return [deployment.status.state, deployment.status.reason]
        case "starts", ():
            return [rank.restarts + 1 for rank in deployment.status.ranks]
        case "submit", (task, params):
            return deployment.submit(task, params)
        case "end", (run,):
            error = (await deployment.end(run)).error
            return [error and error.code, deployment.outputs[run]]
        case "ended", (run, seconds):
            try:
                await deployment.end(run, seconds)
            except TimeoutError:
                return False
            return True
        case _:
            raise ValueError(what)


async def serve(
    graph_name: str, addresses: dict[str, str], there: list[str], head: str | None, limits: dict[str, Any]
) -> None:
    graph, plan = plan_named(graph_name)
    first, second = plan.ranks
    plan = msgspec.structs.replace(plan, ranks=(first, msgspec.structs.replace(second, host=list(addresses)[1])))
    network = HostNetwork(addresses, make_keys())
    with tempfile.TemporaryDirectory(prefix="wg") as folder:
        servers = actor_server(head) if head is not None else HostForks(Path(folder), [[], there], {0: 0, 1: 1})
        try:
            async with deployed(
                graph, plan, Limits(**limits), ready=False, forks=servers, network=network
            ) as deployment:
                while line := await asyncio.to_thread(sys.stdin.readline):
                    print(json.dumps(await answer(deployment, *json.loads(line))), flush=True)
        finally:
            servers.close()


if __name__ == "__main__":
    asyncio.run(serve(*json.loads(sys.argv[1])))
