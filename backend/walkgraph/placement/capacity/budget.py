"""The memory budget of every rank, summed before any process starts: weights, caches, workspace and a margin.

A rank's memory is what its groups name, or an equal share of its device's free memory. Caches take the rest: all of it
if the groups name their memory, otherwise enough for `RUNS` of the largest requests but at most half, which leaves room
for another deployment. One request with default parameters must fit; if the largest possible one does not, that is a
warning.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.capacity.allotment import allotted, named_memory
from walkgraph.placement.capacity.needs import Need, RankNeeds
from walkgraph.placement.capacity.shards import indivisible
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.sizes import MIB, Sizes, WeightSizes, absent
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.placement.transports import Transports

RUNS = 32
"""The caches are made for this many of the largest requests at once, where no group names its memory."""
UNKNOWN_CACHES = 1024 * MIB
"""Bytes for all caches of a rank whose token sizes are unknown, where no group names its memory."""


@dataclass(frozen=True)
class Copy:
    """A state that a Walk carries from one rank to another."""

    walk: int
    state: int
    source: Rank
    target: Rank
    bytes: int
    """The most bytes in a request with default parameters."""
    largest: int
    """The most bytes in a request with the largest parameters."""
    transport: str
    parts: bool
    """It leaves in parts while it grows; otherwise whole."""


@dataclass
class Budgets:
    """The plan with its budgets, and the problems with them."""

    plan: Plan
    copies: tuple[Copy, ...] = ()
    problems: list[Problem] = field(default_factory=list[Problem])
    graph_problems: list[Problem] = field(default_factory=list[Problem])
    """Weights whose sizes can't be found, each at its place in the graph."""
    capacities: Mapping[Rank, int] = field(default_factory=dict[Rank, int])
    """Rank -> bytes that it may fill."""


def budget(
    assignment: Assignment, plan: Plan, hardware: Hardware, catalogue: Catalogue, sizes: Sizes, transports: Transports
) -> Budgets:
    """Fill in every rank's budget; total. The entries of one budget, in this order:

    `weights NAME`   a weight set, the parts that its nodes here read, each part once
    `kv STATE`       a paged state's share of the caches
    `arena`          for tensors on their way to other GPUs
    `workspace`      what the component that takes most needs while it runs
    `margin`         the driver's context, captured graphs and fragmentation

    They add up to the rank's capacity or less; where they don't fit, they are the needs of one default request.
    """
    found = Budgets(plan)
    known = known_sizes(assignment.graph, sizes, found.graph_problems)
    every = RankNeeds(assignment.graph, plan, catalogue, known, transports)
    memory = _memory(assignment, plan, hardware)
    needs = [every.of(rank, *memory[rank.rank]) for rank in plan.ranks]
    found.problems.extend(indivisible(plan, known, assignment))
    found.problems.extend(_problems(assignment, plan, hardware, needs))
    found.copies = tuple(_copies(plan, needs))
    found.capacities = {need.rank.rank: need.memory for need in needs}
    totals = {need.rank.rank: _total(need) for need in needs}
    for need in needs:
        # Shards have the same pages.
        totals[need.rank.rank] = min(totals[rank] for rank in need.rank.shards or (need.rank.rank,))
    found.plan = replace(plan, ranks=tuple(_filled(plan, need, totals[need.rank.rank]) for need in needs))
    return found


def known_sizes(graph: Graph, sizes: Sizes, problems: list[Problem]) -> dict[str, WeightSizes]:
    """The sizes of the weight sets that can be found; adds a problem for each other one."""
    known: dict[str, WeightSizes] = {}
    for name, weights in graph.weights.items():
        try:
            known[name] = sizes(weights)
        except InvalidInput as error:
            problems.append(absent(name, weights, error))
    return known


