"""The service behind its access middleware, with deployments that answer at once and a client that knows the token."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from tests.unit.service.fakes import FakeFleet
from walkgraph.service.app import create_app
from walkgraph.service.deployments.judging import FindHosts, this_machine
from walkgraph.service.deps import Services
from walkgraph.settings import Settings
from walkgraph.store.session import Store

TOKEN = "t" * 32
BASE = "http://127.0.0.1:8421"


@dataclass
class Running:
    app: Any
    services: Services
    fleet: FakeFleet
    http: httpx.AsyncClient
    """Knows the token."""
    anybody: httpx.AsyncClient
    """Knows nothing."""

    async def deploy(self, graph: str = "shapes", placement: str = "shapes_one_cpu") -> None:
        answer = await self.http.post("/api/v1/deployments", json={"graph": graph, "placement": placement})
        assert answer.status_code == 202, answer.text
        await self.settled(graph)

    async def settled(self, deployment: str) -> None:
        """Until its process was started."""
        managed = self.services.deployments.get(deployment)
        while managed.state == "starting":
            await managed.changed.wait()


@contextmanager
def quiet() -> Generator[None]:
    """Only warnings are logged."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _quiet() -> Generator[None]:
    with quiet():
        yield


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once: each test gets a copy."""
    path = tmp_path_factory.mktemp("store") / "empty.db"
    Store.open(f"sqlite:///{path}").close()
    return path


@cache
def read_settings() -> Settings:
    """Read once: to look for all settings in the environment takes a third of what a service here takes to start."""
    return Settings(studio=False)


@pytest.fixture
def settings(tmp_path: Path, empty_database: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "walkgraph.db").write_bytes(empty_database.read_bytes())
    return read_settings().model_copy(update={"home": home})


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Running]:
    async with serving(settings, FakeFleet()) as running:
        yield running


@asynccontextmanager
async def serving(settings: Settings, fleet: FakeFleet, hosts: FindHosts = this_machine) -> AsyncGenerator[Running]:
    store = Store.open(settings.database)
    app = create_app(settings, token=TOKEN, store=store, spawn=fleet, hosts=hosts)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with (
            httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http,
            httpx.AsyncClient(transport=transport, base_url=BASE) as anybody,
        ):
            yield Running(app, app.state.services, fleet, http, anybody)
    store.close()
