"""A client finds the service that it speaks with."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from tests.unit.client.service import Memory, blocking
from walkgraph.client import AsyncClient, Client, ClientError, ProblemError, Unreachable
from walkgraph.client.connection.reaching import verifying
from walkgraph.settings import Settings

TOKEN = "s" * 20


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path))
    return tmp_path


async def test_the_service_of_this_home_is_found(home: Path) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(Unreachable, match="walkgraph up"):
            kind.local()
    (home / "service.json").write_text(json.dumps({"pid": 1, "url": "http://127.0.0.1:8421"}))
    (home / "token").write_text(TOKEN + "\n")
    with Client.local() as client:
        assert (client.url, client.token) == ("http://127.0.0.1:8421", TOKEN)
    async with AsyncClient.local(Settings()) as other:
        assert other.url == "http://127.0.0.1:8421"


def test_another_service_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALKGRAPH_URL", "https://models.example/")
    with pytest.raises(Unreachable, match="WALKGRAPH_TOKEN"):
        Client.local()
    monkeypatch.setenv("WALKGRAPH_TOKEN", TOKEN)
    with Client.local() as client:
        assert (client.url, client.token) == ("https://models.example", TOKEN)
    for wrong in ("models.example", "file:///etc/passwd", "http://a/b", "http://a?b"):
        with pytest.raises(ValidationError):
            Settings(url=wrong)


def test_what_can_not_get_ready_is_told() -> None:
    def states(*found: str) -> Memory:
        rows = [{"id": "d", "state": state, "reason": "no room", "revision": k} for k, state in enumerate(found)]
        return Memory([httpx.Response(200, json=row) for row in rows])

    with blocking(states("starting", "loading", "ready")) as client:
        assert client.wait_ready("d")["revision"] == 2
    with blocking(states("starting", "failed")) as client, pytest.raises(ClientError, match="is failed: no room"):
        client.wait_ready("d")
    with blocking(Memory([httpx.Response(404, json={"detail": "gone"})])) as client, pytest.raises(ProblemError):
        client.wait_ready("d")


def test_authorities_are_those_given_and_none_without_tls() -> None:
    given = ssl.create_default_context()
    assert verifying("https://models.example", given) is given
    nobody = verifying("http://127.0.0.1:8421", None)
    assert (nobody.get_ca_certs(), nobody.verify_mode, nobody.check_hostname) == ([], ssl.CERT_REQUIRED, True)
