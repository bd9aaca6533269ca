"""Calls of tools in a model's text: found, read, and checked against the tool's JSON Schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from walkgraph.graph.reading.fitting import problems

MOST_PROBLEMS = 5

_OPEN, _CLOSE, _FENCE = "<tool_call>", "</tool_call>", "```"


@dataclass(frozen=True)
class Tool:
    name: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""


@dataclass(frozen=True)
class Read:
    """The content of an answer."""

    text: str
    """Without the call."""
    name: str = ""
    """The tool; empty without a call that can be used."""
    arguments: str = ""
    """JSON of an object."""
    problem: str = ""
    """The fault of the call; empty if there is none."""


def read_answer(text: str, tools: Sequence[Tool]) -> Read:
    """Find the first call of a tool. Models write it between `<tool_call>` tags, in a block of code, or as the whole
    answer."""
    start = text.find(_OPEN)
    if start >= 0:
        written = text[start + len(_OPEN) :].partition(_CLOSE)[0]
        return _judged(text, written.strip(), _before(text, start), tools)
    if not tools:
        return Read(text)
    start = text.find(_FENCE)
    if start >= 0:
        _, _, written = text[start:].partition("\n")
        written = written.partition(_FENCE)[0].strip()
        if written.startswith("{") and '"name"' in written:
            return _judged(text, written, _before(text, start), tools)
    whole = text.strip()
    if whole.startswith("{") and '"name"' in whole:
        return _judged(text, whole, "", tools)
    return Read(text)


def _before(text: str, start: int) -> str:
    """The words of the model before its call; behind it, models repeat themselves, or invent the answer."""
    return text[:start].strip()


def _judged(text: str, written: str, rest: str, tools: Sequence[Tool]) -> Read:
    """The call that a model has written, or what is wrong with it."""
    try:
        read: Any = json.loads(written)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        return Read(text, problem=f"The call is not valid JSON at {where}. Write it again.")
    except (ValueError, RecursionError):
        return Read(text, problem="The call is not valid JSON. Write it again.")
    fields = cast(dict[str, Any], read) if isinstance(read, dict) else {}
    name = fields.get("name")
    arguments: Any = fields.get("arguments", fields.get("parameters", {}))
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        known = ", ".join(tool.name for tool in tools) or "none"
        said = f"There is no tool `{name[:80]}`." if isinstance(name, str) else "A call needs the tool's `name`."
        return Read(text, problem=f"{said} The tools are: {known}.")
    if isinstance(arguments, str):
        # As OpenAI's API has it: JSON in a text.
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return Read(text, problem=f"The arguments of `{tool.name}` are not valid JSON. Write the call again.")
    faults = list(_first(problems(arguments, {"type": "object", **tool.parameters})))
    if faults:
        return Read(text, problem=f"The arguments of `{tool.name}` can't be used: {'; '.join(faults)}.")
    return Read(rest, tool.name, json.dumps(arguments, ensure_ascii=False))


def _first(faults: Iterator[str]) -> Iterator[str]:
    for _, fault in zip(range(MOST_PROBLEMS), faults, strict=False):
        yield fault
