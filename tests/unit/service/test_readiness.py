"""A deployment that has lost a replica serves on; one that has lost a rank that all runs need doesn't."""

import pytest

from tests.support.deployment import graph_named
from walkgraph.components import catalogue
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.service.deployments.versions import serves
from walkgraph.wire.spec import RankStatus


@pytest.mark.parametrize(
    ("lost", "ready"), [((), True), ((1,), True), ((2,), True), ((0,), False), ((1, 2), False)], ids=str
)
def test_runs_need_one_replica_of_each_node(lost: tuple[int, ...], ready: bool) -> None:
    graph = graph_named("synthetic_states")
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("copy",), ranks=(1, 2), replicas=2))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(3))
    plan = assemble(Assignment(graph, Placement(name="r", groups=groups, ranks=devices)), catalogue())
    ranks = [RankStatus(rank=Rank(rank), state="lost" if rank in lost else "ready") for rank in range(3)]
    assert serves(plan, ranks) is ready
