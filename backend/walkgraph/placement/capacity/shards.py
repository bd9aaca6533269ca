"""Problems and warnings about groups of a placement whose ranks are shards."""

from collections.abc import Iterator, Mapping, Sequence

from walkgraph.graph.catalogue import Catalogue, Component
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.problems import Problem
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.named import place_of
from walkgraph.placement.sizes import WeightSizes
from walkgraph.placement.tables import Plan

_WIDTHS = {"tensor_parallel": "weights", "sequence_parallel": "flow steps"}
"""Field by which a group divides -> what it divides."""


def judge_shards(assignment: Assignment, hardware: Hardware, catalogue: Catalogue) -> Iterator[Problem]:
    """Problems of groups with shards that need no tables."""
    for index, group in enumerate(assignment.placement.groups):
        yield from _experts(group, f"/groups/{index}")
        if group.width == 1:
            continue
        yield from _mixed(assignment, index)
        if len(group.ranks) == group.width * group.replicas:
            yield from _ranks(assignment, hardware, group, f"/groups/{index}")
        yield from _nodes(assignment, catalogue, index)


def indivisible(plan: Plan, known: Mapping[str, WeightSizes], assignment: Assignment) -> Iterator[Problem]:
    """Weights that can't be divided over as many shards."""
    for rank in plan.ranks:
        if rank.weight_shards == 1 or rank.repeats:
            continue
        names = {plan.nodes[node].weights for node in rank.nodes}
        used = {name: sizes for name, sizes in known.items() if name in names}
        groups = list(enumerate(assignment.placement.groups))
        at = next(i for i, group in groups if group.tensor_parallel > 1 and rank.rank in group.ranks)
        for name, sizes in used.items():
            if (why := sizes.indivisible(len(rank.shards), rank.expert_parallel)) is not None:
                message = f"weights `{name}` can't be divided: {why}; take another number of ranks"
                yield Problem("indivisible", f"/groups/{at}/tensor_parallel", message)
        if rank.expert_parallel and not any(sizes.mixtures for sizes in used.values()):
            message = "none of its nodes has experts; leave `expert_parallel` out"
            yield Problem("indivisible", f"/groups/{at}/expert_parallel", message)


def judge_moves(plan: Plan) -> Iterator[Problem]:
    """States that would leave or enter a rank with shards, each of which has a part or a copy of them."""
    divided = {rank.rank for rank in plan.ranks if rank.shards}
    found: dict[tuple[int, Rank, Rank], None] = {}
    for walk in plan.walks:
        for edge in walk.edges:
            source, target = walk.uses[edge.source.use], walk.uses[edge.target.use]
            carried = edge.source.kind == edge.target.kind == "use" and target.op == "import"
            if carried and not divided.isdisjoint((source.rank, target.rank)):
                found[source.states[0], source.rank, target.rank] = None
    for state, source, target in found:
        message = (
            f"state `{plan.states[state].name}` would move from rank {source} to rank {target}, and states of "
            f"ranks with shards stay where they are; place the nodes that are bound to it together"
        )
        yield Problem("unsupported", "/groups", message)


def _experts(group: Group, at: str) -> Iterator[Problem]:
    if group.expert_parallel and group.tensor_parallel == 1:
        message = "`expert_parallel` spreads experts over tensor-parallel ranks; set `tensor_parallel` too"
        yield Problem("indivisible", f"{at}/expert_parallel", message)
    if group.redundant_experts and not group.expert_parallel:
        message = "`redundant_experts` are whole experts on two ranks; set `expert_parallel` too, or leave them out"
        yield Problem("indivisible", f"{at}/redundant_experts", message)


def _mixed(assignment: Assignment, index: int) -> Iterator[Problem]:
    """Ranks that would divide both weights and tokens."""
    group, at = assignment.placement.groups[index], f"/groups/{index}"
    if group.tensor_parallel > 1 and group.sequence_parallel > 1:
        message = "ranks divide weights (`tensor_parallel`) or tokens (`sequence_parallel`); set one of them to 1"
        yield Problem("unsupported", f"{at}/sequence_parallel", message)
        return
    for before, other in enumerate(assignment.placement.groups[:index]):
        differs = other.width > 1 and (other.sequence_parallel > 1) != (group.sequence_parallel > 1)
        if differs and not set(other.ranks).isdisjoint(group.ranks):
            width = _width(other)
            message = f"group {before + 1} has `{width}` on these ranks; set `{width}` here too, or take other ranks"
            yield Problem("unsupported", f"{at}/{_width(group)}", message)


