"""The parts of a docstring: what it is, what each argument is, what is returned. Google's and Sphinx's forms."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(r"^(?P<name>[A-Z][A-Za-z ]+):\s*$")
_ARGUMENTS = frozenset({"Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments"})
_RETURNS = frozenset({"Returns", "Yields"})
_ITEM = re.compile(r"^(?P<name>\*{0,2}[A-Za-z_]\w*)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)$")
_FIELD = re.compile(r"^:(?P<kind>param|parameter|arg|returns?)(?:\s+[^:]*?(?P<name>\w+))?:\s*(?P<text>.*)$")


@dataclass
class Docstring:
    summary: str = ""
    """The first paragraph, with a full stop at its end."""
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    returns: str = ""


def docstring(text: str | None) -> Docstring:
    found = Docstring()
    lines = inspect.cleandoc(text or "").splitlines()
    head: list[str] = []
    section, name = "", ""
    for line in lines:
        if title := _SECTION.match(line):
            section, name = title["name"], ""
        elif item := _FIELD.match(line):
            section = "Returns" if item["kind"].startswith("return") else "Args"
            name = item["name"] or ""
            _add(found, section, name, item["text"])
        elif not section:
            head.append(line)
        elif line.strip():
            item = _ITEM.match(line.strip()) if section in _ARGUMENTS and _indent(line) <= _indent_of(lines) else None
            name = item["name"].lstrip("*") if item else name
            _add(found, section, name, item["text"] if item else line.strip())
    found.summary = _sentence(" ".join(_first_paragraph(head)))
    return found


def _add(found: Docstring, section: str, name: str, text: str) -> None:
    if section in _RETURNS:
        found.returns = f"{found.returns} {text}".strip()
    elif section in _ARGUMENTS and name:
        found.arguments[name] = f"{found.arguments.get(name, '')} {text}".strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _indent_of(lines: list[str]) -> int:
    """The indent of items: the smallest of an indented line."""
    return min((_indent(line) for line in lines if line.strip() and _indent(line)), default=0)


def _first_paragraph(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        if not line.strip() and kept:
            break
        kept.append(line.strip())
    return kept


def _sentence(text: str) -> str:
    return text if not text or text[-1] in ".!?" else f"{text}."
