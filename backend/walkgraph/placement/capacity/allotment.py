"""The memory that ranks of one device may take: what their groups name, or an equal share of what is left."""

from collections.abc import Mapping

from walkgraph.ids import Rank
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import size_in_bytes

NamedMemory = tuple[int | str, ...] | None
"""The `memory` of all groups of a rank; None if one of them names none."""


def named_memory(assignment: Assignment, rank: Rank) -> NamedMemory:
    placement = assignment.placement
    used = {
        placed[0]
        for name, walk in assignment.walks.items()
        for node in dict.fromkeys(entry.node for entry in walk.entries if entry.node)
        if (placed := assignment.group(node, name)) is not None and rank in placed[1].ranks
    }
    sizes = [placement.groups[index].memory for index in sorted(used)]
    named = tuple(size for size in sizes if size is not None)
    return named if sizes and len(named) == len(sizes) else None


def allotted(named: Mapping[Rank, NamedMemory], free: int) -> dict[Rank, tuple[int, bool]]:
    """Rank -> bytes that it may take, and True if its groups name them. Ranks without a figure share what the others
    leave. `named`: all ranks of a device. `free`: its bytes."""
    said = {
        rank: None if own is None else sum(size_in_bytes(size, free) for size in own) for rank, own in named.items()
    }
    shares = sum(1 for size in said.values() if size is None)
    left = max(0, free - sum(size for size in said.values() if size is not None))
    return {rank: (left // shares, False) if size is None else (size, True) for rank, size in said.items()}
