"""`--safety-scale`, and fixtures for the tests of a row: the scale, and the store for figures.

    @pytest.mark.safety("R3")
    def test_...(scale: Scale, figure: Figure) -> None:
        for _ in range(scale(2, 50)): ...
        figure("workers gone", seconds, "s", at_most=1.0)

A bar is enforced at the long scale alone: load must not decide a test of everyday.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.safety.report import about
from tests.safety.rows import ROWS

T = TypeVar("T")
FIGURES = pytest.StashKey[list[dict[str, Any]]]()
RESULTS = pytest.StashKey[dict[str, list[dict[str, Any]]]]()


class Scale:
    def __init__(self, *, long: bool) -> None:
        self.long = long

    def __call__(self, short: T, long: T) -> T:
        return long if self.long else short


class Figure:
    """Keeps figures of one test's rows."""

    def __init__(self, rows: tuple[str, ...], kept: list[dict[str, Any]]) -> None:
        self._rows, self._kept = rows, kept
        self.missed: list[str] = []

    def __call__(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Keep a figure of the first of the test's rows."""
        bar = None if at_most is None and at_least is None else at_most if at_most is not None else at_least
        within = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        sign = "≤" if at_most is not None else "≥"
        said = "" if bar is None else f"{sign} {bar:g} {unit}".strip()
        self._kept.append(
            {"row": self._rows[0], "name": name, "value": value, "unit": unit, "bar": said, "within": within}
        )
        if not within:
            self.missed.append(f"{name}: {value:g} {unit}, the bar is {said}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("safety")
    group.addoption("--safety-scale", choices=("short", "long"), default="short", help="how far tests of a row go")
    group.addoption("--safety-rows", default="", help="rows whose tests are run, with commas; all by default")
    group.addoption("--safety-report", type=Path, help="a JSON file of rows, whose results are replaced or added")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    config.stash[RESULTS] = {}


@pytest.fixture(scope="session")
def scale(request: pytest.FixtureRequest) -> Scale:
    return Scale(long=request.config.getoption("--safety-scale") == "long")


@pytest.fixture
def figure(request: pytest.FixtureRequest, scale: Scale) -> Iterator[Figure]:
    """A test whose figures miss their bars fails at its end, so that all of them are known."""
    figure = Figure(rows_of(request.node), request.config.stash[FIGURES])
    yield figure
    assert not (scale.long and figure.missed), "; ".join(figure.missed)


def named_rows(config: pytest.Config) -> set[str]:
    return set(filter(None, config.getoption("--safety-rows").split(",")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = named_rows(config)
    if unknown := named - ROWS.keys():
        raise pytest.UsageError(f"no row {', '.join(sorted(unknown))}")
    if named:
        items[:] = [item for item in items if not named.isdisjoint(rows_of(item))]


def rows_of(item: pytest.Item) -> tuple[str, ...]:
    rows = tuple(row for mark in item.iter_markers("safety") for row in mark.args)
    unknown = [row for row in rows if row not in ROWS]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid}: no row {', '.join(unknown)}")
    return rows


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    began = time.monotonic()
    failed = item.session.testsfailed
    answer = yield
    for row in rows_of(item):
        passed = item.session.testsfailed == failed
        item.config.stash[RESULTS].setdefault(row, []).append(
            {"test": item.nodeid, "passed": passed, "seconds": round(time.monotonic() - began, 1)}
        )
    return answer


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    path: Path | None = session.config.getoption("--safety-report")
    if path is None or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    figures, results = session.config.stash[FIGURES], session.config.stash[RESULTS]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    run = named_rows(session.config) or ROWS.keys()
    for row in run:
        measured = [one for one in figures if one["row"] == row]
        kept[row] = {"about": about(row), "tests": results.get(row, []), "figures": measured}
    rows = {row: kept[row] for row in ROWS if row in kept}
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
