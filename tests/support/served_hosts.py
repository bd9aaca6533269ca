"""A service on the first host of a Ray cluster, told what to do by lines of JSON: `python -m ... HOME`.

It deploys bundled graphs of two ranks, the second one on another host.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from tests.support.cluster_service import answers, placed
from tests.support.deployment import graph_named
from tests.support.far_process import FarProcess
from tests.support.far_watching import watched
from tests.support.namespaces import Host
from tests.support.ray_hosts import RayCluster
from tests.support.serving import Service, service
from walkgraph.client import ProblemError
from walkgraph.graph import codec
from walkgraph.placement.document import ANY


@contextmanager
def served(here: Host, ray: RayCluster, home: Path, **variables: str) -> Iterator[FarProcess]:
    """A service that knows a cluster, up. `variables`: of its environment, in place of the cluster's."""
    command = here.command(sys.executable, "-m", "tests.support.served_hosts", str(home))
    environment = {**ray.environment, "WALKGRAPH_BACKEND": "ray", "WALKGRAPH_RAY_ADDRESS": ray.address, **variables}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        found = FarProcess(process)
        found.ask("up")
        yield found
        process.communicate()
    finally:
        process.kill()
        process.communicate()


class Repeated:
    """A run that is made again and again, by a thread."""

    def __init__(self, run: Callable[[], str]) -> None:
        self._run, self._enough = run, Event()
        self._thread = ThreadPoolExecutor(1)
        self._ends = self._thread.submit(self._repeat)

    def _repeat(self) -> list[str]:
        ends = [self._run()]
        while not self._enough.is_set():
            ends.append(self._run())
        return ends

    def stop(self) -> list[str]:
        """How all of them ended, as errors' codes."""
        self._enough.set()
        return self._ends.result()


class Told:
    def __init__(self, found: Service) -> None:
        self._found = found
        self._pool = ThreadPoolExecutor(1)
        self._begun: Future[str] | None = None
        self._repeated: Repeated | None = None

    def answer(self, what: str, *given: Any) -> Any:
        match what, given:
            case "up", ():
                self._found.up("--no-deploy")
            case "kill", ():
                assert self._found.process is not None
                self._found.process.kill()
                self._found.ended()
            case "deploy", (name, graph, host, *memory):
                with self._found.client() as client:
                    # On a busy machine a host that has joined may take longer than it may be silent.
                    while host not in (None, ANY) and not any(
                        one["name"] == host and one["alive"] for one in client.hosts()
                    ):
                        pass
                    client.deploy(codec.dump(graph_named(graph)), host and placed(graph, host, *memory), name)
            case "refused", (name, graph, host):
                with self._found.client() as client:
                    try:
                        client.deploy(codec.dump(graph_named(graph)), placed(graph, host), name)
                    except ProblemError as error:
                        return [error.code, str(error)]
            case "undeploy", (name,):
                self._found.take_back(name)
            case "until", (name, wanted):
                return self._until(name, wanted)
            case "answers", (name, tasks):
                with self._found.client() as client:
                    return answers(client, name, tasks)
            case "watched", (name,):
                with self._found.client() as client:
                    return watched(client, name)
            case _:
                return self._run(what, *given)
        return None

    def _run(self, what: str, *given: Any) -> Any:
        match what, given:
            case "begin", (name, task, params):
                self._begun = self._pool.submit(self._ended, name, task, params)
            case "end", ():
                assert self._begun is not None
                return self._begun.result()
            case "repeat", (name, task, params):
                self._repeated = Repeated(lambda: self._ended(name, task, params))
            case "repeated", ():
                assert self._repeated is not None
                return self._repeated.stop()
            case _:
                raise ValueError(what)
        return None

    def _until(self, name: str, wanted: dict[str, Any]) -> Any:
        """A deployment, once it is as wanted: `reason` is a part of its own."""
        with self._found.client() as client:
            for found in client.follow_deployment(name):
                assert found["state"] != "failed", found
                same = all(found.get(key) == value for key, value in wanted.items() if key != "reason")
                if same and wanted.get("reason", "") in (found["reason"] or ""):
                    return found
        raise AssertionError("the deployment is gone")

    def _ended(self, name: str, task: str, params: dict[str, Any]) -> str:
        with self._found.client() as client:
            try:
                client.run(name, task, {"params": params})
            except ProblemError as error:
                return error.code
        return ""


def main() -> None:
    with service(Path(sys.argv[1]), studio="false") as found:
        told = Told(found)
        while line := sys.stdin.readline():
            print(json.dumps(told.answer(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
