"""Fixtures for several files of this tier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.deployment import Standing
from tests.support.documents import Running, started
from tests.support.serving import Service, service


@pytest.fixture(scope="session")
def documented(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service that the code of README and documentation speaks with."""
    with started(repository, tmp_path_factory.mktemp("documented")) as running:
        yield running


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without a studio, for files that deploy with names of their own and take back what they deployed."""
    with service(tmp_path_factory.mktemp("plain") / "home", studio="false") as found:
        found.up("--no-deploy")
        yield found
        assert found.down() == 0


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def standing() -> AsyncIterator[Standing]:
    async with AsyncExitStack() as stack:
        yield Standing(stack)
