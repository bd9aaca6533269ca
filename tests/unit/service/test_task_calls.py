"""Runs that call tasks: whose rights they have, what they are given, and how they end with each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG, FakeDeployment
from walkgraph.ids import Rank
from walkgraph.service.http import limits
from walkgraph.service.runs.runs import LiveRun
from walkgraph.telemetry import traceparent
from walkgraph.wire import messages as m

CALLING: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "calling",
    "nodes": {
        "draw": {"component": "shapes/text_to_image", "params": {"steps": 4}},
        "own": {"component": "calling/count"},
        "counter": {"component": "synthetic.counter", "states": {"count": "count"}},
    },
    "states": {"count": {"kind": "tensor"}},
    "walks": {
        "draw": {
            "inputs": {"text": "text"},
            "body": ["draw"],
            "edges": [["@in.text", "draw.prompt"], ["draw.image", "@out.image"]],
        },
        "own": {"body": ["own"], "edges": [["own.token", "@out.token"]]},
        "count": {"body": ["counter"], "edges": [["counter.token", "@out.token"]]},
    },
    "tasks": {
        "go": {
            "inputs": {"text": {"modality": "text"}},
            "outputs": ["image"],
            "steps": [{"walk": "draw", "with": {"text": "@task.text"}}],
        },
        "twice": {"outputs": ["token"], "steps": [{"walk": "own"}]},
        "count": {"outputs": ["token"], "steps": [{"walk": "count"}]},
    },
}
WAITS = 13
"""The seed with which a fake deployment's run waits for its end."""


async def put(service: Running, document: dict[str, Any]) -> FakeDeployment:
    """Deploy a graph under its name; its process."""
    answer = await service.http.post("/api/v1/deployments", json={"graph": document})
    assert answer.status_code == 202, answer.text
    await service.settled(document["name"])
    return service.fleet.started[-1]


async def both(service: Running) -> tuple[FakeDeployment, FakeDeployment]:
    """The deployments of the calling and of the called graph."""
    await service.deploy()
    called = service.fleet.started[-1]
    return await put(service, CALLING), called


async def caller(service: Running, task: str = "go", headers: dict[str, str] | None = None, **more: Any) -> LiveRun:
    """A run that waits, and can call."""
    body = {"params": {"seed": WAITS}, "inputs": {"text": "a red circle"} if task == "go" else {}, **more}
    request = {"deployment": "calling", "task": task, "request": body}
    answer = await service.anybody.post("/api/v1/runs", json=request, headers=headers or dict(service.http.headers))
    assert answer.status_code == 202, answer.text
    found = service.services.runs.get(answer.json()["id"])
    assert found is not None
    return found


def call(run: LiveRun, task: str = "shapes/text_to_image", seed: int = 7, **more: Any) -> m.CallTask:
    given: dict[str, m.Value] = {"prompt": m.Small(value="a red circle")} if task.startswith("shapes") else {}
    fields: dict[str, Any] = {
        "params": {},
        "outputs": ("image",),
        "value": m.Named(items=given),
        "deadline": 9.5,
        **more,
    }
    return m.CallTask(
        run=run.id,
        rank=Rank(0),
        step=0,
        use=0,
        iteration=(2,),
        task=task,
        walk="draw",
        node="draw",
        name="draw",
        seed=seed,
        **fields,
    )


async def answered(deployment: FakeDeployment, number: int = 1) -> m.TaskAnswer:
    """The answer of that number that the calling deployment gets."""
    while True:
        deployment.some.clear()
        found = [one for one in deployment.sent if isinstance(one, m.TaskAnswer)]
        if len(found) >= number:
            return found[number - 1]
        await deployment.some.wait()


def submitted(deployment: FakeDeployment) -> m.Submit:
    return [one for one in deployment.sent if isinstance(one, m.Submit)][-1]


async def test_a_call_is_a_run_of_the_called_deployment(service: Running) -> None:
    calling, called = await both(service)
    run = await caller(service, priority=3)
    calling.say(call(run, params={"steps": 4}))
    answer = await answered(calling)
    assert answer.error is None
    assert answer.outputs["image"] == m.Blob(data=PNG)
    assert answer.outputs["text"] == m.Small(value="a red circle"), "pieces of text are joined"
    assert (answer.run, answer.rank, answer.iteration, answer.queued) == (run.id, 0, (2,), 0.1)
    asked = submitted(called)
    assert asked.run == answer.called
    assert (asked.task, asked.depth, asked.priority, asked.deadline) == ("text_to_image", 1, 3, 9.5)
    assert (asked.params, asked.outputs) == ({"seed": 7, "steps": 4}, ("image",))
    assert asked.inputs == {"prompt": (m.Small(value="a red circle"),)}
    assert asked.session is None


