"""Fixtures for several files of this tier."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.deployment import Standing
from tests.support.documents import Running, started


@pytest.fixture(scope="session")
def documented(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service that the code of README and documentation speaks with."""
    with started(repository, tmp_path_factory.mktemp("documented")) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def standing() -> AsyncIterator[Standing]:
    async with AsyncExitStack() as stack:
        yield Standing(stack)
