"""Graphs with ranks on several hosts, which are addresses of this machine, give the bytes that they give on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.deployment import deployed, graph_named
from tests.support.host_forks import HostForks
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import declared_transports
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
]
ADDRESSES = {"": "127.0.0.1", "second": "127.0.0.2", "third": "127.0.0.3"}
KV_BYTES = 64 << 20


class Case(NamedTuple):
    graph: str
    groups: Sequence[Sequence[str]]
    """Nodes of a group, each on a host of its own."""
    task: str
    params: Mapping[str, Any]
    inputs: Mapping[str, m.Value]
    shards: int = 1
    """Ranks that divide the first group."""
    weights: Mapping[str, str] = {}
    """Weight set -> its source, in place of the graph's."""


CASES = {
    "a branch on each host": Case(
        "shapes",
        (["*"], ["llm_cfg_text"], ["llm_cfg_img"]),
        "text_to_image",
        {"steps": 6, "cfg_img_scale": 2.0, "seed": 3},
        {"prompt": m.Small(value="a red circle")},
    ),
    "a vocoder beside shards": Case(
        "orpheus",
        (["*"], ["vocoder", "audio_out"]),
        "speak",
        {"max_tokens": 60, "temperature": 1.0, "seed": 3},
        {"text": m.Small(value="two boats")},
        shards=2,
        weights={"orpheus": "random:orpheus-tiny:0", "snac": "random:snac-tiny:0"},
    ),
    "a talker": Case(
        "qwen3_omni",
        (["*"], ["projection", "request", "script", "talker", "code_predictor", "code2wav", "audio_out"]),
        "chat",
        {"max_tokens": 8, "max_frames": 12, "temperature": 1.0, "seed": 3},
        {"text": m.Small(value="two boats")},
        weights={"omni": "random:qwen3-omni-tiny:0"},
    ),
}


def planned(case: Case, hosts: Sequence[str]) -> tuple[Graph, Plan]:
    """`hosts`: that of each group."""
    document = codec.dump(graph_named(case.graph))
    for name, source in case.weights.items():
        document["weights"][name]["source"] = source
    graph, groups, first = codec.load(document), list[Group](), 0
    for number, (nodes, host) in enumerate(zip(case.groups, hosts, strict=False)):
        width = case.shards if not number else 1
        ranks = tuple(range(first, first + width))
        groups.append(Group(nodes=tuple(nodes), ranks=ranks, tensor_parallel=width, host=host or None))
        first += width
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(first))
    made = assemble(Assignment(graph, Placement(name="case", groups=tuple(groups), ranks=devices)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


async def answered(case: Case, hosts: Sequence[str], folder: Path) -> dict[str, list[Any]]:
    """The outputs of one run."""
    graph, plan = planned(case, hosts)
    far = any(hosts)
    places = {int(rank.rank): [*ADDRESSES].index(rank.host or "") for rank in plan.ranks}
    forks = HostForks(folder, [[] for _ in ADDRESSES], places) if far else None
    network = HostNetwork(ADDRESSES, make_keys()) if far else None
    try:
        async with deployed(graph, plan, forks=forks, network=network) as deployment:
            inputs = {name: (value,) for name, value in case.inputs.items()}
            run = deployment.submit(case.task, case.params, inputs=inputs)
            end = await deployment.end(run)
            assert end.error is None
            return dict(deployment.outputs[run])
    finally:
        if forks is not None:
            forks.close()


@pytest.mark.parametrize("name", CASES)
async def test_answers_of_several_hosts_are_those_of_one(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    _, plan = planned(case, [*ADDRESSES])
    assert len({rank.host for rank in plan.ranks}) == len(case.groups)
    assert "nixl" in {edge.transport for walk in plan.walks for edge in walk.edges}
    far = await answered(case, [*ADDRESSES], tmp_path)
    assert far == await answered(case, [""] * len(ADDRESSES), tmp_path)
    assert all(far.values())
