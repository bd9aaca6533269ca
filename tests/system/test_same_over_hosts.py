"""Graphs with ranks on several hosts of a Ray cluster give the bytes that they give on one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.namespaces import allowed, hosts
from tests.support.ray_hosts import ray_cluster
from tests.support.same_over_hosts import CASES
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="`ray` is not installed"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]


def test_answers_of_several_hosts_are_those_of_one(tmp_path: Path) -> None:
    with hosts(3) as made, ray_cluster(*made) as ray:
        home, names = str(tmp_path / "home"), [host.name for host in made]
        told = subprocess.run(
            made[0].command(sys.executable, "-m", "tests.support.same_over_hosts", home, *names),
            env={**ray.environment, "WALKGRAPH_BACKEND": "ray", "WALKGRAPH_RAY_ADDRESS": ray.address},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
    found = json.loads(told)
    assert {name: far for name, (far, _) in found.items()} == {name: near for name, (_, near) in found.items()}
    assert found.keys() == CASES.keys()
