"""Walks with many choices: the work of preparing a rank's tables grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.unit.placement.test_growth import by_merge, by_value, uses
from walkgraph.components import catalogue, families
from walkgraph.graph.check import check
from walkgraph.ids import Rank
from walkgraph.placement.document import default_placement
from walkgraph.placement.hardware import find_hardware
from walkgraph.placement.plan import plan
from walkgraph.placement.sizes import find_sizes
from walkgraph.worker.tables.rank_tables import walk_tables


def lines(value: dict[str, Any]) -> int:
    """Lines that run, also those of a comprehension again and again, while the tables are prepared."""
    hardware, known = find_hardware(), catalogue()
    graph = check(value, known).graph
    assert graph is not None
    made = plan(graph, default_placement(graph, hardware), hardware, known, find_sizes(families())).plan
    assert made is not None
    count = 0

    def on(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return on

    before = sys.gettrace()
    sys.settrace(on)
    try:
        walk_tables(made, Rank(0))
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("make", [by_value, by_merge, uses])
def test_twice_the_choices_take_about_twice_the_work(make: Callable[[int], dict[str, Any]]) -> None:
    lines(make(1))  # what is cached once
    least, some, twice = (lines(make(count)) for count in (1, 41, 81))
    assert (twice - least) / (some - least) < 2.4, (least, some, twice)
