"""Judges drafts off the event loop: `check` and `plan` with this host's catalogue and hardware."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, TypeVarTuple, cast

import anyio.to_thread
from anyio.lowlevel import RunVar

from walkgraph.components import families, faults, renew
from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import is_task
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem, Report
from walkgraph.ids import Rank
from walkgraph.placement import document as placements
from walkgraph.placement.capacity.budget import Copy
from walkgraph.placement.document import Placement
from walkgraph.placement.hardware import Hardware, emptied, find_hardware, reserve
from walkgraph.placement.plan import UNDEPLOYABLE, plan
from walkgraph.placement.sizes import find_holdings, find_sizes, not_here
from walkgraph.placement.tables import Plan
from walkgraph.service.deployments.task_graphs import NO_GRAPHS, KnownGraphs
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import DocumentKind
from walkgraph.wire.answers import documents as answers
from walkgraph.wire.answers import plans

NO_SPACE = frozenset({"does_not_fit", "device_full", "no_host"})
"""Problems of plans that need more memory than is free."""
T = TypeVar("T")
Given = TypeVarTuple("Given")
JUDGES = 2
"""The most documents that are judged at once. Every thread that computes takes turns with the event loop."""
_judges: RunVar[anyio.CapacityLimiter] = RunVar("judges")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_\-]{0,63}\Z")


class FindHosts(Protocol):
    """Finds the hosts that can be deployed to."""

    async def __call__(self, without: Collection[str] = ()) -> Hardware | None:
        """None: this machine alone, as `judge` finds it. `without`: hosts that are left out. Raises HostsUnknown."""
        ...


@dataclass(frozen=True)
class Judged:
    graph: Graph | None
    placement: Placement | None
    plan: Plan | None
    """None if a problem is an error."""
    graph_problems: tuple[Problem, ...]
    placement_problems: tuple[Problem, ...]
    deployable: bool
    hardware: Hardware
    copies: tuple[Copy, ...] = ()
    """States that Walks carry between ranks."""
    budgeted: Plan | None = None
    """The plan with the memory budgets of its ranks, even if they don't fit."""
    capacities: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> bytes that it may fill."""

    @property
    def placement_document(self) -> dict[str, Any]:
        return placements.encode(self.placement) if self.placement else {}


async def this_machine(without: Collection[str] = ()) -> None:
    """The `FindHosts` of a service that deploys to no other."""


async def off_loop(function: Callable[[*Given], T], *given: *Given) -> T:
    """Call what computes for long in a thread, after those that came before."""
    try:
        limiter = _judges.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(JUDGES)
        _judges.set(limiter)
    return await anyio.to_thread.run_sync(function, *given, limiter=limiter)


async def hardware_for(find: FindHosts, assumed: str | None) -> Hardware:
    """The hardware to plan for. `assumed`: as in a request. Raises HostsUnknown, Unprocessable."""
    if assumed not in (None, placements.CLUSTER):
        return _assumed(await off_loop(find_hardware), assumed)
    found = await find() or await off_loop(find_hardware)
    return found if assumed is None else emptied(found)


def _assumed(host: Hardware, text: str) -> Hardware:
    try:
        return placements.assume_hosts(host, text)
    except InvalidInput as error:
        raise Unprocessable(str(error), [Fault("/hardware", "bad_hardware", str(error))]) from None


def check_graph(value: Any, known: KnownGraphs = NO_GRAPHS) -> Report:
    return check(value, known.catalogue)


def check_here(value: Any, roots: Sequence[Path], known: KnownGraphs = NO_GRAPHS) -> Report:
    """`check`, plus problems for weights that aren't on this machine, and for tasks that aren't deployed. `roots`: the
    folders of `checkpoint:` sources."""
    report = check_graph(value, known)
    if report.graph is None:
        return report
    absent = not_here(report.graph, known.catalogue, find_holdings(families(), roots))
    return replace(report, problems=(*report.problems, *absent, *_undeployed(report.graph, known)))


def _undeployed(graph: Graph, known: KnownGraphs) -> Iterable[Problem]:
    """Warnings for nodes that call tasks of graphs that no deployment serves."""
    for name, node in graph.nodes.items():
        called = node.component.partition("/")[0]
        others = is_task(node.component) and called != graph.name and node.component in known.catalogue
        if others and known.deployed is not None and called not in known.deployed:
            message = f"no deployment serves `{called}`, so calls of `{node.component}` fail; deploy it too"
            yield Problem("task_not_deployed", f"/nodes/{name}/component", message, "warning")


def judge(
    graph: Any,
    placement: Any | None,
    running: Iterable[Plan],
    roots: Sequence[Path] = (),
    host: Hardware | None = None,
    known: KnownGraphs = NO_GRAPHS,
) -> Judged:
    """Checks, then plans with the memory that the running plans leave free. The default placement is one rank.

    `roots`: the folders of `checkpoint:` sources. `host`: by default this machine. `known`: the graphs whose tasks it
    may call.
    """
    report = check_here(graph, roots, known)
    hardware = reserve(host or find_hardware(), running)
    found = () if placement is None else placements.faults(placement)
    faults = tuple(Problem("malformed", pointer, message) for pointer, message in found)
    if report.graph is None or not report.ok or faults:
        return Judged(report.graph, None, None, report.problems, faults, False, hardware)
    chosen = placements.default_placement(report.graph, hardware) if placement is None else placements.decode(placement)
    made = plan(report.graph, chosen, hardware, known.catalogue, find_sizes(families(), roots))
    told = tuple(dict.fromkeys((*report.problems, *made.graph_problems)))
    runs = made.deployable and not any(problem.code in UNDEPLOYABLE for problem in told)
    return Judged(
        report.graph,
        chosen,
        made.plan,
        told,
        made.problems,
        runs,
        hardware,
        made.copies,
        made.budgeted,
        made.capacities,
    )


def judge_anew(graph: Any, *given: Any) -> Judged:
    """`judge`, after plug-ins have been read again. Raises the error of a plug-in that the graph uses and that can't be
    read."""
    renew()
    found = faults()
    nodes = cast("dict[str, Any]", graph).get("nodes") if found and isinstance(graph, dict) else None
    for node in cast("dict[str, Any]", nodes).values() if isinstance(nodes, dict) else ():
        named = str(cast("dict[str, Any]", node).get("component")) if isinstance(node, dict) else ""
        for plugin, error in found.items():
            if named.startswith(f"{plugin.replace('-', '_')}."):
                raise error
    return judge(graph, *given)


def deployable(judged: Judged) -> Plan:
    """The plan. Raises Unprocessable with the errors, or with the problems that keep a valid plan from running."""
    faults = [
        Fault(prefix + problem.pointer, problem.code, problem.message)
        for prefix, problems in (("/graph", judged.graph_problems), ("/placement", judged.placement_problems))
        for problem in problems
        if (problem.severity == "error" if judged.plan is None else problem.code in UNDEPLOYABLE)
    ]
    if judged.plan is None:
        raise Unprocessable("this can't be deployed; fix what `errors` lists", faults)
    if not judged.deployable:
        codes = " and ".join(f"`{code}`" for code in sorted({fault.code for fault in faults}))
        raise Unprocessable(f"this can be planned, not deployed ({codes}); `errors` lists why, and what to do", faults)
    return judged.plan


def problems_shown(problems: Iterable[Problem], prefix: str = "") -> list[answers.Problem]:
    return [
        answers.Problem(code=p.code, pointer=prefix + p.pointer, message=p.message, severity=p.severity)
        for p in problems
    ]


def devices_shown(host: Hardware) -> list[plans.Device]:
    return [
        plans.Device(
            host=host.host,
            name=d.name,
            title=d.label,
            total=d.total,
            free=d.free,
            hypothetical=d.assumed,
            numa=host.topology.node(d.name),
        )
        for d in host.devices
    ]


def links_shown(host: Hardware) -> list[plans.Link]:
    return [plans.Link(host=host.host, **vars(link)) for link in host.topology.links]


class Resolved(NamedTuple):
    name: str
    value: Any


async def resolve(store: Store, kind: DocumentKind, given: Any) -> Resolved:
    """The stored document of that name, or the document as given; None stays None. Raises NotFound."""
    if given is None:
        return Resolved("default", None)
    if isinstance(given, str):
        row = await store.read(queries.get_document, kind, given)
        return Resolved(given, json.loads(row.text))
    name = cast(dict[str, Any], given).get("name") if isinstance(given, dict) else None
    return Resolved(name if isinstance(name, str) and _NAME.match(name) else "unnamed", given)
