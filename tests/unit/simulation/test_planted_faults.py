"""A world finds planted faults within a few seeds, and finds nothing in the same seeds without them."""

from functools import cache

import pytest

from tests.unit.simulation.faults import FAULTS, Fault
from walkgraph.placement.succession import same_processes
from walkgraph.simulation.kinds.chained import chained
from walkgraph.simulation.kinds.deferring import deferring
from walkgraph.simulation.kinds.moving import moving
from walkgraph.simulation.kinds.replicated import replicated
from walkgraph.simulation.kinds.talkers import talkers
from walkgraph.simulation.page import Page
from walkgraph.simulation.processes import REAL_PARTS, WorldParts
from walkgraph.simulation.scenarios import Scenario, scenarios
from walkgraph.simulation.simulator import Violation
from walkgraph.simulation.world import World

SEEDS = 200
"""In which a fault must be found."""


@cache
def known() -> tuple[Scenario, ...]:
    return (*scenarios(), *talkers(), *chained(), *deferring(), *replicated(), *moving())


def others(scenario: Scenario, among: tuple[str, ...]) -> tuple[Scenario, ...]:
    """Some that its processes can serve, with as many pages, by which a world is judged. `among`: those with one of
    these in their names, itself among them."""
    some = [one for one in known() if any(name in one.name for name in among)]
    some = some or [one for one in known()[::11] if one is not scenario]
    return tuple(one for one in some if one.pages == scenario.pages and same_processes(scenario.plan, one.plan))


def found(fault: Fault, parts: WorldParts, seeds: range) -> tuple[int, str] | None:
    """The first seed in which a world is at fault, and what it says."""
    those = [one for one in known() if fault.where in one.name]
    for seed in seeds:
        try:
            scenario = those[seed % len(those)]
            drawn = others(scenario, fault.among)
            page = Page(drawn if fault.draws else (), fault.keeps, fault.moves)
            World(scenario, seed, chances=fault.chances, parts=parts, page=page).run()
        except Violation as violation:
            return seed, str(violation)
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_seed_alone(name: str) -> None:
    fault = FAULTS[name]
    with pytest.MonkeyPatch.context() as patched:
        for patch in fault.patches:
            patched.setattr(patch.owner, patch.name, patch.by)
        seen = found(fault, fault.parts, range(SEEDS))
        assert seen is not None
        seed, said = seen
        assert f"seed {seed}, " in said
        assert fault.said in said
        assert found(fault, fault.parts, range(seed, seed + 1)) == seen
    assert found(fault, REAL_PARTS, range(seed + 1)) is None
