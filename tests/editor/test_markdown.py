"""Others' text in Markdown."""

from __future__ import annotations

import pytest

from walkgraph_editor.markdown import as_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plain sentence", "a plain sentence"),
        ("no deployment `x_y`; start it", "no deployment `x_y`; start it"),
        ("[x](//e)", r"\[x\]\(\/\/e\)"),
        ("`a` [b](c) `d", r"`a` \[b\]\(c\) \`d"),
        ("**bold** :red[x] $y$", r"\*\*bold\*\* \:red\[x\] \$y\$"),
        ("<b>&amp;", r"\<b\>\&amp;"),
        ("https://e", "h\u2060ttps\\:\\/\\/e"),
        ("WWW.e", "W\u2060WW\\.e"),
        ("", ""),
    ],
)
def test_text_stays_text(text: str, shown: str) -> None:
    assert as_text(text) == shown
