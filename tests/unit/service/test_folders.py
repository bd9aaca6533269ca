"""Folders of deployments go with them, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.service.conftest import Running, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.service.deployments.folders import Folders
from walkgraph.settings import Settings


def filled(path: Path) -> Path:
    """As a process leaves it."""
    (path / "inner").mkdir(parents=True)
    for name in ("spec.json", "deployment.log", "inner/socket"):
        (path / name).write_text("x")
    return path


def there(home: Path) -> set[str]:
    return {path.name for path in (home / "d").iterdir()}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_versions_have_folders_of_their_own(folders: Folders, tmp_path: Path) -> None:
    first = folders.free("a", ())
    second = folders.free("a", {first})
    assert folders.free("a", {second}) == first
    assert len({first, second, folders.free("b", ())}) == 3
    assert {path.parent for path in (first, second)} == {tmp_path / "d"}


def test_a_deployments_folders_are_removed_and_no_others(folders: Folders, tmp_path: Path) -> None:
    first = filled(folders.free("a", ()))
    filled(folders.free("a", {first}))
    other = filled(folders.free("b", ()))
    folders.remove("a")
    folders.remove("never there")
    assert there(tmp_path) == {other.name}
    assert (other / "inner" / "socket").exists()


def test_what_nobody_wants_is_swept_away(folders: Folders, tmp_path: Path) -> None:
    kept = filled(folders.free("a", ()))
    filled(folders.free("b", ()))
    telemetry = tmp_path / "d" / "telemetry"
    telemetry.write_text("")
    mine = filled(tmp_path / "d" / "notes of mine")
    folders.sweep(["a"])
    assert there(tmp_path) == {kept.name, telemetry.name, mine.name}
    folders.sweep([])
    assert there(tmp_path) == {telemetry.name, mine.name}


def test_links_are_not_followed(folders: Folders, tmp_path: Path) -> None:
    outside = filled(tmp_path / "outside")
    place = folders.free("a", ())
    place.parent.mkdir()
    place.symlink_to(outside)
    inside = filled(folders.free("b", ()))
    (inside / "link").symlink_to(outside)
    folders.remove("a")
    folders.remove("b")
    folders.sweep([])
    assert {path.name for path in outside.iterdir()} == {"spec.json", "deployment.log", "inner"}
    assert there(tmp_path) == {place.name}


def test_a_home_without_deployments_has_nothing_to_sweep(folders: Folders, tmp_path: Path) -> None:
    folders.sweep([])
    assert list(tmp_path.iterdir()) == []


async def test_deleting_a_deployment_removes_its_folders(service: Running, settings: Settings) -> None:
    await service.deploy("shapes")
    await service.deploy("reach", "reach_one_cpu")
    for directory in service.fleet.directories:
        filled(directory)
    gone, stays = service.fleet.directories
    assert (await service.http.delete("/api/v1/deployments/shapes")).status_code == 204
    assert there(settings.home) == {stays.name}
    # The name can be used again, and so can its folder.
    await service.deploy("shapes")
    assert service.fleet.directories[-1] == gone


async def test_a_start_removes_what_no_deployment_is_left_for(settings: Settings) -> None:
    fleet = FakeFleet()
    async with serving(settings, fleet) as service:
        await service.deploy("shapes")
        wanted = filled(fleet.directories[0])
        filled(settings.home / "d" / ("0" * 10))
    async with serving(settings, FakeFleet()) as service:
        await service.settled("shapes")
        assert there(settings.home) == {wanted.name}
