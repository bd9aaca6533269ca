"""The source of a plug-in's file, parsed and never run: its imports, aliases, constants and classes by name."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import walkgraph
from walkgraph.errors import Refused

MOST_BYTES = 1 << 20
"""The largest file that is read."""


class Unreadable(Refused):
    """A plug-in's file from which no component can be read; the message begins with `file:line`."""


@dataclass(frozen=True)
class Source:
    """The top level of one file."""

    shown: str
    """Its name in messages: the path from the folder that the package is in."""
    tree: ast.Module
    imports: dict[str, str] = field(default_factory=dict[str, str])
    """Name in this file -> full name: `Image` -> `PIL.Image`."""
    assigned: dict[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    """Name -> the expression that is assigned to it."""
    classes: dict[str, ast.ClassDef] = field(default_factory=dict[str, ast.ClassDef])

    def wrong(self, node: ast.AST | None, text: str) -> Unreadable:
        line = getattr(node, "lineno", 1)
        return Unreadable(f"{self.shown}:{line}: {text}")

    def dotted(self, expression: ast.expr) -> str | None:
        """The full name that an expression stands for (`np.ndarray` -> `numpy.ndarray`); None if it is no name."""
        match expression:
            case ast.Name(id=name):
                return self.imports.get(name, name)
            case ast.Attribute(value=value, attr=attribute):
                before = self.dotted(value)
                return None if before is None else f"{before}.{attribute}"
            case _:
                return None

    def literal(self, expression: ast.expr) -> object:
        """The value of a literal, or of a name that one is assigned to. Raises ValueError for anything else."""
        if isinstance(expression, ast.Name) and expression.id in self.assigned:
            expression = self.assigned[expression.id]
        return ast.literal_eval(expression)


def parsed(path: Path, shown: str) -> Source:
    """Raises Unreadable if the file isn't there, is too large, or isn't Python."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{shown}: the file can't be read ({error.strerror})") from None
    if len(data) > MOST_BYTES:
        raise Unreadable(f"{shown}: the file has more than {MOST_BYTES >> 20} MiB; put data into other files")
    try:
        tree = ast.parse(data)
    except SyntaxError as error:
        raise Unreadable(f"{shown}:{error.lineno or 1}: this is not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise Unreadable(f"{shown}:1: this is not Python; save it as UTF-8 text") from None
    source = Source(shown, tree)
    for statement in _top(tree):
        _note(source, statement)
    return source


@cache
def words() -> Source:
    """The aliases that `walkgraph.nodes` offers."""
    return parsed(Path(walkgraph.__file__).with_name("nodes.py"), "walkgraph/nodes.py")


def _top(tree: ast.Module) -> list[ast.stmt]:
    """The statements of the file, and those under `if TYPE_CHECKING:` and in `try:`, where imports are."""
    found: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.If(body=body):
                found += body
            case ast.Try(body=body):
                found += body
            case _:
                found.append(statement)
    return found


def _note(source: Source, statement: ast.stmt) -> None:
    match statement:
        case ast.Import(names=names):
            for one in names:
                first = one.name.partition(".")[0]
                source.imports[one.asname or first] = one.name if one.asname else first
        case ast.ImportFrom(module=module, names=names, level=0):
            for one in names:
                source.imports[one.asname or one.name] = f"{module}.{one.name}"
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            source.assigned[name] = value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            source.assigned[name] = value
        case ast.ClassDef(name=name):
            source.classes[name] = statement
        case _ if type(statement).__name__ == "TypeAlias":  # Python 3.12's `type X = ...`
            alias, value = getattr(statement, "name", None), getattr(statement, "value", None)
            if isinstance(alias, ast.Name) and isinstance(value, ast.expr):
                source.assigned[alias.id] = value
        case _:
            pass
