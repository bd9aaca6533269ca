"""Finds the calls of functions in an answer that comes in pieces, by the form in which a template's model writes them.

A call that is not complete, is no JSON or names no function that the request has stays text.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, cast

from walkgraph.checkpoints.chat_template import CallForm

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class FoundCall:
    name: str
    arguments: str
    """JSON."""


class CallReader:
    def __init__(self, form: CallForm, names: Collection[str]) -> None:
        """`names`: the functions that the request has."""
        self._form, self._names = form, names
        self._held = ""
        self._plain = False
        """The answer has begun with text, so that it is no call as a whole."""

    def feed(self, piece: str) -> Iterator[str | FoundCall]:
        """The texts and calls that are complete by now."""
        self._held += piece
        if self._form == "whole":
            self._plain |= bool(self._held.strip()) and not self._held.lstrip().startswith("{")
            if self._plain:
                yield from self._let(len(self._held))
            return
        while (start := self._held.find(_OPEN)) >= 0:
            end = self._held.find(_CLOSE, start)
            if end < 0:
                yield from self._let(len(self._held[:start].rstrip("\n")))
                return
            found = self._call(self._held[start + len(_OPEN) : end], "arguments")
            if found is None:
                yield from self._let(end + len(_CLOSE))
                continue
            # Line ends around calls are part of their form.
            yield from self._let(len(self._held[:start].rstrip("\n")))
            self._held = self._held[self._held.index(_CLOSE) + len(_CLOSE) :].lstrip("\n")
            yield found
        yield from self._let(len(self._held) - self._beginning())

    def finish(self) -> Iterator[str | FoundCall]:
        """The text that is left at the answer's end."""
        found = self._call(self._held, "parameters") if self._form == "whole" else None
        if found is None:
            yield from self._let(len(self._held))
        else:
            yield found
        self._held = ""

    def _let(self, count: int) -> Iterator[str]:
        told, self._held = self._held[:count], self._held[count:]
        if told:
            yield told

    def _beginning(self) -> int:
        """Number of characters at the end with which a call, or the line ends before one, may begin."""
        whole = self._held
        mark = next((n for n in range(len(_OPEN) - 1, 0, -1) if whole.endswith(_OPEN[:n])), 0)
        before = whole[: len(whole) - mark]
        return mark + len(before) - len(before.rstrip("\n"))

    def _call(self, text: str, key: str) -> FoundCall | None:
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError):
            return None
        fields = cast(dict[str, Any], read) if isinstance(read, dict) else {}
        name, arguments = fields.get("name"), fields.get(key)
        if not isinstance(name, str) or name not in self._names or not isinstance(arguments, dict):
            return None
        return FoundCall(name, json.dumps(arguments, ensure_ascii=False))