def _copies(plan: Plan, needs: list[Need]) -> Iterator[Copy]:
    known = {need.rank.rank: need for need in needs}
    for walk in plan.walks:
        for edge in walk.edges:
            source, target = walk.uses[edge.source.use], walk.uses[edge.target.use]
            if edge.source.kind == "use" and edge.target.kind == "use" and target.op == "import":
                state, need = source.states[0], known[source.rank]
                small, large = need.caches.get(state, 0), need.largest.get(state, 0)
                sizes = small, max(small, large)
                yield Copy(walk.index, state, source.rank, target.rank, *sizes, edge.transport, edge.parts)


# ── available memory ───────────────────────────────────────────────────────────────────────────


def _memory(assignment: Assignment, plan: Plan, hardware: Hardware) -> dict[Rank, tuple[int, bool]]:
    """Rank -> bytes that it may take, and True if its groups name them."""
    sharing: dict[tuple[str, str], list[RankPlan]] = {}
    for rank in plan.ranks:
        sharing.setdefault(_place(rank), []).append(rank)
    found: dict[Rank, tuple[int, bool]] = {}
    for those in sharing.values():
        named = {one.rank: named_memory(assignment, one.rank) for one in those}
        found |= allotted(named, _free(hardware, those[0]))
    return found


def _free(hardware: Hardware, rank: RankPlan) -> int:
    """Free bytes of a rank's device; 0 where there is no such device."""
    host = hardware.at(rank.host)
    device = host.device(rank.device) if host else None
    return device.free if device else 0


def _place(rank: RankPlan) -> tuple[str, str]:
    return rank.host, rank.device


def _device(host: str, name: str) -> str:
    return f"`{name}` of host `{host}`" if host else f"`{name}`"


# ── budgets and problems ────────────────────────────────────────────────────────────────────────


def _total(need: Need) -> int:
    """Bytes for all caches of a rank."""
    if need.least > need.memory:
        return sum(need.caches.values())
    room = max(0, need.memory - need.fixed)
    return 0 if not need.largest else room if need.said else _unsaid(need, room)


def _filled(plan: Plan, need: Need, total: int) -> RankPlan:
    lines = [(f"weights {name}", size) for name, size in need.weights.items()]
    lines.extend(_shares(plan, need, total))
    lines.extend((("arena", need.arena), ("workspace", need.workspace), ("margin", need.margin)))
    shown = tuple((name, size) for name, size in lines if size > 0)
    return replace(need.rank, kv_bytes=total, budget=shown, arenas=dict(need.arenas))


