"""Changes of the document without a problem, and what `check` finds then."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.graph.check import Problem, check

Doc = dict[str, Any]
Change = Callable[[Doc], object]
Case = tuple[str, Change, str]
"""Code, change, pointer."""
Also = Mapping[str, set[tuple[str, str]]]
"""Pointer of a case -> what else is true of its document."""


def problems(value: object) -> list[Problem]:
    return list(check(value, CATALOGUE).problems)


def found(value: object) -> list[tuple[str, str]]:
    return [(p.code, p.pointer) for p in problems(value)]


def changed(change: Change) -> Doc:
    made = document()
    change(made)
    return made


def put(doc: Doc, path: str, value: object) -> None:
    *way, last = path.strip("/").split("/")
    target: Any = doc
    for part in way:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if isinstance(target, list) and last == "-":
        target.append(value)
    else:
        target[int(last) if isinstance(target, list) else last] = value


def drop(doc: Doc, path: str) -> None:
    *way, last = path.strip("/").split("/")
    target: Any = doc
    for part in way:
        target = target[int(part)] if isinstance(target, list) else target[part]
    del target[int(last) if isinstance(target, list) else last]


def sets(path: str, value: object) -> Change:
    return lambda doc: put(doc, path, value)


def drops(path: str) -> Change:
    return lambda doc: drop(doc, path)


def both(*changes: Change) -> Change:
    return lambda doc: [change(doc) for change in changes]


def cases(*tables: list[Case]) -> list[Any]:
    return [
        pytest.param(code, change, pointer, id=f"{code}{pointer.replace('/', '.')}-{i}")
        for table in tables
        for i, (code, change, pointer) in enumerate(table)
    ]


def expect(code: str, change: Change, pointer: str, also: Also) -> None:
    """The document has this problem, and no other but what else is true of it."""
    others = [p for p in found(changed(change)) if p != (code, pointer)]
    assert (code, pointer) in found(changed(change)), others
    assert not set(others) - also.get(pointer, set())
