"""Imports go downward only, and the control side never imports torch; each contract can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

COMPILED = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
"""The folder where a process finds what others have compiled."""
LINTER = Path(sys.executable).with_name("lint-imports")

IMPORT_ALL = """
import importlib, json, pkgutil, sys
for name in {modules!r}:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if not any(part.startswith("_") or part == "migrations" for part in found.name.split(".")):
            importlib.import_module(found.name)
heavy = sorted(set(sys.modules) & {{"torch", "triton", "flashinfer"}})
print(json.dumps(heavy))
"""

PLANTED = {
    "stray.py": ("", "Layers import downward only"),
    "graph/planted.py": ("import walkgraph.service", "Layers import downward only"),
    "conductor/planted.py": ("import walkgraph.worker", "Layers import downward only"),
    "service/planted.py": ("import torch", "The control side never imports torch"),
    "client/planted.py": ("def f():\n    import av", "The control side never imports torch"),
    "store/planted.py": ("def f():\n    import torch", "The control side never imports torch"),
    "transports/planted.py": ("import walkgraph.transports.other", "A transport never imports another"),
    "chunking/planted.py": ("import walkgraph.chunking.other", "A chunk policy never imports another"),
    "service/routes/planted.py": (
        "import walkgraph.service.routes.other",
        "A resource's routes never import another's",
    ),
    "models/planted/components.py": ("import walkgraph.models.other", "A model family never imports another"),
    "models/planted/operators.py": (
        "def f():\n    from walkgraph.models.other import components",
        "A model family never imports another",
    ),
    "models/other/components.py": ("import torch", "The control side never imports torch"),
    "models/other/importing.py": ("import walkgraph.architectures.heavy", "The control side never imports torch"),
    "architectures/planted.py": ("import walkgraph.models.other", "Layers import downward only"),
    "simulation/planted.py": (
        "import asyncio",
        "A simulated world has no tensors, clock, threads or sockets",
    ),
    "engine/loops/launch.py": ("import torch", "Loop scheduling imports no torch"),
    "cli/verbs/planted.py": ("import walkgraph.cli.verbs.other", "A verb never imports another"),
    "placement/planted.py": ("import streamlit", "The backend installs and runs without the editor"),
    "../walkgraph_editor/planted.py": (
        "import walkgraph.worker",
        "The editor sees documents and the client, never the runtime",
    ),
}


def test_import_contracts_hold(repository: Path) -> None:
    answer = lint(repository, repository)
    assert answer.returncode == 0, answer.stdout


def test_the_stub_tree_breaks_no_contract(stubs: Path, repository: Path) -> None:
    answer = lint(stubs, repository)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_import_breaks_its_contract(stubs: Path, repository: Path, name: str) -> None:
    source, broken = PLANTED[name]
    path = stubs / "walkgraph" / name
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    path.write_text(f"{source}\n")
    answer = lint(stubs, repository)
    assert answer.returncode != 0
    assert f"{broken} BROKEN" in " ".join(answer.stdout.split())


def test_importing_the_control_side_leaves_torch_out(repository: Path) -> None:
    control = contract(repository, "control-side")["source_modules"]
    modules = [found for name in control if name.startswith("walkgraph.") for found in named(repository, name)]
    assert "walkgraph.models.bagel.importing" in modules
    assert heavy_after_importing(repository / "backend", modules) == []


def test_reading_what_transports_declare_leaves_torch_out(repository: Path) -> None:
    assert heavy_after_importing(repository / "backend", ["walkgraph.transports"]) == []


def test_the_data_of_calls_and_loops_leaves_torch_out(repository: Path) -> None:
    modules = ["walkgraph.abi.calls", "walkgraph.engine.loops.spec"]
    assert heavy_after_importing(repository / "backend", modules) == []


def test_a_planted_torch_is_seen(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("")
    (tmp_path / "planted" / "inner.py").write_text("import torch\n")
    (tmp_path / "torch.py").write_text("")
    assert heavy_after_importing(tmp_path, ["planted"]) == ["torch"]


@pytest.fixture
def stubs(tmp_path: Path, repository: Path) -> Path:
    """An empty tree with every module that the contracts name."""
    layers = contract(repository, "layers")["layers"]
    names = [name.strip() for layer in layers for name in layer.replace("|", ":").split(":")]
    scheduling = [name.replace(".", "/") for name in contract(repository, "loop-scheduling")["source_modules"]]
    families = ("transports", "chunking", "service/routes", "cli/verbs")
    for folder in ("walkgraph_editor", *(f"walkgraph/{name}" for name in ("", *names, *families))):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()
    for family in families:
        (tmp_path / "walkgraph" / family / "other.py").touch()
    for folder in ("models/other", "models/planted"):
        (tmp_path / "walkgraph" / folder).mkdir()
        (tmp_path / "walkgraph" / folder / "__init__.py").touch()
    for part in ("components", "config", "importing", "presets"):
        (tmp_path / "walkgraph" / "models" / "other" / f"{part}.py").touch()
    (tmp_path / "walkgraph" / "architectures" / "heavy.py").write_text("import torch\n")
    (tmp_path / "walkgraph/engine/loops").mkdir()
    (tmp_path / "walkgraph/engine/loops/__init__.py").touch()
    for name in scheduling:
        (tmp_path / f"{name}.py").touch()
    return tmp_path


def named(repository: Path, name: str) -> list[str]:
    """The modules that a contract's name stands for: `*` is any folder."""
    backend = repository / "backend"
    if "*" not in name:
        return [name]
    found = sorted(backend.glob(f"{name.replace('.', '/')}.py"))
    return [".".join(path.relative_to(backend).with_suffix("").parts) for path in found]


def contract(repository: Path, name: str) -> dict[str, Any]:
    contracts = tomllib.loads((repository / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(found for found in contracts if found["id"] == name)


def lint(packages: Path, repository: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(packages)] if packages != repository else [str(repository / "backend"), str(repository / "editor")]
    return subprocess.run(
        [sys.executable, LINTER, "--config", repository / "pyproject.toml", "--no-cache"],
        capture_output=True,
        text=True,
        cwd=packages,
        timeout=300,
        check=False,
        env={"PYTHONPATH": ":".join(paths), "PATH": str(Path(sys.executable).parent), "COLUMNS": "200", **COMPILED},
    )


def heavy_after_importing(path: Path, modules: list[str]) -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL.format(modules=modules)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PYTHONPATH": str(path), "PATH": os.defpath, **COMPILED},
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])
