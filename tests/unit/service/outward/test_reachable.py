"""Warnings about servers that aren't listed, and secrets that aren't there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from tests.unit.service.outward.test_serving import graph
from walkgraph.components import catalogue
from walkgraph.graph.check import check
from walkgraph.service.outward.reachable import unreachable
from walkgraph.service.outward.vault import Vault
from walkgraph.settings import Settings


def found(settings: Settings, url: str = "https://a.example/x", **params: Any) -> list[tuple[str, str, str]]:
    read = check(graph(url, **params), catalogue()).graph
    assert read is not None
    return [(one.code, one.pointer, one.severity) for one in unreachable(read, catalogue(), settings)]


def test_a_server_that_is_not_listed_is_a_warning(tmp_path: Path) -> None:
    place = "/nodes/fetch/params/url"
    assert found(Settings(home=tmp_path)) == [("server_not_listed", place, "warning")]
    assert found(Settings(home=tmp_path, call_hosts=("a.example",))) == []
    assert found(Settings(home=tmp_path), "=header") == [], "what a client sends shows later"
    assert found(Settings(home=tmp_path), "no URL") == [], "another problem"


def test_a_secret_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, call_hosts=("a.example",))
    headers = "Authorization: Bearer secret:weather\nX-Key: secret:weather"
    assert found(settings, headers=headers) == [("no_secret", "/nodes/fetch/params/headers", "warning")]
    Vault(settings.secrets_folder).set("weather", "sk-0123456789", ["a.example"])
    assert found(settings, headers=headers) == []


async def test_the_service_tells_them_with_the_other_problems(service: Running) -> None:
    answer = await service.http.post("/api/v1/graphs/check", json=graph("https://a.example"))
    told = answer.json()
    assert told["ok"]
    assert "server_not_listed" in [one["code"] for one in told["problems"]]


@pytest.mark.parametrize("document", [{}, {"format": "walkgraph/graph@1", "name": "x"}])
async def test_other_documents_are_checked_as_before(service: Running, document: Any) -> None:
    answer = await service.http.post("/api/v1/graphs/check", json=document)
    assert answer.status_code == 200
    assert "server_not_listed" not in answer.text
