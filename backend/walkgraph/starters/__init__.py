"""Small trained models in the package: the first run on a laptop gives real output, without a download."""

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

WORDS = "words.json"
"""The words of a starter's sentences, in its folder. Written by its `tokens.py`."""
_SOURCE = "starter:"
_WORD = re.compile(r"[^\W\d_]+")
_MOST_UNKNOWN = 20


def names() -> list[str]:
    """The starters in the package: folders with a `config.json`."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/config.json"))


def unknown_words(sources: Iterable[str], texts: Iterable[str]) -> tuple[str, ...]:
    """The words of a client's texts that these weights have not learned, each once. Only starters know their words:
    there are none where any of the weights come from elsewhere."""
    known = _known(tuple(sources))
    if known is None:
        return ()
    found = dict.fromkeys(word for text in texts for word in _WORD.findall(text.lower()) if word not in known)
    return tuple(found)[:_MOST_UNKNOWN]


@cache
def _known(sources: tuple[str, ...]) -> frozenset[str] | None:
    if not sources or not all(source.startswith(_SOURCE) for source in sources):
        return None
    files = [Path(__file__).parent / source.removeprefix(_SOURCE) / WORDS for source in sources]
    found = [word for file in files if file.is_file() for word in json.loads(file.read_text("utf-8"))]
    return frozenset(found) or None
