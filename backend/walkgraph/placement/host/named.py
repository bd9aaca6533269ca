"""Problems with the hosts that a placement names."""

from collections.abc import Iterator

from walkgraph.graph.problems import Problem
from walkgraph.placement.document import Placement
from walkgraph.placement.hardware import Hardware


def judge_hosts(placement: Placement, hardware: Hardware) -> Iterator[Problem]:
    """Hosts that aren't known, that can only be planned for, or that differ from another one for the same rank."""
    for index, entry in enumerate(placement.ranks):
        if entry.host is not None:
            yield from _host(hardware, entry.host, f"/ranks/{index}/host")
    for index, group in enumerate(placement.groups):
        if group.host is not None:
            yield from _host(hardware, group.host, f"/groups/{index}/host")
            yield from _other(placement, hardware, index)


def place_of(placement: Placement, hardware: Hardware, rank: int) -> str:
    """The name of a rank's host."""
    return placement.host(rank) or hardware.host


def _host(hardware: Hardware, name: str, at: str) -> Iterator[Problem]:
    found = hardware.at(name)
    if found is None:
        first = "have it join the cluster" if hardware.address else "deploy to a cluster (`WALKGRAPH_BACKEND=ray`)"
        names = [f"`{one.host}`" for one in hardware.hosts]
        known = ", ".join(names[:8]) + (" …" if len(names) > 8 else "")
        message = (
            f"there is no host `{name}`; {first}, use one of {known}, or plan for assumed ones "
            f"(`walkgraph plan --gpus '2 hosts x 3x141GB'` has `host0` and `host1`)"
        )
        yield Problem("unknown_host", at, message)
    elif name != hardware.host and not found.address:
        message = (
            f"host `{name}` is assumed: it can be planned for, not deployed to; name a host of a cluster "
            f"(`WALKGRAPH_BACKEND=ray`), or remove `host` to deploy here"
        )
        yield Problem("several_hosts", at, message, "warning")


def _other(placement: Placement, hardware: Hardware, index: int) -> Iterator[Problem]:
    group = placement.groups[index]
    if hardware.at(group.host or "") is None:
        return
    named = {entry.rank for entry in placement.ranks if entry.host is not None}
    for rank in group.ranks:
        if (other := placement.host(rank)) != group.host:
            by = "by itself" if rank in named else "by another group"
            message = f"rank {rank} is on host `{other}` {by}; name that, or take another rank"
            yield Problem("two_hosts", f"/groups/{index}/host", message)