def _width(group: Group) -> str:
    """The field by which a group divides."""
    return "sequence_parallel" if group.sequence_parallel > 1 else "tensor_parallel"


_Place = tuple[str, str]
"""A host and a device."""


def _ranks(assignment: Assignment, hardware: Hardware, group: Group, at: str) -> Iterator[Problem]:
    placement, seen = assignment.placement, set[int]()
    places = {entry.rank: (place_of(placement, hardware, entry.rank), entry.device) for entry in placement.ranks}
    for position, rank in enumerate(group.ranks):
        first = group.ranks[position - position % group.width]
        if rank in seen:
            message = f"rank {rank} is given twice; each shard needs a rank of its own"
            yield Problem("duplicate_rank", f"{at}/ranks/{position}", message)
        elif rank in places and first in places:
            shards = group.ranks[position - position % group.width : position]
            yield from _apart(places, shards, first, rank, f"{at}/ranks/{position}")
        seen.add(rank)
    for index, other in enumerate(assignment.placement.groups):
        for position, rank in enumerate(other.ranks if other.ranks != group.ranks else ()):
            first = assignment.shards(Rank(rank))[0] if rank in seen else rank
            if rank != first:
                message = (
                    f"rank {rank} holds a shard of what rank {first} serves and nothing else; take rank {first}, or "
                    f"another one on the same device"
                )
                yield Problem("shared_shard", f"/groups/{index}/ranks/{position}", message)


def _apart(places: Mapping[int, _Place], earlier: Sequence[int], first: int, rank: int, at: str) -> Iterator[Problem]:
    """Why a rank can't hold a shard beside those before it, of which `first` serves."""
    (host, device), (home, other) = places[rank], places[first]
    if host != home:
        message = (
            f"ranks {first} and {rank} would share nodes across the hosts `{home}` and `{host}`; place all shards on "
            f"one, and another replica on the other"
        )
        yield Problem("unsupported", at, message)
    elif (device == "cpu") != (other == "cpu"):
        message = f"ranks {first} and {rank} would share nodes across a GPU and a CPU; take one kind"
        yield Problem("mixed_devices", at, message)
    elif (
        device != "cpu"
        and (twin := next((one for one in earlier if places.get(one) == places[rank]), None)) is not None
    ):
        message = f"ranks {twin} and {rank} hold shards of the same nodes on `{device}`; take another GPU"
        yield Problem("shared_device", at, message)


def _nodes(assignment: Assignment, catalogue: Catalogue, index: int) -> Iterator[Problem]:
    """Nodes of the group's first rank that can't be divided: every shard computes all of them. Those without weights,
    and those on the host, are small. Those that read weights that every rank has anyway need no rank of their own."""
    group, at = assignment.placement.groups[index], f"/groups/{index}"
    here = _components(assignment, catalogue, group.ranks[0])
    width = _width(group)
    divided = {name for name, one in here.items() if _divides(one, width)}
    whole = [name for name, one in here.items() if one.weights and not (name in divided or one.host)]
    if width == "sequence_parallel":
        there = {assignment.graph.nodes[name].weights for name in divided}
        whole = [name for name in whole if assignment.graph.nodes[name].weights not in there]
    if not divided:
        other = next((field for field in _WIDTHS if any(_divides(one, field) for one in here.values())), None)
        advice = f"set `{other}` instead" if other else f"set `{width}` to 1, with one rank"
        message = f"none of its nodes has {_WIDTHS[width]} that can be divided; {advice}"
        yield Problem("indivisible", f"{at}/{width}", message)
    elif whole:
        names = ", ".join(f"`{name}`" for name in whole)
        message = f"{names} can't be divided: each of its ranks computes all of it; to do that once, add a rank for it"
        yield Problem("repeated_nodes", at, message, "warning")


def _divides(component: Component, width: str) -> bool:
    return component.sequence_parallel if width == "sequence_parallel" else component.tensor_parallel


def _components(assignment: Assignment, catalogue: Catalogue, rank: int) -> dict[str, Component]:
    """The nodes that are used on a rank, with their components."""
    found: dict[str, Component] = {}
    for walk in assignment.walks.values():
        for entry in walk.entries:
            node = assignment.graph.nodes.get(entry.node)
            component = component_of(catalogue, node) if node is not None else None
            if component is not None and assignment.rank(entry.node, walk.name) == rank:
                found[entry.node] = component
    return found
