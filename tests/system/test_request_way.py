"""The way of a request through the code is as long as its golden says, or shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import request_way
from tests.golden.request_way import GOLDEN, Way

HINT = (
    "the way of a request has grown by over 2 %. Shorten it; or give the reason as a dated entry in docs/decisions.md "
    "and write the golden anew with `python -m tests.golden.request_way`"
)


def test_the_way_of_a_request_does_not_grow(repository: Path) -> None:
    ways = request_way.measured(request_way.traced(), repository / "backend" / "walkgraph")
    held = request_way.read(GOLDEN.read_text())
    assert ways[""].files > 100, "the trace has missed most of it"
    assert not request_way.grown(held, ways[""]), f"{HINT}\n{GOLDEN.read_text()}\n{request_way.shown(ways)}"


@pytest.mark.parametrize(
    ("way", "grown"),
    [(Way(100, 500, 5000), False), (Way(90, 900, 5100), False), (Way(103, 500, 5000), True), (Way(90, 1, 5101), True)],
)
def test_growth_of_files_or_lines_is_found(way: Way, grown: bool) -> None:
    assert request_way.grown(Way(100, 500, 5000), way) is grown


def test_lines_of_functions_that_ran_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text(
        "def outer():\n    def inner():\n        pass\n    inner()\n\n\ndef other(): ...\n"
    )
    called = {("a/b.py", 1), ("a/b.py", 2), ("a/b.py", 99)}
    ways = request_way.measured(called, tmp_path)
    assert ways == {"": Way(1, 2, 4), "a": Way(1, 2, 4)}
    assert request_way.read(request_way.shown(ways)) == Way(1, 2, 4)
