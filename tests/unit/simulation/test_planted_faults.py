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


def violation(fault: Fault, parts: WorldParts, seed: int) -> str | None:
    """The faults that the world of this seed tells."""
    those = [one for one in known() if fault.where in one.name]
    try:
        scenario = those[seed % len(those)]
        page = Page(others(scenario, fault.among) if fault.draws else (), fault.keeps, fault.moves)
        World(scenario, seed, chances=fault.chances, parts=parts, page=page).run()
    except Violation as found:
        return str(found)
    return None


@cache
def without(fault: Fault, seed: int) -> str | None:
    """The faults that the same world tells without a planted one. `fault`: as `unplanted` has it, for faults that share
    their worlds."""
    return violation(fault, REAL_PARTS, seed)


def unplanted(fault: Fault) -> Fault:
    return fault._replace(said="", parts=REAL_PARTS, patches=())


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_seed_alone(name: str) -> None:
    fault = FAULTS[name]
    with pytest.MonkeyPatch.context() as patched:
        for patch in fault.patches:
            patched.setattr(patch.owner, patch.name, patch.by)
        said = (violation(fault, fault.parts, seed) for seed in range(SEEDS))
        seed, first = next((seed, found) for seed, found in enumerate(said) if found is not None)
        assert f"seed {seed}, " in first
        assert fault.said in first
        assert violation(fault, fault.parts, seed) == first
    assert [without(unplanted(fault), seed) for seed in range(seed + 1)] == [None] * (seed + 1)
