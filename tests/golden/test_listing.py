"""The palette and the bundled graphs, drawn: a change shows as a difference that a person can read."""

import pytest

from tests.golden.listing import FOLDER, goldens

HINT = "if this is meant, write it anew with `python -m tests.golden.listing` and read the difference"


@pytest.mark.parametrize("name", goldens())
def test_golden(name: str) -> None:
    held = FOLDER / name
    assert held.is_file(), f"`{name}` is missing; {HINT}"
    assert goldens()[name] == held.read_text(), HINT