async def test_a_called_run_is_in_the_trace_of_the_one_that_called_it(service: Running) -> None:
    calling, _ = await both(service)
    run = await caller(service)
    calling.say(call(run))
    child = service.services.runs.get((await answered(calling)).called)
    assert child is not None
    assert (child.calling, child.caller) == (run.id, run.caller)
    above = traceparent.of_run(run.id, None)
    assert child.parent == traceparent.write(above)
    assert traceparent.of_run(child.id, traceparent.parse(child.parent)).trace == above.trace


async def test_values_of_ports_go_before_parameters(service: Running) -> None:
    calling, called = await both(service)
    run = await caller(service)
    number = m.InlineTensor(dtype="int64", shape=(1,), data=(6).to_bytes(8, "little"))
    given = {"prompt": m.Small(value="x"), "steps": number, "seed": m.Small(value=21)}
    calling.say(call(run, params={"steps": 4}, value=m.Named(items=given)))
    await answered(calling)
    assert submitted(called).params == {"seed": 21, "steps": 6}
    given["steps"] = m.InlineTensor(dtype="int64", shape=(2,), data=bytes(16))
    calling.say(call(run, value=m.Named(items=given)))
    answer = await answered(calling, 2)
    assert answer.error is not None
    assert answer.error.code == "invalid_input"


async def test_pieces_are_passed_on_as_they_come(service: Running) -> None:
    calling, called = await both(service)
    run = await caller(service)
    calling.say(call(run, outputs=("image",), pieces=("text", "image")))
    answer = await answered(calling)
    pieces = [one for one in calling.sent if isinstance(one, m.TaskPiece)]
    assert [(one.output, one.value) for one in pieces] == [
        ("image", m.Blob(data=PNG)),
        ("text", m.Small(value="a red ")),
        ("text", m.Small(value="circle")),
    ]
    assert calling.sent.index(answer) > calling.sent.index(pieces[-1])
    assert answer.outputs == {"preview": m.Blob(data=PNG), "image": m.Blob(data=PNG)}, "the fake sends a preview too"
    assert submitted(called).outputs == ("image", "text")


async def test_an_error_names_the_task_and_what_went_wrong(service: Running) -> None:
    calling, _ = await both(service)
    calling.say(call(await caller(service), seed=14))
    error = (await answered(calling)).error
    assert error is not None
    assert error.code == "numeric_error"
    assert error.message == "the task `shapes/text_to_image` failed in node `llm`: `llm.velocity` is not finite"
    assert (error.node, error.use, error.walk, error.iteration, error.rank) == ("draw", "draw", "draw", (2,), 0)


@pytest.mark.parametrize(
    ("task", "code", "says"),
    [
        ("nowhere/go", "not_found", "no deployment serves the graph `nowhere`; deploy it"),
        ("shapes/text_to_imag", "not_found", "did you mean `text_to_image`?"),
    ],
)
async def test_a_task_that_nobody_serves_is_a_typed_error(service: Running, task: str, code: str, says: str) -> None:
    calling, _ = await both(service)
    calling.say(call(await caller(service), task))
    answer = await answered(calling)
    assert answer.error is not None
    assert answer.error.code == code
    assert says in answer.error.message
    assert answer.called == ""


async def test_calls_may_be_four_deep(service: Running) -> None:
    calling, called = await both(service)
    run = await caller(service)
    run.depth = 3
    calling.say(call(run))
    assert (await answered(calling)).error is None
    assert submitted(called).depth == 4
    run.depth = 4
    calling.say(call(run))
    error = (await answered(calling, 2)).error
    assert error is not None
    assert error.code == "refused"
    assert "4 deep" in error.message


async def test_the_end_of_a_run_ends_those_that_it_waits_for(service: Running) -> None:
    calling, called = await both(service)
    run = await caller(service)
    calling.say(call(run, seed=WAITS))
    child = await called.waiting.get()
    run.abort()
    live = service.services.runs.get(child)
    assert live is not None
    end = await live.ended()
    assert end.error is not None
    assert end.error.code == "cancelled"
    assert not [one for one in calling.sent if isinstance(one, m.TaskAnswer)]


