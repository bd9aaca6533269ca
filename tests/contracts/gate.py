"""Finds forbidden code in the syntax tree. Each rule has a planted violation in `test_source.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FORBIDDEN_MODULES = frozenset({"pickle", "cPickle", "marshal", "dill", "cloudpickle", "shelve", "joblib"})
FORBIDDEN_NAMES = frozenset({"eval", "exec", "compile", "__import__"})
FORBIDDEN_CALLS = {
    "torch.load": "unpickles; weights are safetensors",
    "yaml.load": "runs constructors; documents are JSON",
    "yaml.unsafe_load": "runs constructors; documents are JSON",
    "time.sleep": "is not synchronisation; wait on an event with a timeout",
    "os.system": "goes through a shell",
    "os.popen": "goes through a shell",
}
FORBIDDEN_ATTRIBUTES = {
    "os.environ": "is read in settings.py alone",
    "os.environb": "is read in settings.py alone",
    "os.getenv": "is read in settings.py alone",
}
ENVIRONMENT_HOME = "settings.py"


@dataclass(frozen=True)
class Finding:
    """One violation: where it stands and what to do."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def findings(path: str, source: str) -> list[Finding]:
    """Return everything in `source` that the rules forbid; `path` tells settings.py from the rest."""
    tree = ast.parse(source)
    names = _qualified(tree)
    found: list[Finding] = []
    for node in ast.walk(tree):
        found += [Finding(path, getattr(node, "lineno", 1), text) for text in _texts(node, names, path)]
    return sorted(found, key=lambda finding: finding.line)


def long_functions(path: str, source: str, most: int) -> dict[str, int]:
    """Return the functions of `source` with more than `most` lines, as `path::qualified.name` -> lines."""
    lengths: dict[str, int] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                lines = (child.end_lineno or child.lineno) - child.lineno + 1
                if not isinstance(child, ast.ClassDef) and lines > most:
                    lengths[f"{path}::{name}"] = lines
                visit(child, f"{name}.")
            else:
                visit(child, prefix)

    visit(ast.parse(source), "")
    return lengths


def unpaired_steps(source: str) -> list[str]:
    """Return the classes of `source` that have a `step` without a `step_spec`, or the other way round."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            own = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
            if len(own & {"step", "step_spec"}) == 1:
                found.append(node.name)
    return found


def python_files(root: Path, *folders: str) -> list[Path]:
    """Return the Python files under `folders`, less what belongs to others."""
    foreign = {"node_modules", "__pycache__", ".venv"}
    return [
        path
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if not foreign.intersection(path.parts)
    ]


def _texts(node: ast.AST, names: dict[str, str], path: str) -> Iterator[str]:
    match node:
        case ast.Import(names=aliases):
            yield from (_module(alias.name) for alias in aliases if _root(alias.name) in FORBIDDEN_MODULES)
        case ast.ImportFrom(module=str(module), level=0) if _root(module) in FORBIDDEN_MODULES:
            yield _module(module)
        case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_NAMES:
            yield f"`{name}()` runs text as code"
        case ast.Call():
            yield from _call(node, names)
        case ast.Assert():
            yield "`assert` vanishes under -O; raise a typed error"
        case ast.ExceptHandler(type=None):
            yield "`except:` also catches the interpreter's exit; name the exceptions"
        case ast.Name(id="NotImplementedError"):
            yield "`NotImplementedError` is a stub"
        case ast.Attribute() | ast.Name():
            name = _name(node, names)
            if name in FORBIDDEN_ATTRIBUTES and Path(path).name != ENVIRONMENT_HOME:
                yield f"`{name}` {FORBIDDEN_ATTRIBUTES[name]}"


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[str]:
    name = _name(node.func, names)
    if name in FORBIDDEN_CALLS:
        yield f"`{name}()` {FORBIDDEN_CALLS[name]}"
    if any(
        word.arg == "shell" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in node.keywords
    ):
        yield "`shell=True` reads an argument as a program"


def _qualified(tree: ast.AST) -> dict[str, str]:
    """Map every imported local name to what it stands for: `from os import getenv as g` gives g -> os.getenv."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or _root(alias.name)] = alias.name if alias.asname else _root(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _name(node: ast.AST, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, names)}.{node.attr}"
    return ""


def _module(name: str) -> str:
    return f"`{name}` can run code from data; use msgspec, JSON or safetensors"


def _root(module: str) -> str:
    return module.partition(".")[0]
