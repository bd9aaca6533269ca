"""Taps and breakpoints: set, sent to processes and followers, and expired."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.conductor.runs.watching import Places
from walkgraph.ids import Rank, RunId
from walkgraph.service.http import limits
from walkgraph.service.observe.watching import Watched
from walkgraph.service.schemas.watch import BreakRequest, TapRequest
from walkgraph.settings import Settings
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Break, HeldCall, Tap

PATH = "/api/v1/deployments/shapes"
WAITS = {"inputs": {"prompt": "a red circle"}, "params": {"seed": 13}}
TAP = {"walk": "image_gen", "source": "llm.velocity"}
PLACE = ("image_gen", "llm.velocity")
OUTSIDE = {"walk": "image_gen", "source": "vae_decoder.pixels"}
STOP = {"walk": "image_gen", "use": "llm", "iteration": 3}


@pytest.fixture
async def deployed(service: Running) -> Running:
    await service.deploy()
    return service


def frames(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The frames that the hub gets from now on, without those of the deployment's state."""
    found: list[dict[str, Any]] = []
    publish = running.services.hub.publish

    def noted(deployment: str, frame: dict[str, Any]) -> None:
        if frame["type"] != "deployment":
            found.append(json.loads(msgspec.json.encode({**frame, "deployment": deployment})))
        publish(deployment, frame)

    monkeypatch.setattr(running.services.hub, "publish", noted)
    return found


def watches(running: Running, number: int = 0) -> list[m.Watch]:
    return [sent for sent in running.fleet.started[number].sent if isinstance(sent, m.Watch)]


def places(running: Running) -> Places:
    found = running.services.deployments.get("shapes").serving.places
    assert found is not None
    return found


# ── levels, taps, breakpoints ──────────────────────────────────────────────────────────────────


