"""The folder of a deployment on another host: its ranks share it, and nobody else's is touched or left behind."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from tests.support.deployment import plan_named
from walkgraph.cluster.host_folder import entered, folder_of
from walkgraph.errors import InvalidInput
from walkgraph.wire.processes.host_network import HostNetwork, make_keys
from walkgraph.wire.spec import DeploymentSpec


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def spec(network: HostNetwork | None) -> DeploymentSpec:
    return DeploymentSpec(name="s", graph={}, plan=plan_named("synthetic_loops")[1], network=network)


def test_each_deployment_has_one_of_its_own() -> None:
    one, other = (spec(HostNetwork({}, make_keys())) for _ in range(2))
    assert folder_of(one) == folder_of(one) != folder_of(other)
    with pytest.raises(InvalidInput, match="several hosts"):
        folder_of(spec(None))


def test_it_is_its_owners_alone_and_ranks_share_it() -> None:
    folder = folder_of(spec(HostNetwork({}, make_keys())))
    locks = [entered(folder), entered(folder)]
    assert [stat.S_IMODE(one.stat().st_mode) for one in (folder, folder.parent)] == [0o700] * 2
    for lock in locks:
        os.close(lock)


def test_what_nobody_holds_is_removed_with_the_next_one() -> None:
    used, left, new = (folder_of(spec(HostNetwork({}, make_keys()))) for _ in range(3))
    held = entered(used)
    os.close(entered(left))
    (left / "rank0.1").touch()
    (used / "rank0.1").touch()
    assert left.exists(), "it goes with the next one"
    lock = entered(new)
    assert [one.exists() for one in (used, left, new)] == [True, False, True]
    assert (used / "rank0.1").exists()
    for file in (held, lock):
        os.close(file)


def test_a_link_in_its_place_is_refused(temporary: Path) -> None:
    folder = folder_of(spec(HostNetwork({}, make_keys())))
    (temporary / "elsewhere").mkdir()
    folder.parent.symlink_to(temporary / "elsewhere")
    with pytest.raises(InvalidInput, match="belongs to another user"):
        entered(folder)
