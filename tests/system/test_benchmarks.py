"""The benchmark of speech runs: a service, a deployment of the tiny models, two clients."""

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_the_benchmark_of_speech_can_be_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", ["speech.py", "--check"])
    runpy.run_path(str(FOLDER / "speech.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ready", "first audio ms", "RTF", "underruns", "worker")), printed
