"""Memory: every contributor is counted once, a rank that can't hold one request is refused, with what would help."""

import pytest

from tests.support.placing import CATALOGUE, GIB, at, duet, hardware, placement, planned, sizes
from walkgraph.errors import NotFound
from walkgraph.graph.document import Weights
from walkgraph.placement.capacity.asked import PAGE
from walkgraph.placement.capacity.budget import RUNS, show_bytes
from walkgraph.placement.capacity.needs import CPU_MARGIN, GPU_MARGIN, SMALL_WORKSPACE
from walkgraph.placement.hardware import Hardware, reserve
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.sizes import WeightSizes
from walkgraph.placement.transports import declared_transports

ARENA = declared_transports()["cuda_ipc"].arena_bytes
MODEL, PAINT, TOKEN = GIB, GIB // 8, 1024


def budgets(result: PlanResult) -> list[dict[str, int]]:
    assert result.plan is not None, result.problems
    return [dict(rank.budget) for rank in result.plan.ranks]


def test_parts_are_counted_once_and_in_the_devices_size() -> None:
    # `llm`, `guide` and `keep` share the model; the painter's part keeps 32 bits everywhere.
    (gpu,) = budgets(planned(devices=("cuda:0",)))
    (cpu,) = budgets(planned(devices=("cpu",)))
    assert gpu["weights w"] == MODEL * 2 + PAINT * 4
    assert cpu["weights w"] == MODEL * 4 + PAINT * 4
    assert (gpu["margin"], cpu["margin"]) == (GPU_MARGIN, CPU_MARGIN)
    assert gpu["workspace"] == 64 * 2**20 * 2


def test_each_rank_pays_for_its_own() -> None:
    first, second = budgets(planned(at(1, "guide")))
    assert second["weights w"] == MODEL * 4
    assert "kv guide" in second
    assert "kv guide" not in first
    (_, painter) = budgets(planned(at(1, "say")))
    assert painter == {"workspace": SMALL_WORKSPACE, "margin": CPU_MARGIN}


def test_what_leaves_for_another_gpu_has_room_there() -> None:
    made = planned(at(1, "guide", "llm"), devices=("cuda:0", "cuda:1"))
    assert made.plan is not None
    assert [rank.arena_bytes for rank in made.plan.ranks] == [ARENA, ARENA]
    assert [budget["arena"] for budget in budgets(made)] == [ARENA, ARENA]
    for devices in (("cuda:0", "cpu"), ("cpu", "cpu")):
        made = planned(at(1, "guide", "llm"), devices=devices)
        assert made.plan is not None
        assert not any(rank.arena_bytes for rank in made.plan.ranks)


def test_a_state_of_a_default_request_goes_to_another_gpu_at_once() -> None:
    where = placement(at(1, "guide"), devices=("cuda:0", "cuda:1"))
    made = plan(duet(), where, hardware(100 * GIB, 100 * GIB), CATALOGUE, sizes(token=2 << 20))
    assert made.plan is not None
    assert made.plan.ranks[0].arena_bytes == (64 + PAGE) * (2 << 20) * 2 > ARENA


def test_a_state_that_leaves_in_parts_needs_no_room_for_all_of_it() -> None:
    where = placement(at(1, "llm", "say", walks=("decode",)), devices=("cuda:0", "cuda:1"))
    made = plan(duet(), where, hardware(100 * GIB, 100 * GIB), CATALOGUE, sizes(token=2 << 20))
    assert made.plan is not None
    assert {(copy.bytes > ARENA, copy.parts, copy.transport) for copy in made.copies} == {(True, True, "cuda_ipc")}
    assert [rank.arena_bytes for rank in made.plan.ranks] == [ARENA, ARENA]


def test_caches_fill_the_memory_that_groups_name() -> None:
    made = planned(at(0, "*", memory="10GiB"), devices=("cuda:0",))
    (budget,) = budgets(made)
    assert made.plan is not None
    assert sum(budget.values()) == 10 * GIB
    assert made.plan.ranks[0].kv_bytes == sum(size for name, size in budget.items() if name.startswith("kv "))


