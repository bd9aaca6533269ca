"""Which ports come back from a device: what ends a loop is read by the worker that steps it."""

from tests.support.placing import CATALOGUE, at, duet, placement
from walkgraph.engine.load import rank_plan
from walkgraph.engine.reading import host_ports
from walkgraph.ids import Rank
from walkgraph.placement.assemble import assemble
from walkgraph.placement.assignment import Assignment


def test_what_ends_a_loop_comes_back_on_the_rank_that_gives_it() -> None:
    where = placement(at(1, "guide", "paint"), devices=("cuda:0", "cuda:1"))
    plan = assemble(Assignment(duet(), where), CATALOGUE)
    here, there = (host_ports(plan, rank_plan(plan, Rank(rank))) for rank in (0, 1))
    assert "stop" in here["llm"]
    assert "token" in here["llm"], "`say`, which reads it, is on the host"
    assert "velocity" not in here["llm"]
    assert all("stop" not in ports for ports in there.values())
