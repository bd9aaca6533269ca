"""What a run's end tells of it: tokens that were read, those that were there already, how its loops ended."""

import pytest

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_shapes_on_ranks import picture
from tests.unit.graphs.test_shapes_on_the_device import PLACEMENTS, deployment
from walkgraph.wire import messages as m

LONG = "a small red circle left of a large blue square " * 4


def end(local: LocalDeployment, run: str) -> tuple[int, int, list[tuple[str, str, int, bool]]]:
    """(read, found, loops) as the conductor adds them up."""
    told = local.ends[run]
    loops = [(one.walk, one.loop, one.iterations, one.stopped) for rank in told for one in rank.loops]
    return *max((rank.read, rank.found) for rank in told), loops


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("resident", [True, False])
def test_an_answer_that_its_count_ends_is_told_as_such(placement: str, resident: bool) -> None:
    local = deployment(placement, resident)
    local.submit("counted", "image_to_text", {"max_tokens": 5}, {"image": [picture()]})
    local.run()
    read, found, loops = end(local, "counted")
    assert loops == [("decode", "tokens", 5, False)]
    assert read > 0
    assert found == 0
    local.submit("again", "image_to_text", {"max_tokens": 2}, {"image": [picture(), picture()]})
    local.run()
    assert end(local, "again")[0] == 2 * read


def test_an_answer_that_ends_by_itself_is_told_as_such() -> None:
    """Of many seeds, some draw the end before the count; the stepped twin draws the same."""
    ends: list[list[m.LoopEnd]] = []
    for resident in (True, False):
        local = deployment("shapes_one_cpu", resident)
        for seed in range(24):
            params = {"max_tokens": 200, "temperature": 2.0, "seed": seed}
            local.submit(f"drawn {seed}", "image_to_text", params, {"image": [picture()]})
        local.run()
        ends.append([local.ends[f"drawn {seed}"][0].loops[0] for seed in range(24)])
    assert ends[0] == ends[1]
    assert any(one.stopped for one in ends[0])
    assert all(one.iterations == 200 for one in ends[0] if not one.stopped)


def test_what_runs_before_it_read_is_found() -> None:
    local = deployment("shapes_one_cpu", True)
    for run in ("first", "second"):
        local.submit(run, "text_to_image", {"steps": 2}, {"prompt": [LONG]})
        local.run()
    first, second = end(local, "first"), end(local, "second")
    assert first[0] == second[0]
    assert first[1] == 0
    assert 0 < second[1] < second[0]
    assert first[2] == []
