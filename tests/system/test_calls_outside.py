"""Graphs whose nodes call a server outside, with real processes, on one rank and on two."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any

import pytest

from tests.support.recording import Asked, Recording, Write, answered, threaded_recording
from tests.support.serving import Service, service
from walkgraph.client import Client, ProblemError

SECRET = "sk-4f7c2d9be1-never-told"


def graph(origin: str) -> dict[str, Any]:
    """`fetch` asks for a path; `stay` asks for one that waits; `count` counts on the same rank."""

    def walk(node: str, *more: Any) -> dict[str, Any]:
        return {"inputs": {"path": "text"}, "body": [node], "edges": [["@in.path", f"{node}.url"], *more]}

    def task(name: str, *outputs: str) -> dict[str, Any]:
        steps = [{"walk": name, "with": {"path": "@task.path"}}]
        return {"inputs": {"path": {"modality": "text"}}, "outputs": list(outputs), "steps": steps}

    common = {"url": origin, "url_input": "path", "headers": "Authorization: Bearer secret:upstream"}
    return {
        "format": "walkgraph/graph@1",
        "name": "outside",
        "nodes": {
            "fetch": {"component": "http.request", "params": {**common, "method": "POST", "seconds": 200}},
            "elsewhere": {
                "component": "http.request",
                "params": {"url": "https://elsewhere.example", "url_input": "path"},
            },
            "add": {"component": "synthetic.add"},
            "count": {"component": "synthetic.add"},
            "limit": {
                "component": "control.rate_limit",
                "params": {"type": "scalar", "count": 2, "window": 3600, "wait": 0},
            },
        },
        "walks": {
            "fetch": {
                "inputs": {"path": "text"},
                "body": ["fetch", "add"],
                "edges": [
                    ["@in.path", "fetch.url"],
                    ["fetch.text", "@out.text"],
                    ["fetch.status", "add.a"],
                    ["add.sum", "@out.status"],
                ],
            },
            "elsewhere": walk("elsewhere", ["elsewhere.text", "@out.text"]),
            "count": {"body": ["count"], "edges": [["count.sum", "@out.sum"]]},
            "limited": {
                "body": ["count", "limit"],
                "edges": [["count.sum", "limit.value"], ["limit.value", "@out.sum"]],
            },
        },
        "tasks": {
            "fetch": task("fetch", "text", "status"),
            "elsewhere": task("elsewhere", "text"),
            "count": {"outputs": ["sum"], "steps": [{"walk": "count"}]},
            "limited": {"outputs": ["sum"], "steps": [{"walk": "limited"}]},
        },
    }


TWO = {
    "format": "walkgraph/placement@1",
    "name": "two",
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
    "groups": [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["fetch"], "ranks": [1]}],
}


@pytest.fixture(scope="module")
def server() -> Iterator[Recording]:
    with threaded_recording() as found:
        yield found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, server: Recording) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("outside") / "home"
    with service(home, studio="false", call_hosts=f'["{server.origin}"]', telemetry="full") as found:
        words = ("secrets", "set", "upstream", "--host", server.origin)
        environment = {**os.environ, "WALKGRAPH_HOME": str(home)}
        told = subprocess.run(
            [*found.command, *words], input=f"{SECRET}\n", env=environment, text=True, capture_output=True, check=True
        )
        assert SECRET not in told.stdout + told.stderr
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy(graph(server.origin), name="outside")
            client.deploy(graph(server.origin), TWO, name="apart")
            for name in ("outside", "apart"):
                found.wait_ready(name)
        yield found
        assert found.down() == 0
        assert SECRET not in found.log


def fetched(client: Client, path: str, deployment: str = "outside", **more: Any) -> dict[str, Any]:
    return client.run(deployment, "fetch", {"inputs": {"path": path}, **more})


@pytest.mark.parametrize("deployment", ["outside", "apart"])
def test_a_rate_is_that_of_all_runs_of_a_deployment(running: Service, deployment: str) -> None:
    with running.client() as client:
        passed = [client.run(deployment, "limited", {})["outputs"]["sum"] for _ in range(2)]
        assert [value["value"] for (value,) in passed] == [0, 0]
        with pytest.raises(ProblemError) as refused:
            client.run(deployment, "limited", {})
        assert refused.value.code == "rate_limited"


def ended(client: Client, run: str) -> Any:
    while (found := client.get_run(run))["state"] == "running":
        pass
    return found


@pytest.mark.parametrize("deployment", ["outside", "apart"])
def test_an_answer_comes_back(running: Service, server: Recording, deployment: str) -> None:
    server.answers["/a"] = answered("from outside")
    with running.client() as client:
        found = fetched(client, "/a?x=1", deployment)
        assert found["outputs"]["text"][-1]["text"] == "from outside"
        assert found["outputs"]["status"][-1]["value"] == 200
        assert server.asked[-1].target == "/a?x=1"
        assert server.asked[-1].headers["authorization"] == f"Bearer {SECRET}"
        trace = client.trace(found["run"])
        assert [(one["use"], one["task"], one["run"]) for one in trace["called"]] == [("fetch", "http.request", "")]


def test_a_server_that_is_not_listed_is_refused(running: Service) -> None:
    with running.client() as client:
        run = client.start_run("outside", "elsewhere", {"inputs": {"path": "/"}})["id"]
        error = ended(client, run)["error"]
        assert (error["code"], error["node"]) == ("refused", "elsewhere")
        assert "WALKGRAPH_CALL_HOSTS" in error["message"]


class Waiting:
    """A path whose answers wait."""

    def __init__(self, server: Recording, path: str) -> None:
        self.asked: Queue[str] = Queue()
        self.gone = Event()
        self._server = server
        server.answers[path] = self._answer

    async def _answer(self, asked: Asked, write: Write) -> None:
        self.asked.put(asked.target)
        try:
            while not self.gone.is_set():
                await write(b"HTTP/1.1 102 Processing\r\n\r\n")
                await asyncio.sleep(0.02)
        finally:
            self.gone.set()


def test_a_slow_server_holds_up_nobody_else(running: Service, server: Recording) -> None:
    waiting = Waiting(server, "/slow")
    with running.client() as client:
        runs = [client.start_run("outside", "fetch", {"inputs": {"path": "/slow"}})["id"] for _ in range(3)]
        for _ in runs:
            waiting.asked.get(timeout=300)
        assert client.run("outside", "count", {})["outputs"]["sum"][-1]["value"] == 0
        server.answers["/quick"] = answered("quick")
        assert fetched(client, "/quick")["outputs"]["text"][-1]["text"] == "quick"
        assert {client.get_run(run)["state"] for run in runs} == {"running"}
        for run in runs:
            client.cancel(run)
        assert {ended(client, run)["state"] for run in runs} == {"cancelled"}
        assert waiting.gone.wait(300), "a run that is cancelled gives up its call"


def test_the_deadline_of_a_run_ends_its_call(running: Service, server: Recording) -> None:
    waiting = Waiting(server, "/late")
    with running.client() as client:
        run = client.start_run("outside", "fetch", {"inputs": {"path": "/late"}, "deadline": 1.0})["id"]
        assert ended(client, run)["error"]["code"] == "deadline_exceeded"
        assert waiting.gone.wait(300)


@pytest.mark.safety("S15")
def test_a_secret_is_kept_nowhere(running: Service, server: Recording, tmp_path: Path) -> None:
    async def echo(asked: Asked, write: Write) -> None:
        await write(answered(f"{asked.headers}", f"X-Echo: {asked.headers['authorization']}"))

    async def fail(asked: Asked, write: Write) -> None:
        await write(answered(f"{asked.headers}", status=f"500 {asked.headers['authorization']}"))

    server.answers |= {"/echo": echo, "/fail": fail}
    texts: list[str] = []
    with running.client() as client:
        run = client.start_run("outside", "fetch", {"inputs": {"path": "/echo"}, "record": True})["id"]
        texts += [str(ended(client, run)), str(client.trace(run)), str(client.audit())]
        failed = client.start_run("outside", "fetch", {"inputs": {"path": "/fail"}})["id"]
        texts += [str(ended(client, failed)), str(client.trace(failed))]
        texts += [str(client.deployments())]
        environment = {**os.environ, "WALKGRAPH_HOME": str(running.home)}
        for words in (
            ("export", run, "-o", str(tmp_path / "run")),
            ("trace", run),
            ("trace", failed),
            ("logs", "outside"),
        ):
            told = subprocess.run(
                [*running.command, *words], env=environment, text=True, capture_output=True, check=False
            )
            texts += [told.stdout, told.stderr]
    assert "secret:upstream" in "".join(texts) + "".join(contents(tmp_path)), "the answer repeats what was sent"
    texts += [running.log, *contents(tmp_path), *contents(running.home, but="secrets")]
    assert not [text[:200] for text in texts if SECRET in text]
    planted = contents(running.home)
    assert any(SECRET in text for text in planted), "it would have been found"


def contents(folder: Path, but: str = "") -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and but not in path.relative_to(folder).parts[:1])
    return [path.read_bytes().decode("latin-1") for path in files]
