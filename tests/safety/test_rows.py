"""Every row has tests; the page has every row, and the figures that were measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.safety import report
from tests.safety.rows import ROWS

MARK = re.compile(r"mark\.safety\(([^)]*)\)")


def marked(folder: Path) -> set[str]:
    """Rows that some test below `folder` is marked with."""
    texts = (path.read_text() for path in folder.rglob("test_*.py"))
    return {row for text in texts for mark in MARK.findall(text) for row in re.findall(r'"(\w+)"', mark)}


def test_every_row_has_a_test(repository: Path) -> None:
    assert ROWS.keys() - marked(repository / "tests") == set()


def test_a_planted_row_without_a_test_is_seen(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text('@pytest.mark.safety("R1", "S2")\ndef test_x(): ...\n')
    assert marked(tmp_path) == {"R1", "S2"}


def test_the_worst_of_several_measurements_is_shown() -> None:
    low = {"name": "x", "value": 1.0, "unit": "s", "bar": "≤ 2 s", "within": True}
    high, missed = low | {"value": 1.5}, low | {"value": 3.0, "within": False}
    assert report.merged([low, high]) == [high]
    assert report.merged([missed, high]) == [missed]
    share = low | {"bar": "≥ 1 s"}
    assert report.merged([share | {"value": 2.0}, share]) == [share]


def test_the_page_is_what_was_measured() -> None:
    text = report.PAGE.read_text()
    assert report.page(text, json.loads(report.RESULTS.read_text())) == text
