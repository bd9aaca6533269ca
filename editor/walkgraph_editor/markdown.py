"""Text of others on pages that Streamlit writes as Markdown: descriptions, labels, messages with names in them."""

from __future__ import annotations

import re

_SIGNS = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&@^=/])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|www)(?=[:.])")
_NOTHING = "\u2060"
"""Takes no room; between the letters of an address it keeps that from becoming a link."""


def as_text(text: str) -> str:
    """The text as Markdown that shows it as it is: no link, no picture, no formula; `code` stays code."""
    *pairs, last = re.split(r"(`[^`\n]*`)", text)
    shown = [part if i % 2 else _escaped(part) for i, part in enumerate(pairs)]
    return "".join(shown) + _escaped(last)


def _escaped(text: str) -> str:
    return _SIGNS.sub(r"\\\1", _ADDRESS.sub(lambda found: found[0][:1] + _NOTHING + found[0][1:], text))
