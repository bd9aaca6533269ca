"""The command line as a function, and the service that it calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.fake_service import FakeService
from walkgraph.cli import main as cli
from walkgraph.client import Client
from walkgraph.settings import Settings


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeService:
    fake = FakeService()
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def local(_settings: Settings) -> Client:
        return Client("http://127.0.0.1:1", "token", transport=httpx.MockTransport(fake))

    monkeypatch.setattr(Client, "local", local)
    return fake


@pytest.fixture
def walkgraph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))

    def call(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["walkgraph", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0)

    return call
