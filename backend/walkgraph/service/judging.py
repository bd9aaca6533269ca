"""Drafts are judged here, off the event loop: `check` and `plan` with this host's catalogue and hardware."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from walkgraph.components import catalogue, families
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem, Report
from walkgraph.ids import Rank
from walkgraph.placement import document as placements
from walkgraph.placement.budget import Copy
from walkgraph.placement.document import Placement
from walkgraph.placement.hardware import Hardware, find_hardware, reserve
from walkgraph.placement.plan import UNDEPLOYABLE, plan
from walkgraph.placement.sizes import find_sizes
from walkgraph.placement.tables import Plan
from walkgraph.service.problems import Fault, Unprocessable
from walkgraph.service.schemas import ProblemShown
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import DocumentKind

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}\Z")


@dataclass(frozen=True)
class Judged:
    graph: Graph | None
    placement: Placement | None
    plan: Plan | None
    """None where a problem is an error."""
    graph_problems: tuple[Problem, ...]
    placement_problems: tuple[Problem, ...]
    deployable: bool
    hardware: Hardware
    copies: tuple[Copy, ...] = ()
    """States that Walks carry between ranks."""
    budgeted: Plan | None = None
    """The plan with what its ranks need, also where that doesn't fit."""
    capacities: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> bytes that it may fill."""

    @property
    def placement_document(self) -> dict[str, Any]:
        return placements.encode(self.placement) if self.placement else {}


def check_graph(value: Any) -> Report:
    return check(value, catalogue())


def judge(
    graph: Any,
    placement: Any | None,
    running: Iterable[Plan],
    roots: Iterable[Path] = (),
    host: Hardware | None = None,
) -> Judged:
    """Check, then plan on what the running plans leave free. Without a placement everything goes on one rank.

    `roots`: the folders of `checkpoint:` sources. `host`: None is this one.
    """
    report = check_graph(graph)
    hardware = reserve(host or find_hardware(), running)
    found = () if placement is None else placements.faults(placement)
    faults = tuple(Problem("malformed", pointer, message) for pointer, message in found)
    if report.graph is None or not report.ok or faults:
        return Judged(report.graph, None, None, report.problems, faults, False, hardware)
    chosen = placements.default_placement(report.graph, hardware) if placement is None else placements.decode(placement)
    made = plan(report.graph, chosen, hardware, catalogue(), find_sizes(families(), tuple(roots)))
    placed = (made.problems, made.deployable, hardware, made.copies, made.budgeted, made.capacities)
    return Judged(report.graph, chosen, made.plan, report.problems, *placed)


def deployable(judged: Judged) -> Plan:
    """The plan. Raises Unprocessable with the errors; where there are none, with what keeps a plan from being run."""
    faults = [
        Fault(prefix + problem.pointer, problem.code, problem.message)
        for prefix, problems in (("/graph", judged.graph_problems), ("/placement", judged.placement_problems))
        for problem in problems
        if (problem.severity == "error" if judged.plan is None else problem.code in UNDEPLOYABLE)
    ]
    if judged.plan is None:
        raise Unprocessable("this can't be deployed; mend what `errors` lists", faults)
    if not judged.deployable:
        codes = " and ".join(f"`{code}`" for code in sorted({fault.code for fault in faults}))
        message = f"this can be planned, not deployed ({codes}); use components that have networks, and weights"
        raise Unprocessable(f"{message} that are here; `errors` lists what isn't", faults)
    return judged.plan


def problems_shown(problems: Iterable[Problem], prefix: str = "") -> list[ProblemShown]:
    return [
        ProblemShown(code=p.code, pointer=prefix + p.pointer, message=p.message, severity=p.severity) for p in problems
    ]


class Resolved(NamedTuple):
    name: str
    value: Any


async def resolve(store: Store, kind: DocumentKind, given: Any) -> Resolved:
    """A document by its name in the store, or as it was given; None stays None. Raises NotFound."""
    if given is None:
        return Resolved("default", None)
    if isinstance(given, str):
        row = await store.read(queries.get_document, kind, given)
        return Resolved(given, json.loads(row.text))
    name = cast(dict[str, Any], given).get("name") if isinstance(given, dict) else None
    return Resolved(name if isinstance(name, str) and _NAME.match(name) else "unnamed", given)
