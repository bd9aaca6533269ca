"""The notebooks run unchanged, and the client too, all against one service."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from tests.support import notebooks
from tests.support.documents import Running
from tests.support.serving import Service
from walkgraph.client import AsyncClient, ProblemError, Unreachable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(documented: Running) -> Service:
    """The documentation's, with what the notebooks would deploy first."""
    found = documented.service()
    with found.client() as client:
        there = {row["id"] for row in client.deployments()}
        for name in ("reach", "world"):
            if name not in there:
                client.deploy(name, f"{name}_one_cpu")
        for name in ("shapes", "reach", "world"):
            assert client.wait_ready(name)["state"] == "ready"
    return found


@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_runs_and_shows_what_is_kept(running: Service, name: str) -> None:
    kept = notebooks.read(name)
    assert notebooks.kinds(notebooks.executed(kept, running.home)) == notebooks.kinds(kept)


def test_what_is_asked_blocking_and_awaited_is_the_same(running: Service) -> None:
    given = {"prompt": "a red circle", "steps": 4, "seed": 7}
    with running.client() as client:
        draw = client.task("shapes", "text_to_image")
        first = draw(**given)
        with draw.stream(**given, preview_every=2) as outputs:
            names = [output.name for output in outputs]
        assert names == ["preview", "image"]
        assert outputs.result.picture() == first.picture()
        request = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 4, "seed": 7}}
        assert client.run("shapes", "text_to_image", request)["outputs"].keys() == {"image"}
        described = client.task("shapes", "image_to_text")(parts=[first.picture()], max_tokens=4)
        assert described.text()
        with pytest.raises(ProblemError) as refused:
            draw(prompt="a", steps=1000)
        assert [fault.pointer for fault in refused.value.faults] == ["/params/steps"]

    async def awaited() -> None:
        async with AsyncClient(running.told["url"], running.token) as client:
            task = await client.task("shapes", "text_to_image")
            results = await asyncio.gather(*(task(**given) for _ in range(2)))
            assert [result.picture() for result in results] == [first.picture()] * 2
            async with task.stream(**given) as outputs:
                assert [output.name async for output in outputs] == ["image"]
            assert outputs.result.picture() == first.picture()

    asyncio.run(awaited())


def test_a_call_that_is_cancelled_ends_its_run(running: Service) -> None:
    async def left() -> str:
        async with AsyncClient(running.told["url"], running.token) as client:
            draw = await client.task("shapes", "text_to_image")
            before = {run["id"] for run in await client.runs("shapes")}
            call = asyncio.create_task(draw(prompt="a", steps=200, seed=99))
            while not (made := [run for run in await client.runs("shapes", 1) if run["id"] not in before]):
                assert not call.done()
            [newest] = made
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async for event in client.follow_run(newest["id"]):
                last = event
            return str(last.data["error"]["code"])

    assert asyncio.run(left()) == "cancelled"


def test_sessions_take_frames_and_the_newest(running: Service) -> None:
    camera, state = np.zeros((64, 64, 3), np.uint8), np.array([0.4, -0.8], np.float32)
    given = {"camera": camera, "instruction": "reach the red ball", "state": state, "steps": 2, "seed": 3}
    with running.client() as client, client.session("reach", "act") as robot:
        first = robot.ask(**given)
        assert first.tensor("actions").numpy().shape == (8, 2)
        asked = [robot.send(**given) for _ in range(6)]
        answers = {answer.request: answer for answer in (next(robot) for _ in asked)}
        assert sorted(answers) == asked
        assert answers[asked[-1]].ok
        assert all(answer.ok or answer.superseded for answer in answers.values())
        same = answers[asked[-1]].result.tensor("actions").numpy()
        assert (same == first.tensor("actions").numpy()).all()
        with pytest.raises(ProblemError):
            robot.ask(**{**given, "steps": 0})
        assert robot.waiting == 0
        ended = threading.Thread(target=lambda: list(robot))
        ended.start()
    ended.join(60)
    assert not ended.is_alive(), "iterators end with their session"
    with running.client() as client, pytest.raises(ProblemError, match="keeps no session"):
        client.session("reach", "episode").__enter__()

    async def awaited() -> None:
        async with AsyncClient(running.told["url"], running.token) as client, client.session("reach", "act") as robot:
            found = await robot.ask(**given)
            assert (found.tensor("actions").numpy() == first.tensor("actions").numpy()).all()

    asyncio.run(awaited())


def test_nobody_there_is_said(running: Service) -> None:
    with running.client() as client:
        client.url = "http://127.0.0.1:1"
        with pytest.raises(Unreachable):
            client.session("reach", "act").__enter__()