async def test_taps_and_breakpoints_are_armed_shown_and_removed(
    deployed: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = frames(deployed, monkeypatch)
    assert (await deployed.http.get(f"{PATH}/watch")).json() == {"level": "summary", "taps": [], "breakpoints": []}
    answer = await deployed.http.post(f"{PATH}/taps", json=TAP)
    assert answer.status_code == 201, answer.text
    tap = answer.json()
    assert (tap["walk"], tap["source"], tap["interval"], tap["preview"], tap["run"]) == (
        *PLACE,
        0.25,
        True,
        None,
    )
    assert tap["inside"] is True
    answer = await deployed.http.post(f"{PATH}/breakpoints", json=STOP)
    assert answer.status_code == 201, answer.text
    stop = answer.json()
    assert (stop["walk"], stop["use"], stop["iteration"], stop["inside"]) == ("image_gen", "llm", 3, True)
    outside = (
        await deployed.http.post(
            f"{PATH}/taps", json={**OUTSIDE, "to": "picture_out.pixels", "interval": 1, "preview": False}
        )
    ).json()
    assert (outside["inside"], outside["interval"], outside["preview"]) == (False, 1.0, False)
    shown = (await deployed.http.get(f"{PATH}/watch")).json()
    assert shown == {"level": "summary", "taps": [tap, outside], "breakpoints": [stop]}
    assert told[-1] == {"type": "watch", "deployment": "shapes", **shown}
    wanted = watches(deployed)[-1]
    first, second = wanted.taps
    assert first == Tap(id=tap["id"], walk="image_gen", source="llm.velocity", interval=0.25, preview=True)
    assert (second.source, second.to) == ("vae_decoder.pixels", "picture_out.pixels")
    assert wanted.breaks == (Break(id=stop["id"], walk="image_gen", use="llm", iteration=3),)
    assert (await deployed.http.delete(f"{PATH}/taps/{tap['id']}")).status_code == 204
    assert (await deployed.http.delete(f"{PATH}/breakpoints/{stop['id']}")).status_code == 204
    assert (watches(deployed)[-1].taps, watches(deployed)[-1].breaks) == ((second,), ())
    assert (await deployed.http.delete(f"{PATH}/taps/{tap['id']}")).status_code == 404
    assert (await deployed.http.delete(f"{PATH}/breakpoints/{stop['id']}")).status_code == 404
    assert len(told) == len(watches(deployed)) == 5


async def test_a_tap_looks_more_often_or_less(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    tap = (await deployed.http.post(f"{PATH}/taps", json=TAP)).json()
    told = frames(deployed, monkeypatch)
    answer = await deployed.http.patch(f"{PATH}/taps/{tap['id']}", json={"interval": 2})
    assert (answer.status_code, answer.json()) == (200, {**tap, "interval": 2.0})
    assert [(one.id, one.interval) for one in watches(deployed)[-1].taps] == [(tap["id"], 2.0)]
    assert (await deployed.http.get(f"{PATH}/watch")).json()["taps"] == told[-1]["taps"] == [answer.json()]
    for body in ({"interval": 0.01}, {"interval": None}, {}, {"interval": 1, "seconds": 5}):
        assert (await deployed.http.patch(f"{PATH}/taps/{tap['id']}", json=body)).status_code == 422
    answer = await deployed.http.patch(f"{PATH}/taps/tap-none", json={"interval": 1})
    assert (answer.status_code, "expired" in answer.json()["detail"]) == (404, True)
    assert len(told) == 1


async def test_the_level_is_told_at_once(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    told = frames(deployed, monkeypatch)
    answer = await deployed.http.put(f"{PATH}/watch/level", json={"level": "full"})
    assert answer.json()["level"] == "full"
    assert watches(deployed) == [m.Watch(level="full")]
    assert told == [{"type": "watch", "deployment": "shapes", "level": "full", "taps": [], "breakpoints": []}]
    assert (await deployed.http.put(f"{PATH}/watch/level", json={"level": "loud"})).status_code == 422


@pytest.mark.parametrize(
    ("kind", "body", "pointer", "advice"),
    [
        ("taps", {**TAP, "walk": "image_gem"}, "/walk", "`image_gen`"),
        ("taps", {**TAP, "source": "llm.velocty"}, "/source", "`llm.velocity`"),
        ("taps", {"walk": "prefill_text", "source": "@in.txt"}, "/source", "`@in.text`"),
        ("taps", {**TAP, "to": "combine_cfg.velocty"}, "/to", "`combine_cfg.velocity`"),
        ("taps", {**TAP, "interval": 0.01}, "/interval", "0.05"),
        ("taps", {**TAP, "run": "0" * 32}, "/run", "no run"),
        ("breakpoints", {**STOP, "walk": "image_gem"}, "/walk", "`image_gen`"),
        ("breakpoints", {**STOP, "use": "lmm"}, "/use", "`llm`"),
        ("breakpoints", {**STOP, "iteration": -1}, "/iteration", "0"),
        ("breakpoints", {**STOP, "use": "vae_decoder"}, "/iteration", "no loop"),
    ],
)
async def test_places_that_arent_there_are_pointed_at(
    deployed: Running, kind: str, body: dict[str, Any], pointer: str, advice: str
) -> None:
    answer = await deployed.http.post(f"{PATH}/{kind}", json=body)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert advice in fault["message"]
    assert watches(deployed) == []


async def test_there_are_only_so_many(deployed: Running) -> None:
    for _ in range(limits.TAPS):
        assert (await deployed.http.post(f"{PATH}/taps", json=TAP)).status_code == 201
    assert (await deployed.http.post(f"{PATH}/taps", json=TAP)).status_code == 409
    for _ in range(limits.BREAKPOINTS):
        assert (await deployed.http.post(f"{PATH}/breakpoints", json=STOP)).status_code == 201
    assert (await deployed.http.post(f"{PATH}/breakpoints", json=STOP)).status_code == 409


async def test_they_go_by_themselves(deployed: Running) -> None:
    await deployed.http.post(f"{PATH}/taps", json={**TAP, "seconds": 1})
    await deployed.http.post(f"{PATH}/breakpoints", json={**STOP, "seconds": 1000})
    managed = deployed.services.deployments.get("shapes")
    timer = managed._expiry
    assert timer is not None
    assert timer.when() - asyncio.get_running_loop().time() <= 1.0
    assert not managed.watched.expire(0.0)
    managed.watched.expire(managed.watched.next_end or 0.0)
    managed.rewatch()
    assert timer.cancelled()
    shown = (await deployed.http.get(f"{PATH}/watch")).json()
    assert (len(shown["taps"]), len(shown["breakpoints"])) == (0, 1)
    assert watches(deployed)[-1].taps == ()


async def test_what_is_asked_for_one_run_ends_with_it(deployed: Running) -> None:
    body = {"deployment": "shapes", "task": "text_to_image", "request": WAITS}
    run = (await deployed.http.post("/api/v1/runs", json=body)).json()["id"]
    fake = deployed.fleet.started[0]
    await fake.waiting.get()
    assert (await deployed.http.post(f"{PATH}/taps", json={**TAP, "run": run})).json()["run"] == run
    assert (await deployed.http.post(f"{PATH}/taps", json=OUTSIDE)).status_code == 201
    assert [tap.run for tap in watches(deployed)[-1].taps] == [run, None]
    fake.finish(RunId(run))
    assert [tap.run for tap in watches(deployed)[-1].taps] == [None]
    assert (await deployed.http.post(f"{PATH}/taps", json={**TAP, "run": run})).status_code == 422


async def test_a_process_that_is_started_anew_is_told(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walkgraph.service.deployments.supervisor.BACKOFF_FIRST", 0.001)
    await deployed.http.put(f"{PATH}/watch/level", json={"level": "full"})
    await deployed.http.post(f"{PATH}/taps", json=TAP)
    wanted = watches(deployed)[-1]
    deployed.fleet.started[0].die(-9)
    new = await deployed.fleet.until(2)
    await deployed.settled("shapes")
    assert new.spec.telemetry_level == "full"
    await new.some.wait()
    assert new.sent == [wanted]


async def test_a_switch_keeps_what_still_has_its_place(deployed: Running) -> None:
    await deployed.http.post(f"{PATH}/taps", json=TAP)
    await deployed.http.post(f"{PATH}/taps", json={"walk": "prefill_text", "source": "@in.text"})
    graph = (await deployed.http.get(f"{PATH}/graph")).json()
    graph = json.loads(json.dumps(graph).replace('"image_gen"', '"image_gen_alone"'))
    deployed.fleet.ready = False
    answer = await deployed.http.put(PATH, json={"graph": graph, "placement": "shapes_one_cpu"})
    assert answer.status_code == 202, answer.text
    new = await deployed.fleet.until(2)
    await new.some.wait()
    assert [tap.source for tap in watches(deployed, 1)[-1].taps] == ["@in.text"]
    assert len((await deployed.http.get(f"{PATH}/watch")).json()["taps"]) == 2
    new.ready()
    managed = deployed.services.deployments.get("shapes")
    while managed.next is not None:
        await managed.changed.wait()
    assert [tap["source"] for tap in (await deployed.http.get(f"{PATH}/watch")).json()["taps"]] == ["@in.text"]


async def test_the_level_at_the_start_is_a_setting(settings: Settings) -> None:
    async with serving(settings.model_copy(update={"telemetry": "off"}), FakeFleet()) as running:
        await running.deploy()
        assert running.fleet.started[0].spec.telemetry_level == "off"
        assert running.fleet.started[0].sent == []
        assert (await running.http.get(f"{PATH}/watch")).json()["level"] == "off"


async def test_nothing_is_armed_while_it_is_judged(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as first:
        await first.deploy()
    async with serving(settings, FakeFleet()) as second:
        managed = second.services.deployments.get("shapes")
        assert managed.serving.places is None
        assert (await second.http.post(f"{PATH}/taps", json=TAP)).status_code == 503
        assert (await second.http.get(f"{PATH}/watch")).status_code == 200


async def test_ids_of_taps_are_never_those_of_breakpoints(deployed: Running) -> None:
    watched = Watched("off")
    here = places(deployed)
    tap = watched.tap(TapRequest.model_validate(TAP), here)
    stop = watched.stop_at(BreakRequest.model_validate(STOP), here)
    assert tap != stop
    assert watched.tap_shown(tap, here)["source"] == "llm.velocity"
    assert watched.break_shown(stop, here)["use"] == "llm"
    assert watched.places == 2


# ── steering ───────────────────────────────────────────────────────────────────────────────────


def held(iteration: int = 0) -> HeldCall:
    return HeldCall(rank=Rank(0), walk="image_gen", use="llm", node="llm", step=1, iteration=(iteration,))


async def begun(running: Running, **more: Any) -> str:
    body = {"deployment": "shapes", "task": "text_to_image", "request": {**WAITS, **more}}
    answer = await running.http.post("/api/v1/runs", json=body)
    assert answer.status_code == 202, answer.text
    await running.fleet.started[0].waiting.get()
    return answer.json()["id"]


def sent(running: Running) -> Any:
    return running.fleet.started[0].sent[-1]


async def test_a_run_is_paused_stepped_and_goes_on(deployed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    told = frames(deployed, monkeypatch)
    fake = deployed.fleet.started[0]
    run = await begun(deployed)
    path = f"/api/v1/runs/{run}"

    async def steered(action: str, call: Any = None) -> int:
        return (await deployed.http.post(f"{path}/steer", json={"action": action, "call": call})).status_code

    assert [await steered(action) for action in ("step", "iteration", "resume")] == [409, 409, 409]
    assert await steered("pause") == 202
    assert sent(deployed) == m.Steer(run=RunId(run), action="pause")
    fake.say(m.Paused(run=RunId(run), held=()))
    assert (await deployed.http.get(path)).json()["paused"] == {"held": [], "breakpoint": ""}
    assert await steered("step") == 409, "nothing is held yet"
    fake.say(m.Paused(run=RunId(run), held=(held(), held(1)), breakpoint="b"))
    found = (await deployed.http.get(path)).json()
    assert found["state"] == "running"
    call = found["paused"]["held"][1]
    one = {"rank": 0, "walk": "image_gen", "use": "llm", "node": "llm", "step": 1, "iteration": [1], "loop": ""}
    assert call == one
    assert told[-1] == {"type": "paused", "deployment": "shapes", "run": run, **found["paused"]}
    (listed,) = (await deployed.http.get("/api/v1/runs")).json()
    assert listed["paused"] == found["paused"]
    assert await steered("step", call) == 202
    assert sent(deployed) == m.Steer(run=RunId(run), action="step", call=held(1))
    assert await steered("step", {**call, "iteration": [7]}) == 409
    assert await steered("step", {**call, "iteration": [-7]}) == 422
    assert await steered("iteration") == 202
    assert await steered("resume") == 202
    fake.say(m.Resumed(run=RunId(run)))
    assert told[-1] == {"type": "resumed", "deployment": "shapes", "run": run}
    assert (await deployed.http.get(path)).json()["paused"] is None
    fake.say(m.Paused(run=RunId(run), held=(held(),)))
    fake.finish(RunId(run))
    assert (await deployed.http.get(path)).json()["paused"] is None
    assert await steered("pause") == 409
    assert (await deployed.http.post(f"/api/v1/runs/{'0' * 32}/steer", json={"action": "pause"})).status_code == 404


async def test_runs_are_recorded_and_held_where_it_is_asked(deployed: Running) -> None:
    await begun(deployed)
    plain = sent(deployed)
    await begun(deployed, record=True, hold=True)
    both = sent(deployed)
    assert (plain.record, plain.hold, both.record, both.hold) == (False, False, True, True)
    body = {**WAITS, "record": 1, "hold": "yes"}
    answer = await deployed.http.post("/v1/tasks/shapes/text_to_image", json=body)
    assert answer.status_code == 422
    assert {fault["pointer"] for fault in answer.json()["errors"]} == {"/record", "/hold"}
    schema = (await deployed.http.get("/v1/tasks/shapes/text_to_image")).json()["schema"]
    assert {schema["properties"][name]["type"] for name in ("record", "hold")} == {"boolean"}
