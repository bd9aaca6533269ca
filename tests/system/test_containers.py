"""The commands of the compose file make a cluster: its head, a host of workers, and a service that draws with both."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.support.containers import (
    Container,
    Containers,
    containers,
    far_shapes,
    until_serving,
    variables,
    without_tini,
)
from tests.support.namespaces import allowed, hosts
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
PLACED = ("head", "worker-1", "control-cluster")


@pytest.fixture
def composed(tmp_path: Path, repository: Path) -> Iterator[Containers]:
    described = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]
    with hosts(len(PLACED)) as made:
        found = {
            name: Container(host, without_tini(described[name]["entrypoint"]), described[name]["environment"])
            for name, host in zip(PLACED, made, strict=True)
        }
        yield containers(found, tmp_path, variables(repository, WALKGRAPH_DATABASE_URL="sqlite:////tmp/walkgraph.db"))


def test_containers_of_the_compose_file_draw_a_picture(composed: Containers, tmp_path: Path) -> None:
    with (
        composed.up("head"),
        composed.up("worker-1"),
        composed.up("control-cluster", "--no-deploy", "--json") as control,
    ):
        until_serving(control)
        while set(composed.hosts("control-cluster")) != set(PLACED):
            assert control.poll() is None
        composed.walkgraph("control-cluster", "deploy", "shapes", far_shapes("worker-1", tmp_path))
        assert composed.picture("control-cluster", tmp_path).startswith(b"\x89PNG")
