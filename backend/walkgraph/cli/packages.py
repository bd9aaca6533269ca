"""Folders of plug-ins: what their pyproject.toml names, and their installation by pip into this environment."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from walkgraph import plugins
from walkgraph.errors import InvalidInput, NotFound, Refused

_LINES = 12
"""The last lines of pip's complaint that are shown."""


def declared_by(folder: Path) -> dict[str, str]:
    """Plug-in -> module, as a folder's pyproject.toml names them. Raises NotFound or InvalidInput."""
    path = folder / "pyproject.toml"
    try:
        project: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(
            f"`{path}` is not there; name the plug-in's folder, or make one: `walkgraph new component`"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"`{path}` can't be read: {error}") from None
    points = project.get("project", {}).get("entry-points", {})
    found = {
        name: module for group in (plugins.FUNCTIONS, plugins.GROUP) for name, module in points.get(group, {}).items()
    }
    if not found:
        raise InvalidInput(
            f'`{path}` names no plug-in; it needs `[project.entry-points."{plugins.FUNCTIONS}"]` with a line '
            '`name = "package"`'
        )
    taken = sorted(set(found) & set(plugins.names(plugins.MODELS)))
    if taken:
        raise InvalidInput(f"`{path}` names the plug-in `{taken[0]}`, as one of Walkgraph's families is; rename it")
    return found


def check_sources(folder: Path, names: Mapping[str, str]) -> None:
    """Read the functions of a folder before it is installed. Raises Unreadable for the first mistake."""
    from walkgraph.functions.reading import declared

    points = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    for name in points.get(plugins.FUNCTIONS, {}):
        for root in (folder, folder / "src"):
            base = root.joinpath(*names[name].split("."))
            for path in (base / "__init__.py", base.with_suffix(".py")):
                if path.is_file():
                    declared(path, path.relative_to(root).as_posix(), names[name], name)


def install(folder: Path) -> None:
    """Raises Refused with what pip says."""
    # Where the tool that builds packages is here, pip need not fetch one.
    here = importlib.util.find_spec("hatchling") is not None and "hatchling" in (folder / "pyproject.toml").read_text()
    _pip("install", "--editable", str(folder.resolve()), *(["--no-build-isolation"] if here else []))
    importlib.invalidate_caches()


def uninstall(package: str) -> None:
    _pip("uninstall", "--yes", package)
    importlib.invalidate_caches()


def _pip(*words: str) -> None:
    if importlib.util.find_spec("pip") is None:
        raise Refused(f"`{sys.executable}` has no pip; install it (`python -m ensurepip`), then repeat")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        said = "\n".join((answer.stderr or answer.stdout).strip().splitlines()[-_LINES:])
        raise Refused(f"`pip {words[0]}` failed:\n{said}")
