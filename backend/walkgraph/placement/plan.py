"""Graph + placement + hardware -> plan: pure and total. All problems come back as data, each with its place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.checks.called import with_own
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.capacity.budget import Copy, budget
from walkgraph.placement.choosing.host_choice import choose_hosts
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Placement
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.named import judge_cluster, judge_hosts
from walkgraph.placement.judge import judge, judge_plan
from walkgraph.placement.sizes import Sizes
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import Transports, declared_transports

UNDEPLOYABLE = frozenset({"unavailable", "no_weights", "no_tokenizer", "several_hosts", "unfit_host", "not_installed"})
"""Warnings that allow a plan but not a deployment: a component without a network, missing weights, weights without the
tokenizer that a node reads, ranks on hosts that are assumed, or on hosts that lack something."""


@dataclass(frozen=True)
class PlanResult:
    plan: Plan | None
    """None where a problem is an error."""
    problems: tuple[Problem, ...]
    """Problems of the placement."""
    graph_problems: tuple[Problem, ...] = ()
    """Problems of the graph that depend on this machine, such as missing weights."""
    copies: tuple[Copy, ...] = ()
    """States that Walks carry between ranks, with their bytes."""
    budgeted: Plan | None = None
    """The tables with every rank's needs, even where they don't fit; None if there are no ranks."""
    capacities: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> bytes that it may fill, where there are budgets."""

    @property
    def deployable(self) -> bool:
        """True if there is a plan, every component has a network, and all weights are here."""
        reported = (*self.problems, *self.graph_problems)
        return self.plan is not None and not any(problem.code in UNDEPLOYABLE for problem in reported)


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
    """Plan a graph that `check` accepts, or give every reason why it can't be planned. Never raises.

    `hardware` is what running deployments leave free (`hardware.reserve`); `sizes` gives the weights' sizes
    (`sizes.find_sizes`). `resident` false: the worker steps every loop, and none runs on the device. `transports`: the
    choice of transports; None: all declared ones.
    """
    catalogue = with_own(catalogue, graph)
    transports = declared_transports() if transports is None else transports
    chosen = choose_hosts(graph, placement, hardware, catalogue, sizes, transports, resident=resident)
    assignment = Assignment(graph, chosen.placement)
    problems = list(judge_hosts(placement, hardware))
    problems.extend(judge(assignment, hardware, catalogue, transports))
    topologies = {one.host: one.topology for one in hardware.hosts}
    tables = assemble(assignment, catalogue, resident=resident, transports=transports, topologies=topologies)
    made = _unpinned(tables, placement)
    problems.extend(judge_plan(made))
    if _broken(problems):
        return PlanResult(None, (*problems, *chosen.problems))
    problems.extend(chosen.problems)
    problems.extend(judge_cluster(made, placement, hardware, transports))
    found = budget(assignment, made, hardware, catalogue, sizes, transports)
    problems.extend(found.problems)
    whole = None if _broken(problems) else found.plan
    return PlanResult(whole, tuple(problems), tuple(found.graph_problems), found.copies, found.plan, found.capacities)


def _unpinned(plan: Plan, placement: Placement) -> Plan:
    """The plan with the ranks marked whose host it has chosen."""
    ranks = (replace(rank, unpinned=rank.rank in placement.unpinned) for rank in plan.ranks)
    return replace(plan, ranks=tuple(ranks)) if placement.unpinned else plan


def _broken(problems: list[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)
