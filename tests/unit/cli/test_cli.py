"""The command line against a service that answers from memory: words, files, exit codes."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from PIL import Image

from tests.support.fake_service import PICTURE, PNG, RANK, SHAPES, TASK, TIMES, FakeService, output, sse
from tests.support.yardstick import fastest
from walkgraph.cli.runs import request
from walkgraph.cli.verbs import up

Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


# ── without a service ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("status",), ("down",), ("deploy", "shapes"), ("run", "a", "b"), ("open",)])
def test_no_service_is_said_in_words(walkgraph: Call, capsys: Output, words: tuple[str, ...]) -> None:
    assert walkgraph(*words) == 3
    told = capsys.readouterr().err
    assert "no Walkgraph service is running" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("words", [("status",), ("up",), ("plan", "shapes")])
def test_wrong_settings_are_named(
    walkgraph: Call, capsys: Output, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("WALKGRAPH_PORT", "many")
    assert walkgraph(*words) == 1
    assert "the settings are wrong: `WALKGRAPH_PORT`: " in capsys.readouterr().err


def test_a_file_that_is_not_there_is_no_name(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("deploy", "mine.json") == 1
    assert "there is no file `mine.json`" in capsys.readouterr().err


def test_a_wrong_command_is_told_from_a_failed_one(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("deplyo") == 2
    assert walkgraph("plan") == 2
    assert walkgraph("plan", "no_such_graph") == 1
    assert "is neither a file nor one of the bundled graphs" in capsys.readouterr().err


def test_graphs_that_call_tasks_are_checked_and_planned_without_a_service(
    walkgraph: Call, capsys: Output, tmp_path: Path
) -> None:
    """With the tasks of files beside them, and of the bundled graphs."""
    walk = {
        "inputs": {"text": "text"},
        "body": ["draw"],
        "edges": [["@in.text", "draw.prompt"], ["draw.image", "@out.image"]],
    }
    task = {
        "inputs": {"text": {"modality": "text"}},
        "outputs": ["image"],
        "steps": [{"walk": "go", "with": {"text": "@task.text"}}],
    }
    poster = {
        "format": "walkgraph/graph@1",
        "name": "poster",
        "nodes": {"draw": {"component": "shapes/text_to_image"}},
        "walks": {"go": walk},
        "tasks": {"make": task},
    }
    wall = {**poster, "name": "wall", "nodes": {"draw": {"component": "poster/make"}}}
    wall["walks"] = {"go": {**walk, "edges": [["@in.text", "draw.text"], ["draw.image", "@out.image"]]}}
    for document in (poster, wall):
        (tmp_path / f"{document['name']}.json").write_text(json.dumps(document))
        assert walkgraph("validate", str(tmp_path / f"{document['name']}.json")) == 0, capsys.readouterr().out
    assert walkgraph("plan", str(tmp_path / "wall.json")) == 0
    assert "  go  draw → poster/make  from rank 0" in capsys.readouterr().out
    (tmp_path / "poster.json").unlink()
    assert walkgraph("validate", str(tmp_path / "wall.json")) == 1
    assert "no task `poster/make`" in capsys.readouterr().out


def test_validate_tells_every_problem(walkgraph: Call, capsys: Output, tmp_path: Path) -> None:
    assert walkgraph("validate", "shapes") == 0
    bad = tmp_path / "bad.json"
    bad.write_text(
        '{"format": "walkgraph/graph@1", "name": "x", "nodes": {"a": {"component": "no.such"}}, "wlaks": {}}'
    )
    capsys.readouterr()
    assert walkgraph("validate", str(bad), "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert {"/wlaks", "/nodes/a/component"} <= {p["pointer"] for p in found["problems"]}
    bad.write_text('{"x": NaN}')
    assert walkgraph("validate", str(bad)) == 1
    assert "NaN" in capsys.readouterr().err
    bad.write_text('{"format": "walkgraph/placement@1", "groups": 3}')
    assert walkgraph("validate", str(bad)) == 1
    assert "/groups" in capsys.readouterr().out


def test_plan_for_gpus_that_are_not_here(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("plan", "bagel", "bagel_cfg3", "--gpus", "3x141GB") == 0
    shown = capsys.readouterr().out
    assert "rank 2  cuda:2" in shown
    assert "runs on the devices" in shown
    assert "crossing_loop" not in shown, "its values go from GPU to GPU"
    assert walkgraph("plan", "bagel", "bagel_cfg3", "--gpus", "3x24GB") == 1
    assert walkgraph("plan", "bagel", "bagel_cfg3", "--gpus", "2x141GB") == 1
    assert walkgraph("plan", "bagel", "--gpus", "lots") == 2


def test_plan_prints_ranks_and_bytes(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("plan", "synthetic_loops", "synthetic_loops_two_ranks") == 0
    assert "rank 1" in capsys.readouterr().out
    assert walkgraph("plan", "synthetic_loops", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["deployable"]
    assert found["plan"]["ranks"][0]["rank"] == 0


def test_components_and_schemas_are_printed(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("components") == 0
    assert "bagel.backbone" in capsys.readouterr().out
    assert walkgraph("components", "media.picture_resize") == 0
    assert "Four pixels of one colour become one." in capsys.readouterr().out
    assert walkgraph("components", "bagel.backbone") == 0
    assert "latents" in capsys.readouterr().out
    assert walkgraph("components", "bagel.backbon") == 1
    assert "did you mean `bagel.backbone`" in capsys.readouterr().err
    assert walkgraph("schema", "placement") == 0
    assert json.loads(capsys.readouterr().out)["$id"].startswith("urn:")


def test_doctor_finds_what_is_here(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("doctor", "--json") == 0
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["python"]["level"] == "ok"
    assert "walkgraph up" in found["service"]["detail"]


def test_hardware_is_listed(walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("hardware") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("cpu ")
    assert walkgraph("hardware", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["devices"][0]["name"] == "cpu"
    assert found.keys() == {"host", "devices", "nodes", "links"}


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    code = "import sys\nfrom walkgraph.cli.main import build\nbuild()\nprint(sorted(sys.modules))"
    command = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer = command()
    assert fastest(command, 3) < 3
    heavy_ones = "torch fastapi sqlmodel streamlit pydantic httpx zmq numpy rich matplotlib asyncio importlib.metadata"
    for heavy in heavy_ones.split():
        assert f"'{heavy}'" not in answer.stdout, heavy


# ── with one ────────────────────────────────────────────────────────────────────────────────────


def test_status_shows_deployments(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("status") == 0
    told = capsys.readouterr().out
    assert "0 cpu ready" in told
    assert walkgraph("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["deployments"] == [SHAPES]
    coming = {"state": "failed", "reason": "no weights", "ranks": []}
    service.answers["GET", "/api/v1/deployments"] = httpx.Response(200, json=[{**SHAPES, "next": coming}])
    assert walkgraph("status") == 0
    assert "shapes: its new version is failed: no weights" in capsys.readouterr().out
    lost = {"status": "not ready", "detail": "the database file was removed"}
    service.answers["GET", "/health/ready"] = httpx.Response(503, json=lost)
    assert walkgraph("status") == 0
    assert "not ready\nthe database file was removed\n" in capsys.readouterr().out


def test_deploy_waits_and_sends_what_a_file_holds(
    service: FakeService, walkgraph: Call, capsys: Output, tmp_path: Path
) -> None:
    assert walkgraph("deploy", "shapes", "--name", "two") == 0
    assert service.asked[0] == (
        "POST", "/api/v1/deployments", {"graph": "shapes", "placement": None, "name": "two"}
    )  # fmt: skip
    assert "shapes is ready" in capsys.readouterr().out
    (tmp_path / "g.json").write_text('{"name": "g"}')
    assert walkgraph("deploy", "g.json", "--no-wait", "--json") == 0
    assert service.asked[-1][2]["graph"] == {"name": "g"}


def test_deploying_over_a_deployment_offers_the_switch(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    taken = httpx.Response(409, json={"code": "conflict", "detail": "there is one already", "errors": []})
    service.answers["POST", "/api/v1/deployments"] = taken
    assert walkgraph("deploy", "shapes") == 1
    said = capsys.readouterr().err
    assert "`shapes` exists already" in said
    assert "--replace" in said


def test_a_switch_is_followed_to_its_end(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    coming = {"state": "starting", "reason": None, "ranks": [{**RANK, "state": "loading", "fraction": 0.5}]}
    service.answers["PUT", "/api/v1/deployments/shapes"] = httpx.Response(202, json={**SHAPES, "next": coming})
    assert walkgraph("deploy", "shapes", "--replace") == 0
    asked = [entry for entry in service.asked if entry[0] != "GET"]
    assert asked == [("PUT", "/api/v1/deployments/shapes", {"graph": "shapes", "placement": None})]
    assert walkgraph("deploy", "shapes", "--replace", "--no-wait") == 0
    assert "its new version is starting" in capsys.readouterr().out
    failed = {"state": "failed", "reason": "no weights", "ranks": []}
    shown = httpx.Response(200, json={**SHAPES, "next": failed})
    service.answers["GET", "/api/v1/deployments/shapes"] = shown
    assert walkgraph("deploy", "shapes", "--replace") == 1
    assert "the new version failed: no weights" in capsys.readouterr().out
    # One that isn't there yet is deployed.
    assert walkgraph("deploy", "other", "--replace", "--no-wait") == 0
    assert service.asked[-1][:2] == ("POST", "/api/v1/deployments")


def test_a_restart_is_followed_to_its_end(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    coming = {"state": "starting", "reason": None, "ranks": [{**RANK, "state": "loading", "fraction": 0.5}]}
    begun = httpx.Response(202, json={**SHAPES, "next": coming})
    service.answers["POST", "/api/v1/deployments/shapes/restart"] = begun
    assert walkgraph("restart", "shapes") == 0
    assert [entry[:2] for entry in service.asked if entry[0] != "GET"] == [
        ("POST", "/api/v1/deployments/shapes/restart")
    ]
    assert "shapes is ready\n" in capsys.readouterr().out
    assert walkgraph("restart", "shapes", "--no-wait") == 0
    assert "its new version is starting" in capsys.readouterr().out
    failed = {"state": "failed", "reason": "photo/__init__.py:3: no", "ranks": []}
    service.answers["GET", "/api/v1/deployments/shapes"] = httpx.Response(200, json={**SHAPES, "next": failed})
    assert walkgraph("restart", "shapes") == 1
    assert "the new version failed: photo/__init__.py:3: no" in capsys.readouterr().out


def test_a_refused_deployment_shows_its_problems(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    fault = {"pointer": "/graph/nodes/x", "code": "unknown_component", "message": "there is no component `x`"}
    answer = httpx.Response(422, json={"code": "invalid_input", "detail": "can't be deployed", "errors": [fault]})
    service.answers["POST", "/api/v1/deployments"] = answer
    assert walkgraph("deploy", "shapes") == 1
    assert "/graph/nodes/x: there is no component" in capsys.readouterr().err


def test_undeploy_and_open(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("undeploy", "shapes") == 0
    assert walkgraph("open", "--json") == 0
    assert "/studio/?code=c" in capsys.readouterr().out
    assert walkgraph("undeploy", "nothing") == 1


def test_run_sends_options_writes_files_and_tells_times(
    service: FakeService, walkgraph: Call, capsys: Output, tmp_path: Path
) -> None:
    (tmp_path / "in.png").write_bytes(PNG)
    words = (
        "--prompt",
        "a red circle",
        "--image=in.png",
        "--steps",
        "4",
        "--seed",
        "7",
        "-p",
        "fast=yes",
        "--mode",
        "b",
    )
    assert walkgraph("run", "shapes", "draw", *words, "-o", "out.png") == 0
    assert service.asked[-1][2] == {
        "inputs": {"prompt": ["a red circle"], "image": PICTURE["data"]},
        "params": {"steps": 4, "seed": 7, "fast": True, "mode": "b"},
        "stream": True,
    }
    assert (tmp_path / "out.png").read_bytes() == PNG
    told = capsys.readouterr()
    assert told.out == "a \\x1b[31mred circle\nwrote out.png\n"
    assert "llm" in told.err
    assert "50%" in told.err
    assert walkgraph("run", "shapes", "draw", "--prompt", "x", "-o", "all/", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["outputs"]["image"] == [{"type": "image", "mime": "image/png", "file": "all/image.png"}]
    assert (tmp_path / "all" / "preview.png").exists()
    assert walkgraph("run", "shapes", "draw", "--prompt", "x") == 0
    assert (tmp_path / "draw-7.png").exists()


def test_numbers_are_given_and_shown_as_words_and_a_film_is_one_file(
    service: FakeService, walkgraph: Call, capsys: Output, tmp_path: Path
) -> None:
    declared = {"modality": "state", "many": False, "optional": True, "description": ""}
    task = {**TASK, "inputs": {**TASK["inputs"], "state": declared}, "outputs": ["film", "off", "actions", "reached"]}
    service.answers["GET", "/v1/tasks/shapes/draw"] = httpx.Response(200, json=task)
    rows = {"type": "actions", "shape": [2, 2], "data": [[0.5, None], [-1.25, 3]]}
    came = [output("film", index, picture(index)) for index in range(3)]
    came += [output("off", index, {"type": "tensor", "shape": [1], "data": [index / 3]}) for index in range(2)]
    came += [
        output("actions", 0, rows),
        output("reached", 0, {"type": "flag", "value": True}),
        output("taken", 0, {"type": "scalar", "value": 1}),
    ]
    came = [("accepted", {"run": "r", "seed": 7}), *came]
    done = ("done", {"run": "r", "seconds": 0.5, "queued": 0.01, "times": TIMES})
    service.answers["POST", "/v1/tasks/shapes/draw"] = sse(*came, done)
    for given, numbers in (("0.1 -2", [0.1, -2]), ("0.1, -2", [0.1, -2]), ("[[1], [2]]", [[1], [2]])):
        assert walkgraph("run", "shapes", "draw", "--state", given, "-o", "film.gif") == 0
        assert service.asked[-1][2]["inputs"]["state"] == {"type": "state", "data": numbers}
        told = capsys.readouterr().out
    assert told.splitlines() == [
        "off: 0 0.3333",
        "actions:",
        "        0.5         -",
        "      -1.25         3",
        "reached: yes",
        "taken: 1",
        "wrote film.gif",
    ]
    with Image.open(tmp_path / "film.gif") as film:
        assert (getattr(film, "n_frames", 1), film.size) == (3, (4, 4))
    assert walkgraph("run", "shapes", "draw", "-o", "all/") == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["film-1.png", "film-2.png", "film.png"]
    assert walkgraph("run", "shapes", "draw", "--state", "no numbers") == 1
    assert "numbers as `0.1 0.2`" in capsys.readouterr().err


def test_a_run_says_which_loops_did_not_end_by_themselves(
    service: FakeService, walkgraph: Call, capsys: Output
) -> None:
    ends = [("decode", "answer", "stop"), ("speak", "frames", "derailed"), ("", "turns", "bound")]
    loops = [{"walk": walk, "loop": loop, "iterations": 4, "reason": reason} for walk, loop, reason in ends]
    usage = {"read": 3, "cached_tokens": 0, "loops": loops}
    done = ("done", {"run": "r", "seconds": 0.5, "queued": 0.01, "times": TIMES, "usage": usage})
    service.answers["POST", "/v1/tasks/shapes/draw"] = sse(("accepted", {"run": "r", "seed": 7}), done)
    assert walkgraph("run", "shapes", "draw") == 0
    told = capsys.readouterr().err.splitlines()
    assert told[1:4] == [
        "0.50 s, 10 ms of it queued; seed 7",
        "speak.frames: derailed after 4",
        "turns reached its limit of 4",
    ]


@pytest.mark.parametrize("words", [("--max-tokens", "4"), ("--max_tokens", "4"), ("--a-b", "4")])
def test_a_dash_may_stand_for_an_underscore(words: tuple[str, str]) -> None:
    """Unless a name has it."""
    params = {name: {**TASK["params"]["steps"]} for name in ("max_tokens", "a-b", "a_b")}
    body = request.build({**TASK, "params": params}, words, [])
    assert body["params"] == {"a-b" if words[0] == "--a-b" else "max_tokens": 4}


def picture(number: int) -> dict[str, str]:
    """Each of another grey."""
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (80 * number,) * 3).save(file, "PNG")
    return {"type": "image", "mime": "image/png", "data": base64.b64encode(file.getvalue()).decode()}


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("--promt", "x"), "did you mean `--prompt`"),
        (("--steps", "many"), "`--steps` takes a number"),
        (("--fast", "maybe"), "true or false"),
        (("--prompt",), "needs a value"),
        (("prompt",), "is not an option"),
        (("-p", "steps"), "name=value"),
        (("--image", "nowhere.png"), "is no file"),
        (("--image", "in.png", "--image", "in.png"), "takes one value"),
    ],
)
def test_a_wrong_request_is_explained_before_it_is_sent(
    service: FakeService, walkgraph: Call, capsys: Output, tmp_path: Path, words: tuple[str, ...], advice: str
) -> None:
    (tmp_path / "in.png").write_bytes(PNG)
    assert walkgraph("run", "shapes", "draw", *words) == 1
    assert advice in capsys.readouterr().err
    assert all(method == "GET" for method, _, _ in service.asked)


def test_a_failed_run_says_where_and_why(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    error = {"code": "worker_lost", "message": "rank 0 was lost", "node": "llm", "retryable": True}
    service.answers["POST", "/v1/tasks/shapes/draw"] = sse(
        ("accepted", {"run": "r", "seed": 7}),
        ("error", {"run": "r", "seconds": 0.5, "queued": 0.0, "times": [], "error": error}),
    )
    assert walkgraph("run", "shapes", "draw", "--prompt", "x") == 1
    assert "rank 0 was lost (node `llm`)" in capsys.readouterr().err


def test_run_shows_what_a_task_takes(service: FakeService, walkgraph: Call, capsys: Output) -> None:
    assert walkgraph("run", "shapes", "draw", "--inputs") == 0
    told = capsys.readouterr().out
    assert "--prompt" in told
    assert "2 to 200, default 20" in told


def test_up_names_the_program_as_a_shell_in_this_folder_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "walkgraph").write_text("#!/bin/sh\n")
    (programs / "walkgraph").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert up.program() == ".venv/bin/walkgraph"
    monkeypatch.chdir("/")
    assert up.program() == str(programs / "walkgraph").lstrip("/")
    monkeypatch.chdir(programs)
    assert up.program() == "walkgraph"
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.chdir(tmp_path)
    assert up.program() == "walkgraph"
