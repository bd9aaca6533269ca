"""Benchmarks that start a service run with the tiny models and two clients, and print their figures."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("memory", ["cancels", "overload", "service MiB", "slope", "conductor"]),
        ("rest", ["asked", "p99 ms", "service us", "streams", "worker share"]),
        ("language", ["ready", "first token median ms", "token median ms", "tokens/s"]),
        ("speech", ["ready", "first audio ms", "RTF", "underruns", "worker"]),
        ("omni", ["ready", "first text ms", "first audio ms", "RTF", "audio s/s", "floor", "talker", "code2wav"]),
        ("turns", ["llm/chat", "shapes/chat", "anew", "found", "first token ms", "ratio"]),
        ("telemetry", ["step ms", "summary", "full", "/ off", "events", "p99 beside ms", "MiB a reader"]),
    ],
)
def test_a_benchmark_of_a_service_can_be_run(
    name: str, told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--check"])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(word in printed for word in told), printed
