"""No module imports itself by way of others: imports inside functions and for types alone count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGES = ("backend/walkgraph", "editor/walkgraph_editor")

PLANTED = {
    "plain": "from planted import other\n",
    "plain, of a name": "from planted.other import VALUE\n",
    "lazy": "def f():\n    import planted.other\n",
    "for types alone": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from planted.other import Value\n",
    "relative": "from .other import VALUE\n",
    "by a longer way": "import planted.third\n",
}


def test_there_are_no_cycles(repository: Path) -> None:
    found = [cycle for package in PACKAGES for cycle in cycles(imports(repository / package))]
    assert not found, "\n".join(" <-> ".join(cycle) for cycle in found)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_cycle_is_found(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "other.py").write_text("from planted import here\n")
    (folder / "third.py").write_text("import planted.other\n")
    (folder / "here.py").write_text("")
    assert cycles(imports(folder)) == []
    (folder / "here.py").write_text(PLANTED[kind])
    (found,) = cycles(imports(folder))
    assert {"planted.here", "planted.other"} <= set(found)


def imports(package: Path) -> dict[str, set[str]]:
    """Module of the package -> the modules of it that it names in any import."""
    files = {module_of(path, package): path for path in package.rglob("*.py") if "node_modules" not in path.parts}
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        inside = module if path.name == "__init__.py" else module.rpartition(".")[0]
        named = set(imported(ast.parse(path.read_text()), inside, files))
        found[module] = named - {module}
    return found


def module_of(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, inside: str, files: Mapping[str, Path]) -> Iterator[str]:
    """A package that is named on the way to one of its modules isn't counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = inside.split(".")[: len(inside.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                if f"{base}.{alias.name}" in files:
                    yield f"{base}.{alias.name}"
                elif base in files:
                    yield base


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that all reach each other (Tarjan), without those of one."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for other in sorted(graph.get(module, ())):
            if other not in number:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], number[other])
        if low[module] == number[module]:
            at = stack.index(module)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return sorted(found)
