"""Graphs that call tasks of other graphs and of their own, with real processes, on one rank and on two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service
from walkgraph.client import Client
from walkgraph.client.errors import ProblemError


def outer(spin: str = "inner/spin") -> dict[str, Any]:
    """A graph whose tasks call others: `sums` adds up what `spin` gives for 0, 1, 2 ...; `twice` calls `sums` of its
    own graph two times side by side; `fail` calls a task that fails; `long` one that takes long."""
    whole = {"type": "integer", "default": 3, "min": 1, "max": 1_000_000}
    return {
        "format": "walkgraph/graph@1",
        "name": "outer",
        "nodes": {
            "spin": {"component": spin, "params": {"times": "=spins"}},
            "rest": {"component": spin, "params": {"value": 5, "times": "=spins"}},
            "add": {"component": "synthetic.add"},
            "total": {"component": "synthetic.add"},
            "left": {"component": "outer/sums", "params": {"n": "=n"}},
            "right": {"component": "outer/sums", "params": {"n": "=n"}},
            "both": {"component": "synthetic.add"},
            "bad": {"component": "inner/fail"},
            "beat": {"component": "inner/beat", "params": {"times": "=n"}},
            "last": {"component": "synthetic.add"},
            "keep": {"component": "synthetic.add"},
        },
        "walks": {
            "sums": {
                "body": [{"loop": "l", "times": "n", "body": ["spin", "add"]}],
                "edges": [
                    ["@loop.index", "spin.value"],
                    ["spin.value", "add.a"],
                    ["add.sum", "add.b"],
                    ["add.sum", "@out.sum"],
                ],
            },
            "twice": {
                "body": [{"parallel": ["left", "right"]}, "both"],
                "edges": [["left.sum", "both.a"], ["right.sum", "both.b"], ["both.sum", "@out.sum"]],
            },
            "fail": {"body": ["bad", "keep"], "edges": [["bad.value", "keep.a"], ["keep.sum", "@out.sum"]]},
            "beat": {
                "body": ["beat", "last"],
                "edges": [
                    {"from": "beat.value", "to": "@out.beat", "each": True},
                    ["beat.value", "last.a"],
                    ["last.sum", "@out.sum"],
                ],
            },
            "long": {"body": ["rest", "total"], "edges": [["rest.value", "total.a"], ["total.sum", "@out.sum"]]},
        },
        "tasks": {
            "sums": {
                "outputs": ["sum"],
                "params": {"n": whole, "spins": {**whole, "default": 2}},
                "steps": [{"walk": "sums"}],
            },
            "again": {
                "outputs": ["sum"],
                "params": {"n": whole, "spins": {**whole, "default": 2}},
                "steps": [{"loop": [{"walk": "sums"}], "times": "3"}],
            },
            "twice": {"outputs": ["sum"], "params": {"n": whole}, "steps": [{"walk": "twice"}]},
            "fail": {"outputs": ["sum"], "steps": [{"walk": "fail"}]},
            "beat": {"outputs": ["beat", "sum"], "params": {"n": whole}, "steps": [{"walk": "beat"}]},
            "long": {
                "outputs": ["sum"],
                "params": {"spins": {**whole, "default": 10_000_000, "max": 10_000_000}},
                "steps": [{"walk": "long"}],
            },
        },
    }


TWO = {
    "format": "walkgraph/placement@1",
    "name": "two",
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}],
    "groups": [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["spin", "total", "right"], "ranks": [1]}],
}


INNER: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "inner",
    "nodes": {
        "tick": {"component": "synthetic.delay"},
        "next": {"component": "synthetic.add"},
        "range": {"component": "synthetic.range", "params": {"n": 4}},
        "fail": {"component": "synthetic.fail", "params": {"at": 2}},
    },
    "walks": {
        "spin": {
            "inputs": {"value": "scalar: int"},
            "body": [{"loop": "steps", "times": "times", "body": ["tick"]}],
            "edges": [["@in.value", "tick.value"], ["tick.value", "tick.value"], ["tick.value", "@out.value"]],
        },
        "beat": {
            "body": [{"loop": "l", "times": "times", "body": ["next"]}],
            "edges": [["@loop.index", "next.a"], {"from": "next.sum", "to": "@out.value", "each": True}],
        },
        "fail": {
            "body": ["range", {"loop": "l", "times": "4", "body": ["fail"]}],
            "edges": [
                {"from": "range.values", "to": "fail.value", "each": True},
                {"from": "fail.value", "to": "@out.value", "each": True},
            ],
        },
    },
    "tasks": {
        "spin": {
            "outputs": ["value"],
            "params": {
                "value": {"type": "integer", "default": 7},
                "times": {"type": "integer", "default": 2, "min": 1, "max": 10_000_000},
            },
            "steps": [{"walk": "spin", "with": {"value": "@task.value"}}],
        },
        "beat": {
            "outputs": ["value"],
            "params": {"times": {"type": "integer", "default": 3}},
            "steps": [{"walk": "beat"}],
        },
        "fail": {"outputs": ["value"], "steps": [{"walk": "fail"}]},
    },
}
"""`beat` counts; `spin` gives its value after so many steps; `fail` fails in its third one."""


@pytest.fixture(scope="module")
def running(plain: Service) -> Iterator[Service]:
    names = ("inner", "outer", "apart")
    with plain.client() as client:
        client.deploy(INNER, name="inner")
        client.deploy(outer(), name="outer")
        client.deploy(outer(), TWO, name="apart")
    for name in names:
        plain.wait_ready(name)
    yield plain
    plain.take_back(*names)


def answer(client: Client, deployment: str, task: str, **params: Any) -> Any:
    result = client.run(deployment, task, {"params": params})
    return result["outputs"]["sum"][-1]["value"]


both = pytest.mark.parametrize("deployment", ["outer", "apart"])


@both
def test_calls_give_what_their_tasks_do(running: Service, deployment: str) -> None:
    with running.client() as client:
        assert answer(client, deployment, "sums", n=4) == 0 + 1 + 2 + 3
        assert answer(client, deployment, "twice", n=3) == 2 * (0 + 1 + 2)
        passes = client.run(deployment, "again", {"params": {"n": 3}})["outputs"]["sum"]
        assert [one["value"] for one in passes] == [3, 3, 3], "in each pass of a loop of steps"


@both
def test_pieces_of_a_called_task_reach_the_client_in_order(running: Service, deployment: str) -> None:
    with running.client() as client:
        outputs = client.run(deployment, "beat", {"params": {"n": 5}})["outputs"]
        assert [one["value"] for one in outputs["beat"]] == [0, 1, 2, 3, 4]
        assert outputs["sum"][-1]["value"] == 4, "whoever else takes the output gets the last one"


@both
def test_the_trace_of_a_run_names_the_runs_that_it_called(running: Service, deployment: str) -> None:
    with running.client() as client:
        run = client.run(deployment, "twice", {"params": {"n": 2}})["run"]
        trace = client.trace(run)
        assert sorted((one["use"], one["task"], one["failed"]) for one in trace["called"]) == [
            ("left", "outer/sums", False),
            ("right", "outer/sums", False),
        ]
        lanes = {lane["name"] for lane in trace["lanes"]}
        assert {"left", "right", "both"} <= lanes
        for one in trace["called"]:
            inner = client.trace(one["run"])
            assert inner["task"] == "sums"
            assert [deeper["task"] for deeper in inner["called"]] == ["inner/spin"] * 2
            assert inner["parent"], "its span lies in the one of the run that called it"


@both
def test_a_failed_task_fails_the_run_and_says_which(running: Service, deployment: str) -> None:
    with running.client() as client, pytest.raises(ProblemError) as raised:
        answer(client, deployment, "fail")
    assert "the task `inner/fail` failed in node `fail`" in str(raised.value)


def begun(client: Client) -> tuple[str, str]:
    """A run of `long` that waits, and the run that it waits for."""
    run = client.start_run("outer", "long", {"deadline": 60.0})["id"]
    return run, called_by(client, run)


def called_by(client: Client, run: str) -> str:
    """The run of `spin` that this one waits for."""
    while True:
        running = client.runs(deployment="inner", state="running")
        found = [one["id"] for one in running if client.trace(one["id"])["parent"]]
        if found:
            return found[0]
        assert client.get_run(run)["state"] == "running"


def ended(client: Client, run: str) -> Any:
    while (found := client.get_run(run))["state"] == "running":
        pass
    return found


def test_the_end_of_a_run_cancels_what_it_called(running: Service) -> None:
    with running.client() as client:
        run, called = begun(client)
        client.cancel(run)
        assert [ended(client, one)["state"] for one in (called, run)] == ["cancelled", "cancelled"]


def test_a_called_run_that_is_cancelled_fails_the_one_that_called_it(running: Service) -> None:
    with running.client() as client:
        run, called = begun(client)
        client.cancel(called)
        error = ended(client, run)["error"]
        assert error["code"] == "cancelled"
        assert "the task `inner/spin` failed" in error["message"]


def test_a_call_has_what_is_left_of_the_deadline(running: Service) -> None:
    with running.client() as client:
        run = client.start_run("outer", "long", {"deadline": 2.0})["id"]
        called = called_by(client, run)
        assert ended(client, run)["error"]["code"] == "deadline_exceeded"
        assert ended(client, called)["error"]["code"] in ("deadline_exceeded", "cancelled")


def test_calls_are_made_for_the_key_that_asked(running: Service) -> None:
    with running.client() as client:
        made = client.add_key("caller", ["infer"], requests_per_minute=6)
        with Client(running.told["url"], made["secret"]) as asking:
            run = asking.start_run("outer", "sums", {"params": {"n": 2}})["id"]
        error = ended(client, run)["error"]
        assert error["code"] == "rate_limited", "one request may come at once, and the run was that"
        assert "the task `inner/spin` failed" in error["message"]


def test_a_graph_whose_deployment_is_gone_is_a_typed_error(running: Service) -> None:
    with running.client() as client:
        lonely = {**outer(), "name": "lonely"}
        lonely["nodes"] |= {name: {"component": "lonely/sums", "params": {"n": "=n"}} for name in ("left", "right")}
        lonely["nodes"]["bad"] = {"component": "gone/fail"}
        client.deploy({**INNER, "name": "gone"}, name="gone")
        running.wait_ready("gone")
        client.deploy(lonely, name="lonely")
        running.wait_ready("lonely")
        client.undeploy("gone")
        with pytest.raises(ProblemError) as raised:
            answer(client, "lonely", "fail")
        assert "no deployment serves the graph `gone`" in str(raised.value)
        assert answer(client, "lonely", "twice", n=2) == 2
        client.undeploy("lonely")
