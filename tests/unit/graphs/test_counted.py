"""The usage of a finished run: tokens read, tokens found in caches, and how its loops ended."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_orpheus_on_ranks import deployment as spoken
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from tests.unit.graphs.test_shapes_on_ranks import picture
from tests.unit.graphs.test_shapes_on_the_device import PLACEMENTS, deployment
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.graph import codec
from walkgraph.wire import messages as m

MOST, SEEDS = 60, range(15, 22)
LONG = "a small red circle left of a large blue square " * 4


def end(local: LocalDeployment, run: str) -> tuple[int, int, list[tuple[str, str, int, str]]]:
    """(read, found, loops) as the conductor adds them up."""
    told = local.ends[run]
    loops = [(one.walk, one.loop, one.iterations, one.reason) for rank in told for one in rank.loops]
    return *max((rank.read, rank.found) for rank in told), loops


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("resident", [True, False])
def test_an_answer_that_its_count_ends_is_told_as_such(placement: str, resident: bool) -> None:
    local, shown = deployment(placement, resident), picture((64, 48))  # which no other test shows to it
    local.submit("counted", "image_to_text", {"max_tokens": 5}, {"image": [shown]})
    local.run()
    read, found, loops = end(local, "counted")
    assert loops == [("decode", "tokens", 5, "bound")]
    assert read > 0
    assert found == 0
    local.submit("again", "image_to_text", {"max_tokens": 2}, {"image": [shown, shown]})
    local.run()
    assert end(local, "again")[0] == 2 * read


def test_an_answer_that_ends_by_itself_is_told_as_such() -> None:
    """Among many seeds, some draw the end before the count; the stepped twin draws the same."""
    ends: list[list[m.LoopEnd]] = []
    for resident in (True, False):
        local = deployment("shapes_one_cpu", resident)
        for seed in SEEDS:
            params = {"max_tokens": MOST, "temperature": 2.0, "seed": seed}
            local.submit(f"drawn {seed}", "image_to_text", params, {"image": [picture()]})
        local.run()
        ends.append([local.ends[f"drawn {seed}"][0].loops[0] for seed in SEEDS])
    assert ends[0] == ends[1]
    assert any(one.reason == "stop" for one in ends[0])
    assert all(one.iterations == MOST for one in ends[0] if one.reason == "bound")


def voice() -> LocalDeployment:
    return spoken("orpheus_one_gpu")


def chat() -> LocalDeployment:
    document = json.loads(GRAPHS["bagel"].read_text())
    document["weights"]["bagel"]["source"] = "random:bagel-tiny:0"
    return LocalDeployment(codec.load(document), on_cpus("bagel_one_gpu"))


@pytest.mark.parametrize(
    ("made", "task", "params", "name", "whole"),
    [
        (lambda: deployment("shapes_one_cpu", True), "text_to_image", {"steps": 2}, "prompt", False),
        (chat, "image_to_text", {"max_tokens": 2}, "prompt", True),
        (voice, "speak", {"max_tokens": 35}, "text", False),
    ],
    ids=["picture", "chat", "voice"],
)
def test_what_runs_before_it_read_is_found(
    made: Callable[[], LocalDeployment], task: str, params: dict[str, Any], name: str, whole: bool
) -> None:
    """`whole`: nothing reads an output of the call that reads the text."""
    local = made()
    for run in ("first", "second"):
        local.submit(run, task, params, {name: [LONG]})
        local.run()
    first, second = end(local, "first"), end(local, "second")
    assert first[0] == second[0]
    assert first[1] == 0
    # Otherwise whole pages, but for that of the last token.
    assert second[1] == (second[0] if whole else (second[0] - 1) // PAGE * PAGE) > 0
