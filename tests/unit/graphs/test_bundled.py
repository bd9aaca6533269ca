"""Every bundled graph and placement is sound: as the editor saves it, without a problem, and it can be planned."""

import inspect
import json
import textwrap
from dataclasses import replace
from typing import Any

import pytest

from walkgraph.components import catalogue, families
from walkgraph.graph import build, codec
from walkgraph.graph.check import check
from walkgraph.placement.document import Placement, decode
from walkgraph.placement.hardware import Device, Hardware, reserve
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.sizes import GROUPED, SCALED, find_sizes
from walkgraph.resources import bundled

GRAPHS = bundled("graphs")
PLACEMENTS = bundled("placements")
GiB = 2**30
NOTES = {"unavailable", "crossing_loop"}
"""Problems that their plans may have: missing networks, and a loop that crosses processes on purpose."""


CARDS = {"H100": (79.2, 78.0), "H200": (140.0, 139.0), "4090": (24.0, 23.2), "4060": (8.0, 7.6), "6 GB": (6.0, 5.8)}
"""GPU -> GiB that it has, and that its driver leaves."""
TOO_LARGE = {
    "4090": {
        "bagel": "weights `bagel`",
        "vjepa2_ac": "caches of `samples`",
        "qwen3_omni": "weights `omni`",
    },
    "4060": {
        "bagel": "weights `bagel`",
        "vjepa2_ac": "caches of `samples`",
        "qwen3_omni": "weights `omni`",
        "llm": "weights `llm`",
        "orpheus": "weights `orpheus`",
        "pi05": "weights `pi05`",
    },
}
"""GPU -> graph whose least need is more than it has -> what takes most."""
TIGHT = {("H100", "qwen3_omni_one_gpu")}
"""GPUs and placements that leave little for caches beside the weights."""


def host(gpus: int, card: str = "H200") -> Hardware:
    cpu = Device(name="cpu", total=128 * GiB, free=120 * GiB)
    total, free = (int(size * GiB) for size in CARDS[card])
    cards = [Device(name=f"cuda:{i}", total=total, free=free) for i in range(gpus)]
    return Hardware(host="one", cores=16, shm=64 * GiB, devices=(cpu, *cards))


def placement_of(name: str) -> Placement:
    return decode(json.loads(PLACEMENTS[name].read_text()))


def planned(name: str, hardware: Hardware, **changed: str) -> PlanResult:
    """`changed`: entries of its first group."""
    placement = placement_of(name)
    first, *others = placement.groups
    placement = placement.model_copy(update={"groups": (first.model_copy(update=changed), *others)})
    assert placement.graph is not None
    graph = codec.load(GRAPHS[placement.graph].read_bytes())
    return plan(graph, placement, hardware, catalogue(), find_sizes(families()))


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_stands_as_the_editor_saves_it(name: str) -> None:
    text = GRAPHS[name].read_text()
    graph = codec.load(text)
    assert graph.name == name
    assert json.dumps(codec.dump(graph)) == json.dumps(json.loads(text)), "write it anew with `codec.dumps`"


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_has_no_problem_but_networks_to_come(name: str) -> None:
    report = check(json.loads(GRAPHS[name].read_text()), catalogue())
    assert [problem for problem in report.problems if problem.code != "component_unavailable"] == []
    assert report.graph is not None


def test_the_starter_graphs_have_no_problem_at_all() -> None:
    names = [name for name in GRAPHS if name.startswith(("shapes", "bagel", "synthetic", "reach", "world", "voice"))]
    assert len(names) == 14
    assert [check(json.loads(GRAPHS[name].read_text()), catalogue()).problems for name in names] == [()] * len(names)


def test_the_example_in_python_is_part_of_the_starter_graph() -> None:
    names: dict[str, Any] = {}
    example = inspect.cleandoc(str(build.__doc__)).split("\n\n", 1)[1].rsplit("\n\n", 1)[0]
    exec(
        compile(f"from walkgraph.graph.build import GraphBuilder\n{textwrap.dedent(example)}", "example", "exec"), names
    )
    graph, shapes = names["graph"], codec.load(GRAPHS["shapes"].read_bytes())
    assert check(graph, catalogue()).problems == ()
    assert {name: shapes.walks[name] for name in graph.walks} == graph.walks
    assert {name: shapes.nodes[name].component for name in graph.nodes} == {
        name: node.component for name, node in graph.nodes.items()
    }


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_has_a_placement(name: str) -> None:
    assert name in {placement_of(p).graph for p in PLACEMENTS}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_placement_makes_a_plan(name: str) -> None:
    assert placement_of(name).name == name
    result = planned(name, host(gpus=4))
    assert [p for p in result.problems if p.code not in NOTES] == []
    assert result.plan is not None


