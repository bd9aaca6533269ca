"""Fixtures for several files of this tier. What they start ends with the last test of this folder in its process: until
the end of all tests, idle services would take as much CPU time as the quick tests of a package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.deployment import Standing
from tests.support.documents import Running, started
from tests.support.recording import Recording, threaded_recording
from tests.support.serving import Service, service


@pytest.fixture(scope="package")
def documented(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service that the code of README and documentation speaks with."""
    with started(repository, tmp_path_factory.mktemp("documented")) as running:
        yield running


@pytest.fixture(scope="package")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without a studio, for files that deploy with names of their own and take back what they deployed."""
    with service(tmp_path_factory.mktemp("plain") / "home", studio="false") as found:
        found.up("--no-deploy")
        yield found
        assert found.down() == 0


@pytest.fixture(scope="package")
def elsewhere() -> Iterator[Recording]:
    """A server that `outward` may call; a file adds answers at paths of its own."""
    with threaded_recording() as found:
        yield found


@pytest.fixture(scope="package")
def outward(tmp_path_factory: pytest.TempPathFactory, elsewhere: Recording) -> Iterator[Service]:
    """A service whose starter is ready, for files that deploy with names of their own and take back what they
    deployed."""
    home = tmp_path_factory.mktemp("outward") / "home"
    with service(home, studio="false", call_hosts=f'["{elsewhere.origin}"]') as found:
        found.up()
        found.wait_ready("shapes")
        yield found
        assert found.down() == 0


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def standing() -> AsyncIterator[Standing]:
    async with AsyncExitStack() as stack:
        yield Standing(stack)
