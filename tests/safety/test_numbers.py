"""NaN and infinity: the cost of searching for them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.deployment import graph_named
from tests.support.local import LocalDeployment
from walkgraph.engine.calls import finite, runner
from walkgraph.placement.document import Group, Placement, RankDevice

CLOCK = time.perf_counter


@pytest.mark.safety("R13")
def test_what_the_search_for_numbers_that_are_none_costs(
    scale: Scale, figure: Figure, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: Counter[str] = Counter()

    class Timed(finite.FiniteCheck):
        def __init__(self, *given: Any) -> None:
            began = CLOCK()
            super().__init__(*given)
            spent["search"] += CLOCK() - began

    monkeypatch.setattr(runner, "FiniteCheck", Timed)
    one = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
    deployment = LocalDeployment(graph_named("shapes"), one, resident=False)
    spent.clear()
    began = CLOCK()
    deployment.submit("a", "text_to_image", {"steps": scale(4, 50)}, {"prompt": ["a red circle on white"]})
    deployment.run()
    whole = CLOCK() - began
    assert deployment.outputs["a"]["image"], deployment.failed
    assert spent["search"]
    figure("share of a step that the search takes, one row on a CPU", 100 * spent["search"] / whole, "%", at_most=1.0)
