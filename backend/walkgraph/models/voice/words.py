"""The units that a text is spoken as: words that are known, the letters of others, digits and pauses."""

import re
import unicodedata
from collections.abc import Collection, Iterator

from walkgraph.models.voice.config import PAUSE

_PIECES = re.compile(r"[^\W\d_]+|\d|[.,;:!?\n]")


def units_of(text: str, known: Collection[str]) -> list[str]:
    """The units of a text, each one of `known`; empty if nothing of it can be spoken. Otherwise a pause ends them.
    Accents are dropped from letters of words that aren't known; what has neither word nor letter is left out."""
    said = [unit for unit in _spoken(text, known) if unit in known]
    parts = [unit for at, unit in enumerate(said) if unit != PAUSE or (at and said[at - 1] != PAUSE)]
    if not any(unit != PAUSE for unit in parts):
        return []
    return parts if parts[-1] == PAUSE else [*parts, PAUSE]


def _spoken(text: str, known: Collection[str]) -> Iterator[str]:
    for piece in _PIECES.findall(text.lower()):
        if piece in known:
            yield piece
        elif piece.isalpha():
            yield from (letter.upper() for letter in unicodedata.normalize("NFKD", piece))
        elif piece.isdigit():
            yield str(unicodedata.digit(piece))
        else:
            yield PAUSE
