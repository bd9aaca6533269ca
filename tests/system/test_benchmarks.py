"""Benchmarks that start a service run with the tiny models and two clients, and print their figures."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHARING = ("rest", "values", "language", "speech", "omni", "turns", "telemetry", "robots")
"""These are run in one service, in which nothing is deployed before and after each; the others start their own."""


class Shared(NamedTuple):
    home: Path
    server: Any

    @contextmanager
    def service(self, folder: Path, *, starter: bool, **patience: str) -> Iterator[Any]:
        """In place of the benchmarks' own. `patience`: how long large models may load."""
        assert folder == self.home
        assert patience.keys() <= {"WALKGRAPH_START_TIMEOUT"}
        if starter:
            self.server.client.deploy("shapes")
            self.server.client.wait_ready("shapes")
        yield self.server
        for one in self.server.client.deployments():
            self.server.client.undeploy(one["id"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(FOLDER))
        home = tmp_path_factory.mktemp("benchmarks")
        with importlib.import_module("_service").service(home, starter=False) as server:
            yield Shared(home, server)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("memory", ["cancels", "overload", "service MiB", "slope", "conductor"]),
        ("rest", ["asked", "p99 ms", "service us", "streams", "worker share"]),
        (
            "values",
            ["alone", "frames", "ratio", "WebSocket frames", "service ms/MiB", "p99 / p50", "rise MiB", "holds MiB"],
        ),
        ("language", ["ready", "first token median ms", "token median ms", "tokens/s"]),
        ("speech", ["ready", "first audio ms", "RTF", "underruns", "worker"]),
        ("omni", ["ready", "first text ms", "first audio ms", "RTF", "audio s/s", "floor", "talker", "code2wav"]),
        ("turns", ["llm/chat", "shapes/chat", "anew", "found", "first token ms", "ratio"]),
        (
            "robots --cases act act_sdk encode encode_json --timeline",
            [
                "ready",
                "act_sdk",
                "encode_json",
                "median ms",
                "client CPU ms",
                "loop ms",
                "encoder ms",
                "client: has it",
            ],
        ),
        ("telemetry", ["step ms", "summary", "full", "/ off", "events", "p99 beside ms", "MiB a reader"]),
    ],
)
def test_a_benchmark_of_a_service_can_be_run(
    words: str,
    told: list[str],
    shared: Shared,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *more = words.split()
    monkeypatch.syspath_prepend(str(FOLDER))
    if name in SHARING:
        monkeypatch.setattr("_service.home", lambda: nullcontext(shared.home))
        monkeypatch.setattr("_service.service", shared.service)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--check", *more])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(word in printed for word in told), printed
