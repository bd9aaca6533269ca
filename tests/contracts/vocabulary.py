"""Names of classes, files and folders, as `test_vocabulary.py` judges them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGES = ("engine", "worker", "placement", "conductor")
"""Those that speak of one another's things: a word means one thing in all of them."""
ROLES = frozenset({"core", "loop", "events", "process", "serve", "__init__"})
"""File names that state a role; each process or package may have one of each."""
RETIRED = frozenset(
    "rider riders riding room rooms party parties way ways fold folded folding hands bell lane lanes crossing".split()
)
"""Private metaphors for things that the field has terms for."""
FOLDER_FILES = 15
REGISTRIES = frozenset({"cli/verbs", "layers/kernels", "service/routes", "store/migrations/versions"})
"""Folders of one file a thing, found by listing."""
METHODS = 20

ROW = re.compile(r"^\| (?P<word>[^|]+?) \| (?P<meaning>[^|]+?) \| `(?P<file>[^`|]+)` \|$")


def modules(package: Path, names: Iterable[str] = PACKAGES) -> Iterator[Path]:
    for name in names:
        yield from sorted((package / name).rglob("*.py"))


def classes(path: Path) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))


def shared_class_names(package: Path) -> dict[str, list[str]]:
    """Names that two classes have, case and underscores left off, with the files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(package):
        for one in classes(path):
            found[one.name.replace("_", "").casefold()].append(str(path.relative_to(package)))
    return _repeated(found)


def shared_stems(package: Path) -> dict[str, list[str]]:
    """Names that two files have, roles left out."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in modules(package):
        if path.stem not in ROLES:
            found[path.stem].append(str(path.relative_to(package)))
    return _repeated(found)


def retired_words(package: Path) -> list[str]:
    """Files, classes and functions with a retired word in their names."""
    found: list[str] = []
    for path in modules(package):
        where = str(path.relative_to(package))
        names = [path.stem] + [
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        found += [f"{where}: {name}" for name in names if RETIRED & set(words(name))]
    return found


def words(name: str) -> list[str]:
    """`LoopRun_of` -> loop, run, of."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def wide_folders(package: Path) -> dict[str, int]:
    """Folders with too many files, `__init__` left out."""
    found: dict[str, int] = {}
    for folder in (package, *(path for path in sorted(package.rglob("*")) if path.is_dir())):
        where = folder.relative_to(package).as_posix()
        files = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        if len(files) > FOLDER_FILES and where not in REGISTRIES:
            found[where] = len(files)
    return found


def wide_classes(package: Path) -> dict[str, int]:
    """Classes with too many methods."""
    found: dict[str, int] = {}
    for path in sorted(package.rglob("*.py")):
        for one in classes(path):
            methods = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in one.body)
            if methods > METHODS:
                found[f"{path.relative_to(package)}::{one.name}"] = methods
    return found


def glossary(text: str) -> list[tuple[str, str]]:
    """The words of a glossary's tables, each with the file that owns it."""
    rows = (ROW.match(line) for line in text.splitlines())
    return [(row["word"], row["file"]) for row in rows if row is not None and row["word"] != "word"]


def _repeated(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}
