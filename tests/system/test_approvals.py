"""Runs that wait for a person, with a real service on two ranks: approved, refused, expired, cancelled, and kept over a
kill of the service."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service, service
from walkgraph.client import Client, ProblemError

GRAPH, PLACEMENT, NAME = "synthetic_approvals", "synthetic_approvals_two_ranks", "asking"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("asking") / "home", studio="false") as found:
        found.up("--no-deploy")
        with found.client() as client:
            client.deploy(GRAPH, PLACEMENT, NAME)
        found.wait_ready(NAME)
        yield found


@pytest.fixture
def client(asking: Service) -> Iterator[Client]:
    with asking.client() as found:
        yield found


def started(client: Client, task: str, **params: Any) -> str:
    """A run that waits for a person."""
    run = client.start_run(NAME, task, {"params": params})["id"]
    waits(client, run)
    return run


def waits(client: Client, run: str) -> int:
    """Follow a run until it waits; returns the number of the approval."""
    for event in client.follow_run(run):
        assert event.name not in ("done", "error"), event
        if event.name == "approval" and client.get_run(run)["state"] == "waiting":
            found = client.get_run(run)["approval"]
            if found is not None and found["number"] == event.data["number"]:
                return found["number"]
    raise AssertionError("the run's events have ended")


def ended(client: Client, run: str) -> dict[str, Any]:
    """The result of a run that ends well."""
    *_, last = client.follow_run(run)
    assert last.name == "done", last
    return outputs(client.result(run))


def outputs(result: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: [_number(value) for value in values] for name, values in result["outputs"].items()}


def _number(value: Any) -> Any:
    data = value.get("data", value.get("value")) if isinstance(value, dict) else value
    while isinstance(data, list):
        (data,) = data
    return data


def test_an_approved_run_gives_what_the_task_without_a_person_gives(client: Client) -> None:
    wanted = outputs(client.run(NAME, "publish_at_once", {"params": {"idea": 20}}))
    found = client.run(NAME, "publish", {"params": {"idea": 20}})
    assert (found["state"], outputs(found)) == ("waiting", {"picture": wanted["picture"]})
    shown = client.approval(found["run"])
    assert (shown["label"], shown["goes_on"]) == ("Publish this picture?", False)
    assert {name: _number(value) for name, value in shown["values"].items()} == {"draw.picture": 21, "look.idea": 42}
    assert client.approve(found["run"], number=0)["state"] in ("running", "done")
    assert ended(client, found["run"]) == wanted == {"picture": [21], "idea": [42]}
    names = [event.name for event in client.follow_run(found["run"])]
    assert names == ["accepted", "output", "approval", "decision", "output", "done"]


def test_a_waiting_run_outlives_a_kill_of_the_service(asking: Service) -> None:
    with asking.client() as client:
        wanted = outputs(client.run(NAME, "publish_at_once", {"params": {"idea": 5}}))
        run, other = started(client, "publish", idea=5), started(client, "redraw", idea=3, most=4)
        composed = started(client, "compose", prompt=5, first=2, times=6)
        client.refuse(other, "bolder", number=0)
        waits(client, other)
    asking.signal(signal.SIGKILL)
    asking.ended()
    asking.up()
    asking.wait_ready(NAME)
    with asking.client() as client:
        assert {found["id"] for found in client.runs(state="waiting")} == {run, other, composed}
        assert _number(client.approval(run)["values"]["draw.picture"]) == 6
        client.approve(run)
        assert ended(client, run) == wanted == {"picture": [6], "idea": [12]}
        assert outputs(client.result(other)) == {"picture": [3, 7]}
        client.approve(other, number=1)
        # Passes: 3 + 0, then 2 * 3 + 1; the last is shown.
        assert ended(client, other) == {"picture": [3, 7], "idea": [14]}
        loops = client.result(other)["usage"]["loops"]
        assert loops == [{"walk": "", "loop": "said", "iterations": 2, "reason": "stop"}]
        found = [event.data["index"] for event in client.follow_run(other) if event.name == "output"]
        assert found == [0, 1, 0]
        draft = outputs(client.result(composed))["draft"]
        client.approve(composed)
        found = ended(client, composed)
        assert found["draft"] == draft
        assert len(found["text"]) == 6
        assert client.runs(state="waiting") == []


def test_a_refused_run_ends(client: Client) -> None:
    run = started(client, "publish", idea=1)
    assert client.refuse(run, "too dark")["state"] == "failed"
    *_, last = client.follow_run(run)
    assert (last.name, last.data["error"]["code"]) == ("error", "not_approved")
    assert "too dark" in last.data["error"]["message"]
    assert client.refuse(run, "too dark")["state"] == "failed"  # the same again
    with pytest.raises(ProblemError) as late:
        client.approve(run)
    assert (late.value.status, late.value.code) == (409, "conflict")


def test_an_answer_given_twice_does_not_count_for_the_next_approval(client: Client) -> None:
    run = started(client, "redraw", idea=1, most=5)
    client.refuse(run, "again", number=0)
    assert waits(client, run) == 1
    assert client.refuse(run, "again", number=0)["state"] == "waiting"
    with pytest.raises(ProblemError) as other:
        client.approve(run, number=0)
    assert other.value.code == "conflict"
    assert client.get_run(run)["approval"]["number"] == 1
    client.approve(run, number=1)
    assert ended(client, run) == {"picture": [1, 3], "idea": [6]}


def test_a_run_that_nobody_answers_expires(client: Client) -> None:
    run = started(client, "hasty", idea=1)
    *_, last = client.follow_run(run)
    assert (last.name, last.data["error"]["code"]) == ("error", "expired")
    with pytest.raises(ProblemError) as late:
        client.approve(run)
    assert (late.value.status, late.value.code) == (410, "expired")


def test_a_waiting_run_is_cancelled(client: Client) -> None:
    run = started(client, "publish", idea=1)
    client.cancel(run)
    *_, last = client.follow_run(run)
    assert last.data["error"]["code"] == "cancelled"
    assert client.get_run(run)["state"] == "cancelled"


def test_only_the_key_that_sent_a_run_and_one_that_ends_all_may_answer(asking: Service, client: Client) -> None:
    keys = {name: client.add_key(name, ["infer"])["secret"] for name in ("one", "two")}
    with Client(asking.told["url"], keys["one"]) as one, Client(asking.told["url"], keys["two"]) as two:
        run = started(one, "publish", idea=2)
        with pytest.raises(ProblemError) as foreign:
            two.approve(run)
        assert foreign.value.status == 404
        with pytest.raises(ProblemError):
            two.approval(run)
        one.approve(run)
        assert ended(one, run) == {"picture": [3], "idea": [6]}
        run = started(one, "publish", idea=2)
        client.approve(run)
        assert ended(client, run) == {"picture": [3], "idea": [6]}


def test_a_waiting_run_holds_nothing_and_its_deployment_may_go_and_come_back(client: Client) -> None:
    run = started(client, "compose", prompt=4, times=3)
    assert client.deployment(NAME)["running"] == 0
    client.undeploy(NAME)
    with pytest.raises(ProblemError) as gone:
        client.approve(run)
    assert gone.value.code == "conflict"
    graph = client.graph(GRAPH)
    other = {**graph, "description": "Another one"}
    for document, answer in ((other, "conflict"), (graph, "")):
        client.deploy(document, PLACEMENT, NAME)
        next(found for found in client.follow_deployment(NAME) if found["state"] == "ready")
        if answer:
            with pytest.raises(ProblemError) as differs:
                client.approve(run)
            assert differs.value.code == answer
            client.undeploy(NAME)
        else:
            client.approve(run)
    assert set(ended(client, run)) == {"draft", "text"}


def test_stop_sequences_are_refused(client: Client) -> None:
    with pytest.raises(ProblemError) as stops:
        client.run(NAME, "publish", {"stop": ["x"]})
    assert [fault.pointer for fault in stops.value.faults] == ["/stop"]
