"""The files for containers name only settings, files and metrics that exist."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from walkgraph.service.http import limits
from walkgraph.settings import Settings

OF_COMPOSE = {"WALKGRAPH_PORT", "WALKGRAPH_CHECKPOINTS", "WALKGRAPH_VARIANT"}
"""Variables that fill the compose file itself in."""


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    return yaml.safe_load((repository / "docker-compose.yml").read_text())


def test_every_variable_is_a_setting(repository: Path, compose: dict[str, Any]) -> None:
    known = {f"WALKGRAPH_{name.upper()}" for name in Settings.model_fields}
    files = ("docker-compose.yml", "docker/Dockerfile", "docker/service-on-ray")
    texts = [(repository / name).read_text() for name in files]
    named = {name for text in texts for name in re.findall(r"\bWALKGRAPH_[A-Z_]+\b", text)}
    assert named - OF_COMPOSE <= known
    for service in compose["services"].values():
        assert {name for name in service.get("environment", ()) if name.startswith("WALKGRAPH_")} <= known


@pytest.mark.parametrize("service", ["control", "control-gpu", "control-cluster", "control-a", "control-b"])
def test_the_variables_make_settings(service: str, compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in compose["services"][service]["environment"].items():
        filled = re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "s" * 20, value)
        monkeypatch.setenv(name, filled)
    monkeypatch.setenv("WALKGRAPH_HOST", "0.0.0.0")
    found = Settings()
    assert found.allowed_hosts == ("control",)
    assert found.database == f"postgresql://walkgraph:{'s' * 20}@database/walkgraph"
    stop = int(compose["services"][service]["stop_grace_period"].removesuffix("s"))
    assert stop > found.drain_timeout
    # Others reach it by its name.
    assert found.peer_url in (None, f"http://{compose['services'][service].get('hostname')}:{found.port}")
    assert (found.peer_url is not None) == (compose["services"][service]["profiles"] == ["standby"])


def test_hosts_of_the_cluster_have_the_names_and_the_address_that_others_use(compose: dict[str, Any]) -> None:
    services = compose["services"]
    hosts = {name: one for name, one in services.items() if "--block" in one.get("entrypoint", ())}
    assert sorted(hosts) == ["head", "worker-1", "worker-2"]
    [port] = [word.removeprefix("--port=") for word in hosts["head"]["entrypoint"] if word.startswith("--port=")]
    for name, one in hosts.items():
        assert one["hostname"] == name
        assert f"--node-name={name}" in one["entrypoint"]
        assert ("--head" if name == "head" else f"--address=head:{port}") in one["entrypoint"]
    joined = [one["environment"] for one in services.values() if "service-on-ray" in one.get("entrypoint", ())]
    assert [one["WALKGRAPH_RAY_ADDRESS"] for one in joined] == [f"head:{port}"] * 3
    # They are of one image, and want one token.
    for one in (*joined, *(one["environment"] for one in hosts.values())):
        assert (one["RAY_AUTH_MODE"], one["RAY_AUTH_TOKEN"]) == ("token", "${RAY_AUTH_TOKEN:-}")
    assert {one["image"] for one in hosts.values()} == {services["control-a"]["image"]} == {"walkgraph:cluster"}


def test_containers_of_ours_have_no_rights(compose: dict[str, Any]) -> None:
    ours = {name: one for name, one in compose["services"].items() if one["image"].startswith("walkgraph:")}
    assert len(ours) == 8
    for name, one in ours.items():
        told = one["cap_drop"], one["read_only"], one["security_opt"], "/tmp:exec" in one["tmpfs"]
        assert told == (["ALL"], True, ["no-new-privileges:true"], True), name


def test_the_balancer_knows_the_services(repository: Path, compose: dict[str, Any]) -> None:
    text = (repository / "docker" / "Caddyfile").read_text()
    peers = [one["environment"].get("WALKGRAPH_PEER_URL") for one in compose["services"].values() if "build" in one]
    told = re.search(r"\{\$SERVICES:(.*)\}", text)
    assert told is not None
    assert [f"http://{one}" for one in told[1].split()] == [peer for peer in peers if peer is not None]
    size = re.search(r"max_size (\d+)MiB", text)
    assert size is not None
    assert int(size[1]) << 20 == max(limits.BODY_BYTES, limits.FORM_BYTES)


def test_what_is_mounted_and_copied_is_there(repository: Path, compose: dict[str, Any]) -> None:
    mounted = [
        source
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if (source := volume.partition(":")[0]).startswith("./")
    ]
    assert len(mounted) == 4
    dockerfile = (repository / "docker" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+)", dockerfile, re.MULTILINE) for word in line.split()[:-1]]
    for path in (*mounted, *copied):
        assert (repository / path).exists(), path
    allowed = (repository / ".dockerignore").read_text().split()
    assert all(any(f"{path}/".startswith(f"{one[1:]}/") for one in allowed if one.startswith("!")) for path in copied)


def test_the_image_has_the_torch_that_is_tested(repository: Path) -> None:
    dockerfile = (repository / "docker" / "Dockerfile").read_text()
    pinned = re.search(r'^TORCH = "(.+)"', (repository / "dev").read_text(), re.MULTILINE)
    assert pinned is not None
    assert set(re.findall(r"torch==[0-9.]+", dockerfile)) == {pinned[1]}
    extra = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gpu"]
    assert all(f'"{requirement}"' in dockerfile for requirement in extra)


def test_the_image_of_a_cluster_has_versions_that_the_extras_allow(repository: Path) -> None:
    dockerfile = (repository / "docker" / "Dockerfile").read_text()
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for requirement in map(Requirement, (*extras["ray"], *extras["cluster"])):
        [pinned] = re.findall(rf'"{requirement.name}==([0-9.]+)"', dockerfile)
        assert pinned in requirement.specifier


def test_pip_is_not_constrained_by_locks_with_hashes(repository: Path) -> None:
    """It would ask for hashes of torch and CUDA too, which the locks don't hold; uv does not."""
    assert "-c locks/" not in (repository / "docker" / "Dockerfile").read_text()
    calls = re.findall(r'"pip",\s*"install".*', (repository / "dev").read_text())
    assert len(calls) >= 3
    assert [call for call in calls if '"-c"' in call] == []


def test_the_dashboard_asks_for_metrics_that_there_are(repository: Path) -> None:
    text = (repository / "docker" / "grafana" / "dashboards" / "walkgraph.json").read_text()
    asked = {name for panel in json.loads(text)["panels"] for name in _metrics(panel)}
    assert len(asked) > 20
    files = (repository / "backend" / "walkgraph").rglob("*.py")
    sources = "\n".join(path.read_text() for path in files if path.name in ("metrics.py", "prometheus.py"))
    told = {name.removeprefix("walkgraph_") for name in re.findall(r'"((?:walkgraph_)?[a-z][a-z_0-9]+)"', sources)}
    for name in asked:
        assert name.removesuffix("_bucket").removesuffix("_total") in told, name


def _metrics(panel: dict[str, Any]) -> set[str]:
    return {
        name for target in panel.get("targets", ()) for name in re.findall(r"\bwalkgraph_([a-z_0-9]+)", target["expr"])
    }
