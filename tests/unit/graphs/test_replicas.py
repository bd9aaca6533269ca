"""A run gives the same values on any of its replicas."""

import json
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_shapes_on_ranks import picture
from tests.unit.graphs.test_tasks_run import SAMPLES, asked, fake
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.document import Graph
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expanded_request
from walkgraph.placement.request import fill_params, name_inputs

KINDS = ("2 whole", "2 of some", "3 whole", "3 of some")
CASES = [
    (graph, task, KINDS[number % len(KINDS)])
    for number, (graph, task) in enumerate(
        (name, task) for name, path in sorted(GRAPHS.items()) for task in codec.load(path.read_bytes()).tasks
    )
]


def placed(graph: Graph, kind: str) -> Placement:
    """`whole`: replicas of all nodes. `of some`: of those that keep states, beside a rank with the others."""
    count, keeping = int(kind[0]), tuple(name for name, node in graph.nodes.items() if node.states)
    whole = kind.endswith("whole") or not keeping
    replicas = tuple(range(count)) if whole else tuple(range(1, count + 1))
    groups = (
        Group(nodes=("*",), ranks=(0,)),
        Group(nodes=("*",) if whole else keeping, ranks=replicas, replicas=count),
    )
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(replicas[-1] + 1))
    return Placement(name="replicas", groups=groups, ranks=ranks)


@pytest.mark.parametrize(("graph", "task", "kind"), CASES, ids=str)
def test_a_task_runs_to_its_end_on_any_replicas(graph: str, task: str, kind: str) -> None:
    document = codec.load(GRAPHS[graph].read_bytes())
    plan = assemble(Assignment(document, placed(document, kind)), catalogue())
    declared = document.tasks[task]
    params: dict[str, Scalar] = {name: asked(name, param) for name, param in declared.params.items()} | {"seed": 1}
    inputs = {name: [SAMPLES[given.modality]] for name, given in declared.inputs.items()}
    given = name_inputs(declared, inputs)
    cluster = Cluster(plan, {name: lambda call: fake(document, call) for name in document.nodes}, 1)
    used: list[set[int]] = []
    for one in plan.alternatives:
        filled = fill_params(declared, params)
        itinerary = expanded_request(Facts(plan, one.index), declared, filled, given, None, whole=True).itinerary
        run = f"run {one.index}"
        cluster.start(run, itinerary, filled, {value.name: value.value for value in given})
        used.append({*itinerary.ranks})
    cluster.run()
    for one, ranks in zip(plan.alternatives, used, strict=True):
        assert cluster.done(f"run {one.index}") == ranks
        assert ranks <= {*one.ranks}
    shared = set[int]().union(*used) - plan.replicated
    assert all(ranks - shared for ranks in used) or len({frozenset(ranks) for ranks in used}) == 1


@pytest.mark.parametrize("kind", ["2 whole", "3 of some"])
def test_replicas_give_the_bits_that_one_gives(kind: str) -> None:
    """Loops are stepped everywhere: on one rank the starter's loops would otherwise run whole."""
    document: dict[str, Any] = json.loads(GRAPHS["shapes"].read_text())
    document["weights"]["shapes"]["source"] = "random:bagel-tiny:0"
    document["nodes"]["noise"]["params"]["channels"] = 16
    graph = codec.load(document)
    options: dict[str, Any] = {"threads": 1, "resident": False, "batch_invariant": True}
    one = LocalDeployment(graph, placed(graph, "1 whole"), **options)
    several = LocalDeployment(graph, placed(graph, kind), **options)
    runs = {
        "edit": ({"steps": 3, "cfg_img_scale": 1.5}, {"image": [picture()], "instruction": ["make it blue"]}),
        "image_to_text": ({"max_tokens": 6, "temperature": 0.8}, {"image": [picture()]}),
    }
    for task, (params, inputs) in runs.items():
        one.submit(task, task, params, inputs)
        for alternative in several.plan.alternatives:
            several.submit(f"{task} {alternative.index}", task, params, inputs, alternative=alternative.index)
    one.run()
    several.run()
    assert not one.failed
    assert not several.failed
    for task in runs:
        assert one.outputs[task]
        for alternative in several.plan.alternatives:
            assert several.outputs[f"{task} {alternative.index}"] == one.outputs[task]
