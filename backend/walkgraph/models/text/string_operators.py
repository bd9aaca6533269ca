"""Texts: templates, lists of texts, replacements. Clients may send any text; patterns are part of the graph."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from time import thread_time
from typing import Any, ClassVar, Self

from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.plain.values import MOST_ITEMS, as_text, bounded, few, invalid, texts
from walkgraph.graph.language.literals import Pattern, compiled, expansion_of, found_text, group_of
from walkgraph.graph.language.shaping import Listed, holes

_MOST_COMPARED = 200_000
"""Characters of a text that is compared: its pieces are counted in memory."""
_MOST_SECONDS = 2.0
"""Processor time for the matches of one text. One match takes time linear in the text, all of them may take its
square."""

_HIGH, _INSIDE = 0b1100_0000, 0b1000_0000
"""The bits of a byte that tell if it is inside a character, where an empty match may be."""


class Template(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._filled(call)} for call in calls]

    def _filled(self, call: Call) -> str:
        pieces = _pieces(str(call.params["template"]))
        parts = [piece if isinstance(piece, str) else _hole(call, piece.name) for piece in pieces]
        bounded(call, next(iter(call.inputs), ""), sum(map(len, parts)))
        return "".join(parts)


class Join(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._joined(call)} for call in calls]

    def _joined(self, call: Call) -> str:
        found, separator = texts(call, "texts"), str(call.params["separator"])
        bounded(call, "texts", sum(map(len, found)) + len(separator) * max(len(found) - 1, 0))
        return separator.join(found)


class Split(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"texts": self._split(call)} for call in calls]

    def _split(self, call: Call) -> list[str]:
        # One more than is allowed, so that too many are seen; empty pieces count, as they are made.
        found = call.text("text").split(str(call.params["separator"]) or None, MOST_ITEMS)
        few(call, "text", len(found))
        return found if call.params["keep_empty"] else [piece for piece in found if piece]


class Extract(Operator):
    options: ClassVar[tuple[str, ...]] = ("pattern", "group")
    pure: ClassVar[bool] = True

    def __init__(self, pattern: Pattern, group: int) -> None:
        self._pattern, self._group = pattern, group

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        pattern, group = compiled(str(context.options["pattern"])), int(context.options.get("group", 0))
        return cls(pattern, group_of(pattern, group))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._extracted(call) for call in calls]

    def _extracted(self, call: Call) -> Outputs:
        found: list[str] = []
        for match in _matches(call, self._pattern):
            piece = match.group(self._group)
            if piece is not None:
                found.append(piece.decode(errors="replace"))
                few(call, "text", len(found))
        return {"texts": found, "found": bool(found), **({"text": found[0]} if found else {})}


class Replace(Operator):
    options: ClassVar[tuple[str, ...]] = ("find", "replacement", "regex")
    pure: ClassVar[bool] = True

    def __init__(self, find: str, replacement: str, pattern: Pattern | None) -> None:
        self._find, self._replacement, self._pattern = find, replacement, pattern

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        find, replacement = str(context.options["find"]), str(context.options.get("replacement", ""))
        pattern = found_text(find, regex=bool(context.options.get("regex", False)))
        if pattern is not None:
            expansion_of(replacement, pattern.groups)
        return cls(find, replacement, pattern)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._replaced(call)} for call in calls]

    def _replaced(self, call: Call) -> str:
        text = call.text("text")
        if self._pattern is None:
            grown = text.count(self._find) * (len(self._replacement) - len(self._find))
            bounded(call, "text", len(text) + max(grown, 0))
            return text.replace(self._find, self._replacement)
        return self._with_pattern(call, self._pattern, text.encode())

    def _with_pattern(self, call: Call, pattern: Pattern, text: bytes) -> str:
        parts: list[bytes] = []
        expansion, size, end = expansion_of(self._replacement, pattern.groups), 0, 0
        for match in _matches(call, pattern):
            put = b"".join(one if isinstance(one, bytes) else match.group(one) or b"" for one in expansion)
            parts += (text[end : match.start()], put)
            size, end = size + len(put), match.end()
            bounded(call, "text", size)
        parts.append(text[end:])
        return b"".join(parts).decode(errors="replace")


class Trim(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._trimmed(call)} for call in calls]

    def _trimmed(self, call: Call) -> str:
        text, characters = call.text("text"), str(call.params["characters"]) or None
        text = text[: int(call.params["longest"]) or None]
        match call.params["sides"]:
            case "start":
                return text.lstrip(characters)
            case "end":
                return text.rstrip(characters)
            case _:
                return text.strip(characters)


class Similarity(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"similarity": self._similarity(call)} for call in calls]

    def _similarity(self, call: Call) -> float:
        a, b = self._counted(call, "a"), self._counted(call, "b")
        return 2 * (a & b).total() / (a.total() + b.total())

    def _counted(self, call: Call, port: str) -> Counter[str]:
        text, letters = call.text(port), int(call.params["letters"])
        if len(text) > _MOST_COMPARED:
            raise invalid(call, port, f"compares texts of at most {_MOST_COMPARED:,} characters; cut this one")
        text = text.casefold() if call.params["ignore_case"] else text
        return Counter(text[at : at + letters] for at in range(max(len(text) - letters, 0) + 1))


@lru_cache(maxsize=256)
def _pieces(template: str) -> tuple[str | Listed, ...]:
    return tuple(holes(template))


def _hole(call: Call, name: str) -> str:
    return as_text(call, name) if name in call.inputs else ""


def _matches(call: Call, pattern: Pattern) -> Iterator[Any]:
    """The matches in a text's bytes, which may take a bounded time."""
    text = call.text("text").encode()
    bounded(call, "text", len(text))
    started = thread_time()
    before = (-1, -1)
    for match in pattern.finditer(text):
        if thread_time() - started > _MOST_SECONDS:
            raise invalid(
                call, "text", f"takes more than {_MOST_SECONDS:g} s to search the text; give it a shorter one"
            )
        start = match.start()
        # The library gives an empty match that lies ahead twice, and searches for the next one inside a character.
        if match.span() != before and (start == len(text) or text[start] & _HIGH != _INSIDE):
            yield match
        before = match.span()
