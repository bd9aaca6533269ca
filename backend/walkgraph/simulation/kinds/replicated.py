"""Scenarios whose runs go to one of several replicas.

    whole     all nodes, two replicas that share no rank
    apart     all nodes, in two groups with two replicas each, which share no rank
    shared    two replicas of some nodes, and a rank that all runs share
    crossed   two replicas of two groups of nodes; one rank holds the second replica of the one and the first of the
              other

The plain way is that of one rank: what runs give doesn't depend on their replicas.
"""

from collections.abc import Iterator
from dataclasses import replace

from walkgraph.components import catalogue
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import ALL, Group, Placement, RankDevice
from walkgraph.simulation.scenarios import Scenario, apart, bundled_scenarios


def replicated() -> list[Scenario]:
    """Those of the bundled graphs."""
    found: list[Scenario] = []
    alone = [scenario for scenario in bundled_scenarios() if scenario.name.endswith("/1")]
    for number, scenario in enumerate(alone):
        for kind, placement in _placements(scenario.graph):
            plan = assemble(Assignment(scenario.graph, placement), catalogue())
            found.append(replace(scenario, name=f"replicated {kind} {number}", plan=plan))
    return found


def _placements(graph: Graph) -> Iterator[tuple[str, Placement]]:
    some = tuple(node for node, rank in apart(graph).items() if rank)
    yield "whole", _placed(2, Group(nodes=(ALL,), ranks=(0, 1), replicas=2))
    yield "shared", _placed(3, Group(nodes=(ALL,), ranks=(0,)), Group(nodes=some, ranks=(1, 2), replicas=2))
    first = Group(nodes=(ALL,), ranks=(0, 1), replicas=2)
    yield "apart", _placed(4, first, Group(nodes=some, ranks=(2, 3), replicas=2))
    yield "crossed", _placed(3, first, Group(nodes=some, ranks=(1, 2), replicas=2))


def _placed(ranks: int, *groups: Group) -> Placement:
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    return Placement(name="replicated", groups=groups, ranks=devices)