def _unsaid(need: Need, room: int) -> int:
    """Bytes for the caches of a rank whose groups name no memory. One largest request may take more than half of the
    room, if it fits at all."""
    default, largest = sum(need.caches.values()), sum(need.largest.values())
    one = max(default, largest) if largest <= room else default
    return min(room, RUNS * max(default, largest) or UNKNOWN_CACHES, max(one, room // 2))


def _shares(plan: Plan, need: Need, total: int) -> Iterator[tuple[str, int]]:
    """Cache bytes by state: first those of a default request, then the rest in proportion to the largest request."""
    weight = {state: max(size, need.caches.get(state, 0)) for state, size in need.largest.items()}
    if not any(weight.values()):
        weight = dict.fromkeys(weight, 1)
    first = need.caches if sum(need.caches.values()) <= total else dict[int, int]()
    left, rest = total - sum(first.values()), sum(weight.values())
    for state, size in weight.items():
        share = left * size // rest if rest else 0
        left, rest = left - share, rest - size
        yield f"kv {plan.states[state].name}", first.get(state, 0) + share


def _problems(assignment: Assignment, plan: Plan, hardware: Hardware, needs: list[Need]) -> Iterator[Problem]:
    for need in needs:
        at = f"/ranks/{_position(assignment, need.rank.rank)}"
        free = _free(hardware, need.rank)
        if need.least > need.memory:
            yield Problem("does_not_fit", at, _too_large(plan, need, free))
        elif need.fixed + sum(need.largest.values()) > need.memory:
            largest, room = sum(need.largest.values()), need.memory - need.fixed
            message = (
                f"requests with the largest parameters need {show_bytes(largest)} of caches on rank {need.rank.rank}, "
                f"which has {show_bytes(room)}; such requests are refused one by one"
            )
            yield Problem("small_cache", at, message, "warning")
    yield from _full_devices(plan, hardware, needs)


def _position(assignment: Assignment, rank: Rank) -> int:
    return next((i for i, entry in enumerate(assignment.placement.ranks) if entry.rank == rank), 0)


def _contributors(plan: Plan, need: Need) -> dict[str, int]:
    """The entries of the least that a rank needs, largest first."""
    if need.least > need.fixed + sum(need.caches.values()):
        parts = {f"weights `{name}` before their experts are converted": size for name, size in need.loading.items()}
        return {**parts, "margin": need.margin}
    parts = {f"weights `{name}`": size for name, size in need.weights.items()}
    parts |= {f"caches of `{plan.states[state].name}`": size for state, size in need.caches.items()}
    parts |= {"arena": need.arena, "workspace": need.workspace, "margin": need.margin}
    return {name: size for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size}


def _shown(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {show_bytes(size)}" for name, size in parts.items())


def _too_large(plan: Plan, need: Need, free: int) -> str:
    parts = _contributors(plan, need)
    return (
        f"rank {need.rank.rank} on {_device(*_place(need.rank))} needs {need.least} bytes "
        f"({show_bytes(need.least)}) and has {need.memory} ({show_bytes(need.memory)}): {_shown(parts)}; "
        f"{_fix(plan, need, free, next(iter(parts)))}"
    )


def _fix(plan: Plan, need: Need, free: int, largest: str) -> str:
    missing = need.least - need.memory
    if need.said and need.least <= free:
        return f"give its groups {missing} bytes ({show_bytes(missing)}) more `memory`"
    for name in need.weights:
        if largest == f"weights `{name}`":
            nodes = (plan.nodes[index] for index in need.rank.nodes)
            names = ", ".join(f"`{node.name}`" for node in nodes if node.weights == name and not node.host)
            return f"place some of {names} on another device, or use one with {show_bytes(need.least)} free"
    if largest.startswith("caches"):
        return (
            "lower the state's `capacity` or `width`, place its nodes on another device, or use one "
            f"with {show_bytes(need.least)} free"
        )
    return f"use a device with {show_bytes(need.least)} free"


def _full_devices(plan: Plan, hardware: Hardware, needs: list[Need]) -> Iterator[Problem]:
    sharing: dict[tuple[str, str], list[Need]] = {}
    for need in needs:
        sharing.setdefault(_place(need.rank), []).append(need)
    for name, device in ((host.host, device) for host in hardware.hosts for device in host.devices):
        place = "" if name == hardware.host else name, device.name
        here = sharing.get(place, [])
        taken = sum(need.memory for need in here)
        if here and taken > device.free:
            each = ", ".join(f"rank {need.rank.rank} {show_bytes(need.memory)}" for need in here)
            least = "; ".join(
                f"rank {need.rank.rank} needs at least {show_bytes(need.least)}: {_shown(_contributors(plan, need))}"
                for need in here
            )
            message = (
                f"{_device(*place)} has {show_bytes(device.free)} free and its ranks are given {show_bytes(taken)} "
                f"({each}); lower `memory`, stop another deployment, or use a device with {show_bytes(taken)} free; "
                f"{least}"
            )
            yield Problem("device_full", "/groups", message)


def show_bytes(size: int) -> str:
    """`1.5 GiB`: at most three figures."""
    if abs(size) < 1024:
        return f"{size} B"
    power = min(4, int(math.log(abs(size), 1024)))
    number = size / 1024**power
    digits = 0 if abs(number) >= 100 else 1
    return f"{number:.{digits}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
