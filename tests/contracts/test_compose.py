"""The files for containers name only settings, files and metrics that exist."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from walkgraph.settings import Settings

OF_COMPOSE = {"WALKGRAPH_PORT", "WALKGRAPH_CHECKPOINTS"}
"""Variables that fill the compose file itself in."""


@pytest.fixture(scope="module")
def compose(repository: Path) -> dict[str, Any]:
    return yaml.safe_load((repository / "docker-compose.yml").read_text())


def test_every_variable_is_a_setting(repository: Path, compose: dict[str, Any]) -> None:
    known = {f"WALKGRAPH_{name.upper()}" for name in Settings.model_fields}
    texts = [(repository / "docker-compose.yml").read_text(), (repository / "docker" / "Dockerfile").read_text()]
    named = {name for text in texts for name in re.findall(r"\bWALKGRAPH_[A-Z_]+\b", text)}
    assert named - OF_COMPOSE <= known
    for service in ("control", "control-gpu"):
        assert set(compose["services"][service]["environment"]) <= known


def test_the_variables_make_settings(compose: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in compose["services"]["control"]["environment"].items():
        filled = re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "s" * 20, value)
        monkeypatch.setenv(name, filled)
    monkeypatch.setenv("WALKGRAPH_HOST", "0.0.0.0")
    found = Settings()
    assert found.allowed_hosts == ("control",)
    assert found.database == f"postgresql://walkgraph:{'s' * 20}@database/walkgraph"
    stop = int(compose["services"]["control"]["stop_grace_period"].removesuffix("s"))
    assert stop > found.drain_timeout


def test_what_is_mounted_and_copied_is_there(repository: Path, compose: dict[str, Any]) -> None:
    mounted = [
        source
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if (source := volume.partition(":")[0]).startswith("./")
    ]
    assert len(mounted) == 3
    dockerfile = (repository / "docker" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+)", dockerfile, re.MULTILINE) for word in line.split()[:-1]]
    for path in (*mounted, *copied):
        assert (repository / path).exists(), path
    allowed = (repository / ".dockerignore").read_text().split()
    assert all(f"!{path.partition('/')[0]}" in allowed for path in copied)


def test_the_image_has_the_torch_that_is_tested(repository: Path) -> None:
    dockerfile = (repository / "docker" / "Dockerfile").read_text()
    pinned = re.search(r'^TORCH = "(.+)"', (repository / "dev").read_text(), re.MULTILINE)
    assert pinned is not None
    assert set(re.findall(r"torch==[0-9.]+", dockerfile)) == {pinned[1]}
    extra = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]["gpu"]
    assert all(f'"{requirement}"' in dockerfile for requirement in extra)


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
