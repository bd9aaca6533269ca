"""The processes of a plan can serve some others, and not all."""

from msgspec.structs import replace

from tests.support.deployment import plan_named
from tests.support.placing import at, planned
from walkgraph.placement.succession import same_processes
from walkgraph.placement.tables import Plan

ONE = plan_named("synthetic_states", ranks=1)[1]
TWO = plan_named("synthetic_states")[1]


def test_another_graph_on_the_same_ranks_needs_no_other_processes() -> None:
    assert same_processes(ONE, plan_named("synthetic_loops", ranks=1)[1])
    assert same_processes(TWO, TWO)


def test_other_ranks_devices_and_memory_need_others() -> None:
    assert not same_processes(ONE, TWO)
    assert not same_processes(ONE, replace(ONE, ranks=(replace(ONE.ranks[0], device="cuda:0"),)))
    assert not same_processes(ONE, replace(ONE, ranks=(replace(ONE.ranks[0], host="far"),)))
    assert not same_processes(TWO, replace(TWO, ranks=(TWO.ranks[0], replace(TWO.ranks[1], arenas={"cuda_ipc": 1}))))


def test_a_loop_that_spans_ranks_ties_their_memory() -> None:
    made = planned(at(1, "guide"), at(1, "voice")).plan
    assert made is not None
    assert same_processes(made, made) == (not _spans(made))


def _spans(plan: Plan) -> bool:
    """The naive way: some loop's core has uses of two ranks."""
    return any(len({walk.uses[use].rank for use in loop.core}) > 1 for walk in plan.walks for loop in walk.loops)
