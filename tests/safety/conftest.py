"""A service with two deployments, shared by the tests of several rows; each test leaves it unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.serving import Service, service

DEPLOYED = ("synthetic_states", "synthetic_loops")


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("safety") / "home", studio="false") as found:
        found.up("--no-deploy")
        with found.client() as client:
            for name in DEPLOYED:
                client.deploy(name)
        for name in DEPLOYED:
            found.wait_ready(name)
        yield found
