"""Graph + placement + hardware -> plan: pure and total. Problems come back as data, all of them, with their places."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import Copy, budget
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Placement
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.judge import judge, judge_plan
from walkgraph.placement.sizes import Sizes
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import Transports, declared_transports

UNDEPLOYABLE = frozenset({"unavailable", "no_weights", "no_tokenizer"})
"""Warnings that a plan may have and a deployment may not: a component without a network, weights that aren't here, or
without the tokenizer that a node reads there."""


@dataclass(frozen=True)
class PlanResult:
    plan: Plan | None
    """None where a problem is an error."""
    problems: tuple[Problem, ...]
    """Of the placement."""
    graph_problems: tuple[Problem, ...] = ()
    """Of the graph, as far as this machine is the reason: weights that aren't here."""
    copies: tuple[Copy, ...] = ()
    """States that Walks carry between ranks, with their bytes."""
    budgeted: Plan | None = None
    """The tables with what every rank needs, also where that doesn't fit; None where they have no ranks to stand on."""
    capacities: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> bytes that it may fill, where there are budgets."""

    @property
    def deployable(self) -> bool:
        """There is a plan, every component has a network, and all weights are there."""
        told = (*self.problems, *self.graph_problems)
        return self.plan is not None and not any(problem.code in UNDEPLOYABLE for problem in told)


def plan(
    graph: Graph,
    placement: Placement,
    hardware: Hardware,
    catalogue: Catalogue,
    sizes: Sizes,
    *,
    resident: bool = True,
    transports: Transports | None = None,
) -> PlanResult:
    """The plan of a graph that `check` accepts, or every reason why there is none. Never raises.

    `hardware` is what is free after running deployments (`hardware.reserve`); `sizes` knows the weights
    (`sizes.find_sizes`). `resident` false: every loop is stepped by the worker, none runs on the device as a whole.
    `transports`: those to choose from; None: all that are declared.
    """
    assignment = Assignment(graph, placement)
    problems = list(judge(assignment, hardware, catalogue))
    transports = declared_transports() if transports is None else transports
    made = assemble(assignment, catalogue, resident=resident, transports=transports)
    problems.extend(judge_plan(made))
    if _broken(problems):
        return PlanResult(None, tuple(problems))
    found = budget(assignment, made, hardware, catalogue, sizes, transports)
    problems.extend(found.problems)
    whole = None if _broken(problems) else found.plan
    return PlanResult(whole, tuple(problems), tuple(found.graph_problems), found.copies, found.plan, found.capacities)


def _broken(problems: list[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)