@pytest.mark.parametrize(
    "name",
    [name for name in PLACEMENTS if name.startswith(("shapes_", "synthetic_", "bagel_", "reach_", "world_", "voice_"))],
)
def test_networks_and_weights_are_here(name: str) -> None:
    assert planned(name, host(gpus=4)).deployable


@pytest.mark.parametrize("name", [name for name in PLACEMENTS if name.endswith(("_cpu", "_ranks"))])
def test_a_laptop_is_enough_for_the_placements_on_cpus(name: str) -> None:
    laptop = Hardware(host="laptop", cores=2, shm=2 * GiB, devices=(Device(name="cpu", total=8 * GiB, free=4 * GiB),))
    assert planned(name, laptop).plan is not None


def test_a_placement_on_gpus_needs_them() -> None:
    assert planned("bagel_one_gpu", host(gpus=0)).plan is None


@pytest.mark.parametrize("name", [name for name in PLACEMENTS if "gpu" in name or name == "bagel_cfg3"])
@pytest.mark.parametrize("card", [card for card in CARDS if card != "6 GB"])
def test_a_placement_fits_any_gpu_that_holds_the_least_it_needs(card: str, name: str) -> None:
    result = planned(name, host(gpus=4, card=card))
    largest = TOO_LARGE.get(card, {}).get(str(placement_of(name).graph))
    if largest is None:
        tight = {"small_cache"} if (card, name) in TIGHT else set[str]()
        assert {problem.code for problem in result.problems} <= NOTES | tight
        return
    assert result.plan is None
    told = {problem.code: problem.message for problem in result.problems if problem.severity == "error"}
    assert told.keys() <= {"does_not_fit", "device_full"}
    assert all(f": {largest} " in message for message in told.values() if "rank 0" in message)


def test_a_placement_that_keeps_experts_in_eight_bits_needs_half_their_memory_once_they_are_read() -> None:
    whole, half = planned("qwen3_omni_one_gpu", host(1)).plan, planned("qwen3_omni_one_80gb_gpu", host(1, "H100")).plan
    assert whole is not None
    assert half is not None
    experts = 48 * 128 * 3 * 2048 * 768
    saved = dict(whole.ranks[0].budget)["weights omni"] - dict(half.ranks[0].budget)["weights omni"]
    assert saved == experts - experts * 4 // SCALED
    formats = {node.name: node.params["precision"] for node in half.nodes if "precision" in node.params}
    assert formats == {"thinker": "fp8"}
    small = host(1)
    (cpu, gpu) = small.devices
    refused = planned("qwen3_omni_one_80gb_gpu", replace(small, devices=(cpu, replace(gpu, free=60 * GiB))))
    assert refused.plan is None
    assert any("before their experts are converted 66." in problem.message for problem in refused.problems)


def test_four_bits_fit_where_two_bytes_do_not() -> None:
    small = host(1, "6 GB")
    result = planned("orpheus_6gb", small)
    assert result.plan is not None
    assert {problem.code for problem in result.problems} <= NOTES | {"small_cache"}, (
        "only the largest requests are refused"
    )
    parts = dict(result.plan.ranks[0].budget)
    linears = 28 * (3072 * (3072 + 2 * 1024) + 3072 * 3072 + 3 * 3072 * 8192)
    assert parts["weights orpheus"] == 2 * (3_300_867_072 - linears) + linears // 2 + 2 * linears // GROUPED
    assert {node.params["precision"] for node in result.plan.nodes if node.name == "llm"} == {"int4"}
    assert sum(parts.values()) <= small.devices[1].free
    assert planned("orpheus_one_gpu", small).plan is None


def test_a_precision_is_for_the_nodes_that_offer_it() -> None:
    result = planned("qwen3_omni_one_80gb_gpu", host(1), precision="int4")
    assert result.plan is not None
    assert {node.params["precision"] for node in result.plan.nodes if "precision" in node.params} == {"bf16"}


@pytest.mark.parametrize(
    "names",
    [
        ("pi05_one_gpu", "vjepa2_ac_one_gpu"),
        ("vjepa2_ac_one_gpu", "pi05_one_gpu"),
        ("orpheus_one_gpu", "orpheus_one_gpu"),
        ("shapes_one_gpu", "world_one_gpu", "reach_one_gpu", "orpheus_one_gpu", "pi05_one_gpu"),
    ],
    ids="+".join,
)
def test_placements_that_share_a_gpu_take_what_is_left(names: tuple[str, ...]) -> None:
    left = host(gpus=1, card="H100")
    for name in names:
        made = planned(name, left).plan
        assert made is not None, name
        left = reserve(left, [made])
