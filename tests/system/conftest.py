"""What several files of this tier share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import Running, started


@pytest.fixture(scope="session")
def documented(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The service that the code of README and documentation speaks with."""
    with started(repository, tmp_path_factory.mktemp("documented")) as running:
        yield running
