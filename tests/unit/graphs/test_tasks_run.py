"""Every bundled task under every bundled placement runs to its end on simulated ranks, and gives all its outputs.

The nodes are fakes: each output port gives a value of its type, so what is tested is the drawing, not the networks.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.support.cluster import Cluster
from tests.unit.graphs.test_bundled import GRAPHS, PLACEMENTS, placement_of
from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Port, Scalar
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.graph.document import Graph, Task, TaskParam
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import name_inputs

SIZE = 8
"""Size of every named axis: enough slices for every loop."""
FEW = 4
SAMPLES: dict[str, Any] = {
    "text": "text",
    "messages": Conversation(
        (
            Turn("user", (TurnPart("text", "text"), TurnPart("image", b"image"))),
            Turn("assistant", (TurnPart("text", "text"),)),
            Turn("user", (TurnPart("text", "text"),)),
        )
    ),
    "image": b"image",
    "audio": b"audio",
    "video": b"video",
    "state": torch.zeros(SIZE),
    "actions": torch.zeros(SIZE, 7),
    "tensor": torch.zeros(SIZE, 2),
}


def value_of(port: Port, params: Mapping[str, Any]) -> Any:
    """A value of a port's type. An axis that is named like a parameter has its size."""
    kind = port.type
    if kind.dtype == "bool":
        return False
    if kind.dtype in ("str", "bytes"):
        return "text" if kind.dtype == "str" else b"bytes"
    if kind.shape is None:
        return 1
    sizes = [size if isinstance(size, int) else params.get(size, SIZE) for size in kind.shape if size != "..."]
    return torch.zeros([size if isinstance(size, int) else SIZE for size in sizes])


def misfit(port: Port, value: Any) -> str | None:
    """Why a value isn't what the port's type says: sizes are the fakes' own, the number of axes is not."""
    shape = port.type.shape
    if value is None or shape is None or "..." in shape:
        return None
    found = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
    return None if isinstance(found, list) and len(found) == len(shape) else f"is {found}, not {port.type}"


def fake(graph: Graph, call: Call) -> dict[str, Any]:
    component = catalogue()[graph.nodes[call.node].component]
    missing = {port.name for port in component.inputs if not port.optional} - call.inputs.keys()
    assert not missing, f"{call.walk}: `{call.node}` lacks {missing}"
    unknown = call.inputs.keys() - {port.name for port in component.inputs}
    assert not unknown, f"{call.walk}: `{call.node}` has no {unknown}"
    assert call.params.keys() >= component.params.keys()
    for port in component.inputs:
        fault = misfit(port, call.inputs.get(port.name))
        assert not fault, f"{call.walk}: `{call.node}.{port.name}` {fault}"
    return {port.name: value_of(port, call.params) for port in component.outputs}


def asked(name: str, param: TaskParam) -> Scalar:
    """Everything that can be switched on is on, and every loop is short."""
    if name == "preview_every" or param.type == "boolean":
        return 1 if param.type == "integer" else True
    assert param.default is not None
    if param.type != "integer" or isinstance(param.default, str):
        return param.default
    return max(int(param.min or 0), FEW) if param.default > FEW else param.default


CASES = [
    (placement, task)
    for placement in PLACEMENTS
    for task in codec.load(GRAPHS[str(placement_of(placement).graph)].read_bytes()).tasks
]


def run(placement: str, task_name: str, seed: int) -> tuple[Task, Cluster, set[Any]]:
    where = placement_of(placement)
    graph = codec.load(GRAPHS[str(where.graph)].read_bytes())
    plan = assemble(Assignment(graph, where), catalogue())
    task = graph.tasks[task_name]
    params: dict[str, Scalar] = {name: asked(name, param) for name, param in task.params.items()} | {"seed": seed}
    inputs = {name: [SAMPLES[declared.modality]] for name, declared in task.inputs.items()}
    itinerary = expand(graph, plan, task_name, params, inputs)
    cluster = Cluster(plan, {name: lambda call: fake(graph, call) for name in graph.nodes}, seed)
    values = {given.name: given.value for given in name_inputs(task, inputs)}
    cluster.start("run", itinerary, params, values)
    cluster.run()
    return task, cluster, set(itinerary.ranks) - cluster.done("run")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("placement", "task"), CASES, ids=str)
def test_a_task_runs_to_its_end(placement: str, task: str, seed: int) -> None:
    found, cluster, undone = run(placement, task, seed)
    assert not undone, {rank: core.standing("run") for rank, core in cluster.cores.items()}
    assert {name for _, name in cluster.emitted} == set(found.outputs)


def calls_of(cluster: Cluster, node: str) -> list[Call]:
    return [call for call in cluster.calls if call.node == node]


def test_the_guided_branches_draw_only_inside_their_interval() -> None:
    _, cluster, _ = run("shapes_cfg3_cpu", "text_to_image", 0)
    drawing = [call for call in cluster.calls if call.walk == "image_gen_cfg"]
    assert [call.node for call in drawing].count("llm") == FEW - 1
    assert [call.node for call in drawing].count("llm_cfg_img") == 0
    times = [call.params["time"] for call in drawing if call.node == "llm"]
    assert [call.node for call in drawing].count("llm_cfg_text") == sum(0.4 < float(t) <= 1.0 for t in times)


def test_reading_and_writing_take_the_time_of_clean_data() -> None:
    _, cluster, _ = run("bagel_one_gpu", "edit", 0)
    quiet = {call.params["time"] for call in calls_of(cluster, "llm") if not call.walk.startswith("image_gen")}
    assert quiet == {0.0}


def test_a_frame_of_speech_takes_one_call_of_the_talker_and_one_of_the_code_predictor() -> None:
    _, cluster, _ = run("qwen3_omni_two_gpus", "chat", 0)
    frames = [call for call in cluster.calls if call.walk == "speak"]
    assert [(call.node, call.iteration) for call in frames] == [
        (node, (frame,)) for frame in range(FEW) for node in ("talker", "code_predictor")
    ]
    (listening,) = (call for call in calls_of(cluster, "talker") if call.walk == "listen")
    assert {call.states["kv"] for call in frames if call.node == "talker"} == {listening.states["kv"]}


def test_planning_starts_each_round_from_one_context() -> None:
    _, cluster, _ = run("vjepa2_ac_one_gpu", "plan", 0)
    assert len(calls_of(cluster, "try")) == 2 * FEW
    assert len(calls_of(cluster, "propose")) == FEW
    assert len(calls_of(cluster, "rest")) == 1
    assert len({call.states["kv"] for call in calls_of(cluster, "try")}) == 1