def test_caches_are_for_some_runs_where_nobody_names_memory() -> None:
    made = planned(devices=("cuda:0",), host=hardware(100 * GIB))
    assert made.plan is not None
    assert made.plan.ranks[0].kv_bytes == RUNS * 3 * (512 + PAGE) * TOKEN * 2


def test_who_names_no_memory_leaves_room_for_others() -> None:
    largest, fixed = 3 * (512 + PAGE) * TOKEN * 2, MODEL * 2 + PAINT * 4 + 128 * 2**20 + GPU_MARGIN
    left = hardware(fixed + 8 * largest)
    made = planned(devices=("cuda:0",), host=left)
    assert made.plan is not None
    assert made.plan.ranks[0].kv_bytes == 4 * largest
    left = reserve(hardware(2 * fixed + 8 * largest), [made.plan])
    assert planned(devices=("cuda:0",), host=left).deployable, "a second one finds room beside it"


@pytest.mark.parametrize(
    ("room", "kv"),
    [(1.5, 1.0), (0.9, 0.45), (100, RUNS)],
    ids=["one largest request takes more than half", "one that doesn't fit takes no more", "never more than so many"],
)
def test_caches_nobody_sized_hold_a_largest_request_where_one_fits(room: float, kv: float) -> None:
    largest, fixed = 3 * (512 + PAGE) * TOKEN * 2, MODEL * 2 + PAINT * 4 + 128 * 2**20 + GPU_MARGIN
    made = planned(devices=("cuda:0",), host=hardware(fixed + int(room * largest)))
    assert made.plan is not None
    assert made.plan.ranks[0].kv_bytes == int(kv * largest)


def test_a_rank_without_caches_has_no_bytes_for_them() -> None:
    made = planned(at(1, "say"))
    assert made.plan is not None
    assert made.plan.ranks[1].kv_bytes == 0


def test_percentages_are_of_what_is_free() -> None:
    (budget,) = budgets(planned(at(0, "*", memory="50%"), devices=("cuda:0",), host=hardware(12 * GIB)))
    assert sum(budget.values()) == 6 * GIB


def test_ranks_without_a_figure_share_what_the_others_leave() -> None:
    host: Hardware = hardware(cpu=30 * GIB)
    made = planned(at(1, "guide", memory="10GiB"), host=host)
    first, second = budgets(made)
    assert sum(second.values()) == 10 * GIB
    assert sum(first.values()) <= 20 * GIB


def test_what_does_not_fit_is_named_with_the_largest_fix() -> None:
    made = planned(at(0, "*", memory="2GiB"), devices=("cuda:0",))
    assert made.plan is None
    (problem,) = (p for p in made.problems if p.code == "does_not_fit")
    weights, caches = MODEL * 2 + PAINT * 4, (64 + PAGE) * TOKEN * 2
    need = weights + 3 * caches + 128 * 2**20 + GPU_MARGIN
    assert problem.pointer == "/ranks/0"
    assert f"needs {need} bytes" in problem.message
    for name, size in (("weights `w`", weights), ("caches of `main`", caches), ("margin", GPU_MARGIN)):
        assert f"{name} {show_bytes(size)}" in problem.message
    assert "workspace 128 MiB" in problem.message
    assert f"give its groups {need - 2 * GIB} bytes" in problem.message


def test_a_device_that_is_too_small_asks_for_another() -> None:
    made = planned(devices=("cuda:0",), host=hardware(3 * GIB))
    (problem,) = (p for p in made.problems if p.code == "does_not_fit")
    assert "place some of `llm`, `guide`, `paint`, `keep` on another device, or use one with" in problem.message
    assert made.budgeted is not None
    (rank,) = made.budgeted.ranks
    assert made.capacities == {0: 3 * GIB}
    assert dict(rank.budget)["weights w"] == MODEL * 2 + PAINT * 4
    assert sum(size for _, size in rank.budget) > 3 * GIB
    assert f"needs {sum(size for _, size in rank.budget)} bytes" in problem.message


