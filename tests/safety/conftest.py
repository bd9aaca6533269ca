"""A service with two deployments, shared by the tests of several rows; each test leaves it unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.safety.plugin import Scale
from tests.support.serving import Service, service

DEPLOYED = ("synthetic_states", "synthetic_loops")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, scale: Scale) -> Iterator[Service]:
    # Figures are those of the product as it comes: with spare workers.
    spare = "true" if scale.long else "false"
    with service(tmp_path_factory.mktemp("safety") / "home", studio="false", spare_workers=spare) as found:
        found.up("--no-deploy")
        with found.client() as client:
            for name in DEPLOYED:
                client.deploy(name)
        for name in DEPLOYED:
            found.wait_ready(name)
        yield found
