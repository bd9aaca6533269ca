"""The operator sees the service's settings with their meaning, and no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.service.environment import environment_of, meanings, without_secrets
from walkgraph.settings import Settings


def test_every_setting_has_a_meaning() -> None:
    assert [name for name in Settings.model_fields if not meanings().get(name)] == []
    assert meanings()["port"] == "Port to listen on; 0 takes a free one."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ("/a/path:with@signs", "/a/path:with@signs"),
        ("http://localhost:4318", "http://localhost:4318"),
        ("postgresql://me:pa@ss/w:rd@db/walkgraph", "postgresql://me:…@db/walkgraph"),
        ("postgresql://db/x?sslpassword=hush&sslmode=on", "postgresql://db/x?sslpassword=…&sslmode=…"),
        ("https://user@host", "https://user@host"),
    ],
)
def test_urls_are_shown_without_their_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


def test_no_secret_is_told(tmp_path: Path) -> None:
    hushed = "hush-hush-hush-hush"
    settings = Settings(
        home=tmp_path,
        token=hushed,  # type: ignore[arg-type]
        otlp_headers=f"authorization={hushed}",  # type: ignore[arg-type]
        otlp_endpoint=f"http://me:{hushed}@localhost:4318",
        database_url=f"postgresql://me:{hushed}@localhost/x",
        call_hosts=("api.example", "*.acme.example"),
        plugins=("nobody.knows",),
    )
    told = environment_of(settings, "1.2.3")
    assert hushed not in repr(told)
    rows = {row["name"]: row for row in told["settings"]}
    token = rows["WALKGRAPH_TOKEN"]
    assert (token["value"], token["secret"], token["source"]) == ("", True, "set")
    assert rows["WALKGRAPH_CALL_HOSTS"]["value"] == "api.example, *.acme.example"
    assert (rows["WALKGRAPH_STUDIO"]["value"], rows["WALKGRAPH_STUDIO"]["source"]) == ("true", "default")
    assert told["hosts"] == ["api.example", "*.acme.example"]
    assert told["plugins"] == [{"name": "nobody.knows", "installed": False}]
    assert told["version"] == "1.2.3"
    assert "WALKGRAPH_FAULT" not in rows


async def test_only_the_operator_sees_them(settings: Settings) -> None:
    async with serving(settings, FakeFleet()) as service:
        answer = await service.http.get("/api/v1/settings")
        assert answer.status_code == 200
        home = next(row for row in answer.json()["settings"] if row["name"] == "WALKGRAPH_HOME")
        assert (home["value"], home["source"]) == (str(settings.home), "set")
        for scope, status in (("infer", 403), ("read", 403), ("deploy", 403), ("admin", 200)):
            assert (
                await service.anybody.get("/api/v1/settings", headers=await key(service, scope))
            ).status_code == status


async def key(service: Running, scope: str) -> dict[str, str]:
    made = await service.http.post("/api/v1/keys", json={"name": scope, "scopes": [scope]})
    return {"Authorization": f"Bearer {made.json()['secret']}"}
