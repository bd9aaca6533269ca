"""`walkgraph secrets`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., int]
Output = pytest.CaptureFixture[str]
VALUE = "sk-0123456789"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_a_secret_is_set_listed_and_removed(
    home: Path, walkgraph: Call, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert walkgraph("secrets", "list") == 0
    assert "there is no secret" in capsys.readouterr().out
    typed(monkeypatch, f"{VALUE}\n")
    assert walkgraph("secrets", "set", "weather", "--host", "api.weather.example", "--host", "*.w.example") == 0
    assert (home / "secrets" / "weather").read_text() == f"{VALUE}\n"
    assert walkgraph("secrets", "list", "--json") == 0
    assert walkgraph("secrets", "list") == 0
    told = capsys.readouterr()
    assert VALUE not in told.out + told.err
    assert "https://api.weather.example, https://*.w.example" in told.out
    assert walkgraph("secrets", "remove", "weather") == 0
    assert not list((home / "secrets").iterdir())
    assert walkgraph("secrets", "remove", "weather") == 1


def test_the_list_is_json_for_programs(
    home: Path, walkgraph: Call, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    typed(monkeypatch, VALUE)
    assert walkgraph("secrets", "set", "a", "--host", "http://127.0.0.1:1") == 0
    capsys.readouterr()
    assert walkgraph("secrets", "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "a", "hosts": ["http://127.0.0.1:1"]}]


@pytest.mark.parametrize("text", ["", "short", f"{VALUE}\nsecond line\n", "x" * 20_000])
def test_what_is_no_secret_is_refused(
    home: Path, walkgraph: Call, monkeypatch: pytest.MonkeyPatch, capsys: Output, text: str
) -> None:
    typed(monkeypatch, text)
    assert walkgraph("secrets", "set", "a", "--host", "a.example") == 1
    assert not text or text not in capsys.readouterr().err
    assert not (home / "secrets").exists()


def test_its_servers_must_be_named(home: Path, walkgraph: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, VALUE)
    assert walkgraph("secrets", "set", "a") == 2
    assert walkgraph("secrets", "set", "a", "--host", "not a host") == 1


def test_the_folder_may_be_elsewhere(
    home: Path, tmp_path: Path, walkgraph: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALKGRAPH_SECRETS_DIR", str(tmp_path / "elsewhere"))
    typed(monkeypatch, VALUE)
    assert walkgraph("secrets", "set", "a", "--host", "a.example") == 0
    assert (tmp_path / "elsewhere" / "a").is_file()
