"""The result of `check`: problems as data, each with its place in the document as the caller gave it."""

import difflib
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from walkgraph.graph.document import Graph

MAX_PROBLEMS = 1000
_MANY, _FEW = 64, 12

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Problem:
    code: str
    """Stable, for tools and tests."""
    pointer: str
    """JSON pointer to the place; for a missing key, to the object that lacks it."""
    message: str
    """A sentence that says what is wrong and what to do."""
    severity: Severity = "error"


@dataclass(frozen=True)
class Report:
    problems: tuple[Problem, ...]
    graph: Graph | None = None
    """The document as data, without blueprints, if it is well-formed."""
    written: Graph | None = None
    """The same with its blueprints."""

    @property
    def ok(self) -> bool:
        """True if there are at most warnings: the graph can be planned."""
        return self.graph is not None and not self.errors

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.severity == "warning")


def pointer(path: Iterable[str]) -> str:
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in path)


def article(noun: str) -> str:
    """`an integer`, `a number`."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Advice after an unknown name: its nearest match, or the list of names."""
    known = tuple(names)
    close = difflib.get_close_matches(name[:80], _candidates(name, known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else listed(known)


def _candidates(name: str, known: Sequence[str]) -> Sequence[str]:
    """The names to compare with: all of them, or, if there are many, those next to it in the alphabet and some with the
    same ending."""
    if len(known) <= _MANY:
        return known
    ordered = sorted(known)
    at = bisect(ordered, name)
    return [*ordered[max(0, at - _FEW) : at + _FEW], *[k for k in ordered if k[-3:] == name[-3:]][:_FEW]]


def listed(names: Iterable[str]) -> str:
    """The first names, as a short phrase."""
    known = list(islice(names, 9))
    shown = ", ".join(f"`{name}`" for name in known[:8])
    return f"have {shown}{' …' if len(known) > 8 else ''}" if known else "there are none"
