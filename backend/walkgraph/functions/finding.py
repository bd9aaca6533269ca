"""Finds the file of an installed plug-in without importing anything: importing runs code.

An installed package says where it is: beside its metadata, or, where it is installed as editable, in a folder that a
`.pth` file of it names. A process that started before the installation finds it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

from walkgraph.functions.source import Unreadable


def source_file(point: EntryPoint) -> tuple[Path, str]:
    """The file of an entry point's module, and its name in messages. Raises Unreadable if there is none."""
    for folder in _folders(point):
        base = folder.joinpath(*point.module.split("."))
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                return path, path.relative_to(folder).as_posix()
    raise Unreadable(f"the plug-in `{point.name}` names the module `{point.module}`, and no file of it is installed")


def _folders(point: EntryPoint) -> Iterator[Path]:
    """The folders that the package's modules may be in."""
    if point.dist is None:
        return
    yield Path(str(point.dist.locate_file("")))
    for file in point.dist.files or ():
        if file.suffix == ".pth":
            lines = Path(str(file.locate())).read_text(encoding="utf-8").splitlines()
            yield from (Path(line) for line in lines if line.strip() and not line.startswith(("import ", "import\t")))
