"""One partition speaks what another one thinks, item by item: it may go on after the last item, or end before it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from walkgraph.graph import codec
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.simulation.kinds.talkers import COMPONENTS, TALKERS, drawn, talker_scenario, talkers
from walkgraph.simulation.scenarios import placed
from walkgraph.simulation.schedules import CALM
from walkgraph.simulation.world import World

SEEDS = 2 * TALKERS


def test_most_talkers_read_their_items_on_the_device() -> None:
    assert COMPONENTS["test.talker"].itemwise == ("b",)
    resident = [loop for one in talkers() for walk in one.plan.walks for loop in walk.loops if loop.name == "frames"]
    told = [loop.why for loop in resident if loop.resident]
    assert len(told) > TALKERS / 2
    assert all("`said` feeds it item by item" in why for why in told)
    assert {drawn(seed).talker for seed in range(TALKERS)} == {"test.talker", "test.slow"}


def test_speech_of_every_length_ends_as_by_the_book() -> None:
    scenarios, ends = talkers(), Counter[str]()
    for seed in range(SEEDS):
        ends += World(scenarios[seed % TALKERS], seed, chances=CALM).run().ends
    assert ends["done"] > SEEDS
    assert ends.keys() <= {"done", "not_found"}


@pytest.mark.parametrize(
    ("number", "seed"),
    [(5, 5), (7, 7), (9, 9), (22, 22), (5, 29), (9, 33), (22, 46)],
)
def test_thinking_goes_on_once_the_speech_has_ended(number: int, seed: int) -> None:
    # It stalled: nobody gave credit for what no loop read any more.
    assert World(talker_scenario(number), seed).run().ends


def test_an_item_of_several_numbers_ends_its_run_and_no_process() -> None:
    scenario = talker_scenario(0)
    document = codec.dump(scenario.graph)
    document["streams"][0]["from"] = "t.many"
    graph = codec.load(document)
    plan = assemble(Assignment(graph, placed(drawn(0).ranks, 1)), COMPONENTS)
    requests = [replace(one, outputs={}, fails=True) for one in scenario.requests]
    ends = World(replace(scenario, graph=graph, plan=plan, requests=requests), 3, chances=CALM).run().ends
    assert ends["node_error"] > 0
    assert ends.keys() <= {"node_error", "not_found"}
