"""Completion through the protocol that shells speak, and how far a deployment is, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from tests.support.fake_service import SHAPES, FakeService
from tests.support.yardstick import patience
from walkgraph.cli import completing
from walkgraph.cli.main import build
from walkgraph.cli.show import progress
from walkgraph.settings import Settings, only_one, prepare_home

Call = Callable[..., int]
SHELLS = ("bash", "zsh", "fish")
PROGRAM = (sys.executable, "-c", "import sys; sys.argv = ['walkgraph']; from walkgraph.cli.main import main; main()")


def completed(shell: str, line: str, home: Path) -> str:
    """The completions that a shell gets for the line before the cursor."""
    words = line.split(" ")
    told = {"bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}}
    environment = {
        **os.environ, "WALKGRAPH_HOME": str(home), "_WALKGRAPH_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args", **told.get(shell, {}),
    }  # fmt: skip
    answer = subprocess.run(PROGRAM, env=environment, capture_output=True, text=True, check=False)
    assert answer.stderr == ""
    return answer.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_told_verbs_and_names_without_a_service(shell: str, tmp_path: Path) -> None:
    assert "undeploy" in completed(shell, "walkgraph un", tmp_path)
    told = completed(shell, "walkgraph deploy sha", tmp_path)
    assert "shapes" in told
    assert "world" not in told


def test_names_of_a_service_that_is_not_there_are_none_at_once(tmp_path: Path) -> None:
    assert completed("bash", "walkgraph undeploy ", tmp_path).strip() == ""
    assert completed("bash", "walkgraph run shapes ", tmp_path).strip() == ""


def test_names_come_from_the_service(monkeypatch: pytest.MonkeyPatch, service: FakeService) -> None:
    settings = Settings()
    prepare_home(settings)
    service.answers |= {
        ("GET", "/v1/tasks/shapes"): httpx.Response(200, json=[{"name": "draw"}, {"name": "describe"}]),
        ("GET", "/api/v1/runs"): httpx.Response(200, json=[{"id": "ab" * 16}]),
        ("GET", "/api/v1/graphs"): httpx.Response(200, json=[{"name": "mine"}]),
        ("GET", "/api/v1/placements"): httpx.Response(200, json={"not": "a list of documents"}),
    }
    context: Any = type("Context", (), {"params": {"deployment": "shapes"}})()
    assert completing.deployments("") == [], "nobody holds the home"
    with only_one(settings):
        assert completing.deployments("sh") == ["shapes"]
        assert completing.deployments("x") == []
        assert completing.tasks(context, "d") == ["draw", "describe"]
        assert completing.runs("") == ["last", "ab" * 16]
        assert "mine" in completing.graphs("m")
        assert completing.placements("shapes_one") == ["shapes_one_cpu", "shapes_one_gpu"], (
            "what is wrong is passed over"
        )
        service.answers["GET", "/api/v1/deployments"] = lambda _: time.sleep(5) or httpx.Response(200, json=[])
        monkeypatch.setattr(completing, "PATIENCE", 0.1)
        began = time.monotonic()
        assert completing.deployments("") == []
        assert time.monotonic() - began < patience(2), "a shell doesn't wait for a service that doesn't answer"


def test_files_are_offered_beside_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("mine.json", "mine.txt", "sub/deep.json"):
        (tmp_path / name).touch()
    assert completing.graphs_here("mi") == ["mine.json"]
    assert completing.graphs_here("su") == ["sub/"]
    assert completing.graphs_here("sub/d") == ["sub/deep.json"]
    assert completing.graphs_here("nowhere/x") == []


def test_the_script_for_a_shell_is_printed(walkgraph: Call, capsys: pytest.CaptureFixture[str]) -> None:
    found: Any = typer.main.get_command(build())
    names = {option for param in found.params for option in param.opts}
    assert {"--install-completion", "--show-completion", "--version"} <= names
    assert walkgraph("--version") == 0
    assert capsys.readouterr().out.strip().count(".") == 2


# ── how far a deployment is ─────────────────────────────────────────────────────────────────────


def rank(number: int, state: str, phase: str = "", fraction: float = 0.0) -> dict[str, Any]:
    return {"rank": number, "device": f"cuda:{number}", "state": state, "phase": phase, "fraction": fraction}


STEPS = [
    [rank(0, "starting"), rank(1, "starting")],
    [rank(0, "loading", "load", 0.31), rank(1, "starting")],
    [rank(0, "loading", "load", 0.32), rank(1, "starting")],
    [rank(0, "loading", "load", 1.0), rank(1, "loading", "load", 0.5)],
    [rank(0, "warming", "capture", 0.5), rank(1, "warming", "warm", 0.5)],
    [rank(0, "ready", "", 1.0), rank(1, "ready", "", 1.0)],
]


def test_a_pipe_gets_a_line_for_every_change(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown() as shown:
        for ranks in STEPS:
            shown.take({"ranks": ranks})
    told = capsys.readouterr().err.splitlines()
    assert "rank 0 cuda:0: weights 31%" in told
    assert "rank 0 cuda:0: weights 32%" not in told, "a line is worth a tenth"
    assert "rank 1 cuda:1: kernels and warm-up 50%" in told
    assert told[-1] == "rank 1 cuda:1: ready"
    assert "\x1b" not in "".join(told)


def test_a_terminal_gets_a_bar_for_each_rank_and_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with progress.shown() as shown:
        assert isinstance(shown, progress.Bars)
        for ranks in STEPS:
            shown.take({"next": {"ranks": ranks}, "ranks": []})
    last = screen.getvalue().rsplit("\x1b[2K", 1)[-1]
    for words in ("rank 0 cuda:0: weights", "rank 0 cuda:0: capture", "rank 1 cuda:1: kernels and warm-up"):
        assert words in last
    assert last.count("100%") == 6, "those of phases that are over are full"


def test_who_stops_waiting_is_told_what_goes_on(
    service: FakeService,
    walkgraph: Call,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(_request: httpx.Request) -> httpx.Response:
        raise KeyboardInterrupt

    service.answers["GET", "/api/v1/deployments/shapes"] = interrupt
    assert walkgraph("deploy", "shapes") == 130
    assert "`walkgraph undeploy shapes` stops it" in capsys.readouterr().err


# ── small verbs ─────────────────────────────────────────────────────────────────────────────────


def test_the_token_is_printed_where_there_is_one(walkgraph: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert walkgraph("token") == 1
    assert "the first `walkgraph up` makes one" in capsys.readouterr().err
    settings = Settings()
    prepare_home(settings)
    settings.token_file.write_text("a-token\n")
    assert walkgraph("token") == 0
    assert capsys.readouterr().out == "a-token\n"


def test_logs_are_shown_without_what_moves_the_cursor(
    walkgraph: Call,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert walkgraph("logs") == 1
    assert "--detach" in capsys.readouterr().err
    settings = Settings()
    prepare_home(settings)
    (settings.home / "service.log").write_text("".join(f'{{"n": {n}}}\n' for n in range(9)) + "plain \x1b[2J\n")
    assert walkgraph("logs", "-n", "2", "-f") == 0
    told = capsys.readouterr()
    assert told.out == '{"n": 8}\nplain \\x1b[2J\n'
    assert "no service is running" in told.err
    assert walkgraph("logs", "--json", "-n", "2") == 0
    assert capsys.readouterr().out == '{"n": 8}\n'


def test_versions_are_told(walkgraph: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert walkgraph("version") == 0
    assert "torch" in capsys.readouterr().out


def test_every_verb_answers_in_json() -> None:
    found: Any = typer.main.get_command(build())
    for name, verb in found.commands.items():
        if name == "schema":
            continue  # It prints nothing else.
        each = [verb, *getattr(verb, "commands", {}).values()]
        options = {option for one in each for param in one.params for option in param.opts}
        assert "--json" in options, name


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_asks_for_what_is_answered(shell: str, tmp_path: Path) -> None:
    environment = {**os.environ, "WALKGRAPH_HOME": str(tmp_path), "_WALKGRAPH_COMPLETE": f"source_{shell}"}
    program = "import sys; sys.argv = ['walkgraph']; from walkgraph.cli.main import main; main()"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert f"complete_{shell}" in answer.stdout


def test_the_help_lists_every_verb_in_a_section(walkgraph: Call, capsys: pytest.CaptureFixture[str]) -> None:
    assert walkgraph("--help") == 0
    told = capsys.readouterr().out
    for word in ("Service:", "Graphs:", "Deployments:", "Runs:"):
        assert word in told
    verbs = "up down status doctor validate plan deploy undeploy run trace bench schema components export import"
    for verb in verbs.split():
        assert f"\n  {verb} " in told, verb


def test_examples_in_the_help_keep_their_lines() -> None:
    found: Any = typer.main.get_command(build())
    for name, verb in found.commands.items():
        for each in (verb, *getattr(verb, "commands", {}).values()):
            assert "\\" not in each.help, f"{name}: a mark of click is written out"


def test_what_the_service_has_is_listed(
    service: FakeService, walkgraph: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"id": "ab" * 16, "deployment": "shapes", "task": "draw", "state": "done", "created_at": 0.0, "seconds": None}
    task = {"deployment": "shapes", "name": "draw", "inputs": {"prompt": {}}, "outputs": ["image"]}
    service.answers |= {
        ("GET", "/api/v1/deployments"): httpx.Response(200, json=[{**SHAPES, "placement": "default"}]),
        ("GET", "/v1/tasks"): httpx.Response(200, json=[task]),
        ("GET", "/api/v1/runs"): httpx.Response(200, json=[run]),
        ("GET", "/api/v1/graphs"): httpx.Response(200, json=[{"name": "mine", "bundled": False, "tags": ["a", "b"]}]),
    }
    for what, said in (("deployments", "default"), ("tasks", "prompt"), ("runs", "ab" * 16), ("graphs", "a, b")):
        assert walkgraph("ls", what) == 0
        assert said in capsys.readouterr().out
    assert walkgraph("ls", "runs", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [run]
    assert walkgraph("ls", "graphs", "-d", "shapes") == 2
