"""The units of a text: known words, letters of others, digits, pauses."""

import pytest

from walkgraph.models.voice.words import units_of

KNOWN = ("red", "a", "circle", "A", "B", "C", "E", "4", "2", " ")


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("a red circle", ["a", "red", "circle", " "]),
        ("A RED  circle.", ["a", "red", "circle", " "]),
        ("red, a... circle", ["red", " ", "a", " ", "circle", " "]),
        ("cab", ["C", "A", "B", " "]),
        ("red-cab", ["red", "C", "A", "B", " "]),
        ("42", ["4", "2", " "]),
        ("\u0664\u0662", ["4", "2", " "]),
        ("caf\u00e9", ["C", "A", "E", " "]),
        ("red \u7ea2", ["red", " "]),
        ("... red", ["red", " "]),
        ("...", []),
        ("\u7ea2", []),
        ("", []),
    ],
)
def test_a_text_is_spoken_as(text: str, units: list[str]) -> None:
    assert units_of(text, KNOWN) == units