async def test_a_run_whose_deployment_dies_ends_those_that_it_waits_for(service: Running) -> None:
    calling, called = await both(service)
    calling.say(call(await caller(service), seed=WAITS))
    live = service.services.runs.get(await called.waiting.get())
    assert live is not None
    calling.die(1)
    assert (await live.ended()).error is not None


async def test_a_called_run_that_is_cancelled_fails_the_one_that_called_it(service: Running) -> None:
    calling, called = await both(service)
    calling.say(call(await caller(service), seed=WAITS))
    answer = await service.http.delete(f"/api/v1/runs/{await called.waiting.get()}")
    assert answer.status_code == 202
    error = (await answered(calling)).error
    assert error is not None
    assert error.code == "cancelled"


async def test_a_graph_calls_its_own_tasks_in_the_version_that_it_runs_in(service: Running) -> None:
    calling, _ = await both(service)
    run = await caller(service, "twice")
    service.fleet.ready = False
    answer = await service.http.put("/api/v1/deployments/calling", json={"graph": CALLING})
    assert answer.status_code == 202, answer.text
    newer = await service.fleet.until(3)
    newer.ready()
    await asyncio.sleep(0)
    calling.say(call(run, "calling/count", outputs=("token",)))
    await answered(calling)
    assert submitted(calling).task == "count"
    assert not newer.sent or not any(isinstance(one, m.Submit) for one in newer.sent)


async def test_other_graphs_are_found_under_the_deployment_of_their_name_first(service: Running) -> None:
    answer = await service.http.post("/api/v1/deployments", json={"graph": "shapes", "name": "older"})
    assert answer.status_code == 202
    await service.settled("older")
    older = service.fleet.started[-1]
    calling = await put(service, CALLING)
    run = await caller(service)
    calling.say(call(run))
    await answered(calling)
    assert submitted(older).task == "text_to_image"
    await service.deploy()
    named = service.fleet.started[-1]
    calling.say(call(run))
    await answered(calling, 2)
    assert submitted(named).task == "text_to_image"


# ── the caller's rights ─────────────────────────────────────────────────────────────────────────