def test_budgets_stay_within_what_a_rank_may_fill() -> None:
    made = planned(at(1, "guide"), devices=("cpu", "cuda:0"))
    assert made.budgeted is made.plan is not None
    for rank in made.plan.ranks:
        assert 0 < sum(size for _, size in rank.budget) <= made.capacities[rank.rank]
        assert {name.split(" ")[0] for name, _ in rank.budget} <= {"weights", "kv", "workspace", "margin"}


def test_ranks_may_not_have_more_than_their_device() -> None:
    made = planned(at(0, "*", memory="20GiB"), at(1, "guide", memory="20GiB"))
    (problem,) = (p for p in made.problems if p.code == "device_full")
    assert "`cpu` has 32.0 GiB free and its ranks are given 40.0 GiB" in problem.message
    assert made.plan is None


def test_that_the_largest_request_does_not_fit_is_a_warning() -> None:
    least = MODEL * 2 + PAINT * 4 + 128 * 2**20 + GPU_MARGIN + 3 * (64 + PAGE) * TOKEN * 2
    made = planned(at(0, "*", memory=least), devices=("cuda:0",))
    (problem,) = (p for p in made.problems if p.code == "small_cache")
    assert problem.severity == "warning"
    assert made.deployable


def test_each_state_has_room_for_a_default_request_before_it_shares_in_the_rest() -> None:
    graph = duet()
    fixed = graph.states["guide"].model_copy(update={"capacity": "60"})
    graph = graph.model_copy(update={"states": {**graph.states, "guide": fixed}})
    least = MODEL * 2 + PAINT * 4 + 128 * 2**20 + GPU_MARGIN + 3 * (64 + PAGE) * TOKEN * 2
    where = placement(at(0, "*", memory=least), devices=("cuda:0",))
    (budget,) = budgets(plan(graph, where, hardware(100 * GIB), CATALOGUE, sizes()))
    assert [size for name, size in budget.items() if name.startswith("kv ")] == [(64 + PAGE) * TOKEN * 2] * 3


def test_weights_that_are_not_there_can_be_planned_and_not_deployed() -> None:
    def missing(weights: Weights) -> WeightSizes:
        raise NotFound("there are no weights `x`")

    graph = duet()
    found = graph.weights["w"].model_copy(update={"source": "checkpoint:x"})
    made = plan(graph.model_copy(update={"weights": {"w": found}}), placement(), hardware(), CATALOGUE, missing)
    assert [(p.code, p.pointer) for p in made.graph_problems] == [("no_weights", "/weights/w/source")]
    assert made.plan is not None
    assert not made.deployable
    # The caches' tokens have no known size, yet the rank gets room for them.
    assert made.plan.ranks[0].kv_bytes > 0


def test_states_that_change_rank_tell_their_bytes() -> None:
    made = planned(at(1, "llm", "say", walks=("decode",)))
    assert [(c.state, c.source, c.target, c.bytes, c.largest) for c in made.copies] == [
        (0, 0, 1, (64 + PAGE) * TOKEN * 4, (512 + PAGE) * TOKEN * 4),
        (0, 1, 0, (64 + PAGE) * TOKEN * 4, (512 + PAGE) * TOKEN * 4),
    ]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 * GIB, "200 GiB"), (3 * 2**50, "3072 TiB")]
)
def test_bytes_are_shown_with_units(size: int, text: str) -> None:
    assert show_bytes(size) == text


def test_unknown_sizes_say_so() -> None:
    def unknown(weights: Weights) -> WeightSizes:
        raise NotFound("the sizes of family `t` are not known")

    made = plan(duet(), placement(), hardware(), CATALOGUE, unknown)
    (problem,) = (p for p in made.graph_problems if p.code == "unknown_size")
    assert "the budgets leave them out" in problem.message
    assert made.deployable
    assert sizes()(duet().weights["w"]).part_bytes("model", 2) == 2 * GIB
