"""The database is removed, or replaced, under a running service: it says so, and acknowledges nothing more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.service.conftest import Running
from walkgraph.settings import Settings

DRAW = {"inputs": {"prompt": "a red circle"}}


@pytest.fixture
def database(settings: Settings) -> Path:
    return settings.home / "walkgraph.db"


def move(path: Path, name: str) -> Path:
    return path.rename(path.with_name(name))


def put(path: Path, name: str) -> Path:
    """A copy of it beside it."""
    path.with_name(name).write_bytes(path.read_bytes())
    return path.with_name(name)


def there(database: Path) -> set[str]:
    return {path.name for path in database.parent.glob("*.db")}


async def save(service: Running, name: str) -> int:
    return (await service.http.put(f"/api/v1/graphs/{name}", json={"nodes": {}})).status_code


async def test_writes_are_refused_and_readiness_says_why(service: Running, database: Path) -> None:
    await service.deploy()
    assert await save(service, "before") == 200
    move(database, "away.db")

    answer = await service.http.put("/api/v1/graphs/after", json={"nodes": {}})
    told = answer.json()
    assert answer.status_code == 507
    assert (told["code"], told["retryable"]) == ("storage_lost", False)
    assert told["type"] == "urn:walkgraph:problem:storage-lost"
    assert "restart the service" in told["detail"]
    assert str(database.parent) not in answer.text

    ready = await service.anybody.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json() == {"status": "not ready", "detail": told["detail"]}
    assert (await service.anybody.get("/v2/health/ready")).status_code == 503
    assert there(database) == {"away.db"}, "no empty file takes its place"


async def test_what_was_there_is_read_and_what_serves_goes_on(service: Running, database: Path) -> None:
    await service.deploy()
    await save(service, "before")
    move(database, "away.db")
    found = await asyncio.gather(*(service.http.get("/api/v1/graphs/before") for _ in range(20)))
    assert {answer.status_code for answer in found} == {200}
    run = await service.http.post("/v1/tasks/shapes/text_to_image", json=DRAW)
    assert run.status_code == 200
    assert (await service.anybody.get("/health/ready?deployment=shapes")).status_code == 200
    # A change that couldn't be recorded is none.
    assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 507
    assert (await service.http.get("/api/v1/deployments/shapes")).json()["state"] == "ready"


async def test_it_is_well_again_once_the_file_is_back(service: Running, database: Path) -> None:
    away = move(database, "away.db")
    assert await save(service, "lost") == 507
    move(away, database.name)
    assert (await service.anybody.get("/health/ready")).json() == {"status": "ready"}
    assert await save(service, "after") == 200
    assert (await service.http.get("/api/v1/graphs/lost")).status_code == 404


async def test_another_file_is_refused_until_a_restart(service: Running, database: Path) -> None:
    move(put(database, "other.db"), database.name)
    assert await save(service, "after") == 507
    assert "was replaced" in (await service.anybody.get("/health/ready")).json()["detail"]
    assert await save(service, "again") == 507