async def key(service: Running, **fields: Any) -> tuple[str, dict[str, str]]:
    answer = await service.http.post("/api/v1/keys", json={"name": "k", "scopes": ["infer"], **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"], {"Authorization": f"Bearer {answer.json()['secret']}"}


async def test_calls_count_as_requests_of_the_key_and_not_as_concurrent_runs(service: Running) -> None:
    calling, _ = await both(service)
    id_, headers = await key(service, requests_per_minute=12, concurrent=1)
    run = await caller(service, headers=headers)
    calling.say(call(run, seed=WAITS))
    assert service.services.keys.running(id_) == 1
    calling.say(call(run))
    error = (await answered(calling)).error
    assert error is not None
    assert error.code == "rate_limited", "two requests may come at once: the run, and its first call"


async def test_a_called_run_belongs_to_the_key(service: Running) -> None:
    calling, _ = await both(service)
    id_, headers = await key(service)
    calling.say(call(await caller(service, headers=headers)))
    called = (await answered(calling)).called
    listed = (await service.anybody.get("/api/v1/runs", headers=headers)).json()
    assert {one["id"]: one["caller"] for one in listed}[called] == id_
    other, others = await key(service, name="other")
    assert other != id_
    assert (await service.anybody.get(f"/api/v1/runs/{called}", headers=others)).status_code == 404


async def test_a_key_that_has_ended_calls_nothing(service: Running) -> None:
    calling, called = await both(service)
    id_, headers = await key(service)
    run = await caller(service, headers=headers)
    assert (await service.http.delete(f"/api/v1/keys/{id_}")).status_code in (200, 204)
    calling.say(call(run))
    error = (await answered(calling)).error
    assert error is not None
    assert error.code == "refused"
    assert not any(isinstance(one, m.Submit) for one in called.sent)


# ── limits ──────────────────────────────────────────────────────────────────────────────────────


async def test_values_in_and_out_have_bounds(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    calling, called = await both(service)
    run = await caller(service)
    monkeypatch.setattr(limits, "CALL_BYTES", len(PNG))
    calling.say(call(run, value=m.Named(items={"prompt": m.Small(value="x" * (len(PNG) + 1))})))
    error = (await answered(calling)).error
    assert error is not None
    assert error.code == "invalid_input"
    assert not any(isinstance(one, m.Submit) for one in called.sent)
    calling.say(call(run))
    error = (await answered(calling, 2)).error
    assert error is not None
    assert error.code == "out_of_memory", "two pictures and a text come back"


async def test_a_deployment_that_is_not_ready_is_a_retryable_error(service: Running) -> None:
    calling, called = await both(service)
    called.say(m.Status(state="starting", ranks=()))
    calling.say(call(await caller(service)))
    error = (await answered(calling)).error
    assert error is not None
    assert error.retryable
    managed = service.services.deployments.get("shapes")
    managed.serving.graph = None
    calling.say(call(await caller(service)))
    error = (await answered(calling, 2)).error
    assert error is not None
    assert (error.code, error.retryable) == ("overloaded", True), "after the service's start, until it is judged"


# ── documents ───────────────────────────────────────────────────────────────────────────────────


async def problems(service: Running, document: dict[str, Any]) -> list[str]:
    answer = await service.http.post("/api/v1/graphs/check", json=document)
    return [problem["code"] for problem in answer.json()["problems"]]


async def test_tasks_of_stored_graphs_can_be_called_and_those_that_are_not_deployed_are_named(service: Running) -> None:
    assert await problems(service, CALLING) == ["task_not_deployed"]
    await service.deploy()
    assert await problems(service, CALLING) == []
    wrong = {**CALLING, "nodes": {**CALLING["nodes"], "draw": {"component": "shape/text_to_image"}}}
    assert "unknown_component" in await problems(service, wrong)


async def test_a_deployed_graph_counts_as_it_is_deployed(service: Running) -> None:
    await service.deploy()
    stored = (await service.http.get("/api/v1/graphs/shapes")).json()
    del stored["tasks"]["text_to_image"]
    etag = (await service.http.get("/api/v1/graphs/shapes")).headers["etag"]
    put_ = await service.http.put("/api/v1/graphs/shapes", json=stored, headers={"If-Match": etag})
    assert put_.status_code == 200, put_.text
    assert await problems(service, CALLING) == []


async def test_the_palette_lists_tasks_where_they_are_asked_for(service: Running) -> None:
    plain = (await service.http.get("/api/v1/components")).json()
    whole = (await service.http.get("/api/v1/components?tasks=true")).json()
    assert not any(one["task"] for one in plain)
    tasks = {one["name"]: one for one in whole if one["task"]}
    assert tasks["shapes/text_to_image"]["category"] == "Tasks"
    assert [port["name"] for port in tasks["shapes/text_to_image"]["outputs"]] == ["image", "preview"]


async def test_tasks_that_are_served_are_listed_before_others(service: Running) -> None:
    await service.deploy()
    stored = (await service.http.get("/api/v1/graphs/shapes")).json()
    put_ = await service.http.put("/api/v1/graphs/boxes", json={**stored, "name": "boxes"})
    assert put_.status_code in (200, 201), put_.text
    whole = (await service.http.get("/api/v1/components?tasks=true")).json()
    tasks = [one["name"] for one in whole if one["task"]]
    assert tasks.index("shapes/text_to_image") < tasks.index("boxes/text_to_image")


async def test_outputs_of_a_called_task_are_known_wherever_tasks_are_listed(service: Running) -> None:
    await service.deploy()
    put_ = await service.http.put("/api/v1/graphs/calling", json=CALLING)
    assert put_.status_code in (200, 201), put_.text
    listed = {row["name"]: row for row in (await service.http.get("/api/v1/gallery")).json()}["calling"]
    assert (listed["deployable"], listed["why"]) == (True, None)
    assert "image" in listed["modalities_out"]
    asked = await service.http.post("/api/v1/deployments", json={"graph": "calling"})
    assert asked.status_code == 202, asked.text
    await service.settled("calling")
    assert (await service.http.get("/v1/models/calling")).json()["routes"] == {"images.generations": ["go"]}
    told = (await service.http.get("/v2/models/calling/versions/go")).json()
    assert [(output["name"], output["datatype"]) for output in told["outputs"]] == [("image", "BYTES")]


async def test_plans_and_simulations_know_called_tasks(service: Running) -> None:
    plan = (await service.http.post("/api/v1/plans", json={"graph": CALLING})).json()
    assert plan["ok"], plan["problems"]
    assert plan["deployable"]
    asked = {"graph": CALLING, "task": "go", "inputs": {"text": 1}}
    found = (await service.http.post("/api/v1/graphs/simulate", json=asked)).json()
    assert found["ok"], found["problems"]
    assert [use["use"] for use in found["lanes"][0]["steps"][0]["uses"]] == ["draw"]
