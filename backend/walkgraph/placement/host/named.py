"""Problems with the hosts that a placement names."""

from collections.abc import Iterator

from walkgraph.graph.problems import Problem
from walkgraph.placement.document import ANY, Placement
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.neighbours import hosts_of
from walkgraph.placement.tables import Plan
from walkgraph.placement.transports import Transports


def judge_hosts(placement: Placement, hardware: Hardware) -> Iterator[Problem]:
    """Hosts that aren't known, that can only be planned for, or that differ from another one for the same rank."""
    first: dict[str, str] = {}
    for place, entries in (("ranks", placement.ranks), ("groups", placement.groups)):
        for index, entry in enumerate(entries):
            if entry.host not in (None, ANY):
                at = f"/{place}/{index}/host"
                first.setdefault(entry.host, at)
                found = _host(hardware, entry.host, at)
                # A warning about a host is told once.
                yield from (one for one in found if one.severity == "error" or first[entry.host] == at)
    for index, group in enumerate(placement.groups):
        if group.host is not None:
            yield from _other(placement, hardware, index)


def judge_cluster(plan: Plan, placement: Placement, hardware: Hardware, transports: Transports) -> Iterator[Problem]:
    """The problems that keep a plan from the hosts of a cluster that it needs."""
    used = {rank.host or hardware.host for rank in plan.ranks}
    between = {name for name in _between_hosts(plan) if name in transports}
    for name in sorted(used):
        host, at = hardware.at(name), _named_at(placement, name)
        if host is None or not host.address:
            continue
        for fault in host.faults if name != hardware.host else ():
            yield Problem("unfit_host", at, fault, "warning")
        for transport, message in lacking(host, transports):
            if transport in between:
                yield Problem("not_installed", at, message, "warning")


def lacking(host: Hardware, transports: Transports) -> Iterator[tuple[str, str]]:
    """Transports whose packages a host hasn't, each with what to do."""
    for name in sorted(transports.keys() & {*host.lacks}):
        extra = transports[name].extra
        do = f"run `pip install 'walkgraph[{extra}]'` there"
        yield name, f"host `{host.host}` lacks `{name}`, by which tensors go between hosts; {do}"


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
    elif not found.devices:
        yield Problem("silent_host", at, "; ".join(found.faults))
    elif name != hardware.host and not found.address:
        message = (
            f"host `{name}` is assumed: it can be planned for, not deployed to; name a host of a cluster "
            f"(`WALKGRAPH_BACKEND=ray`), or remove `host` to deploy here"
        )
        yield Problem("several_hosts", at, message, "warning")


def _other(placement: Placement, hardware: Hardware, index: int) -> Iterator[Problem]:
    group = placement.groups[index]
    if group.host != ANY and hardware.at(group.host or "") is None:
        return
    named = {entry.rank for entry in placement.ranks if entry.host is not None}
    for rank in group.ranks:
        if (other := placement.host(rank)) != group.host:
            by = "by itself" if rank in named else "by another group"
            message = f"rank {rank} is on host `{other}` {by}; name that, or take another rank"
            yield Problem("two_hosts", f"/groups/{index}/host", message)


def _between_hosts(plan: Plan) -> Iterator[str]:
    """Transports of edges whose ends are on several hosts."""
    hosts = hosts_of(plan)
    for walk in plan.walks:
        if len({hosts[rank] for rank in walk.ranks}) > 1:
            for edge in walk.edges:
                if edge.source.kind == edge.target.kind == "use":
                    ends = walk.uses[edge.source.use].rank, walk.uses[edge.target.use].rank
                    if len({hosts[rank] for rank in ends}) > 1:
                        yield edge.transport
                elif edge.target.kind == "stream":
                    yield edge.transport


def _named_at(placement: Placement, host: str) -> str:
    """The first place where a placement names a host."""
    for place, entries in (("ranks", placement.ranks), ("groups", placement.groups)):
        for index, entry in enumerate(entries):
            if entry.host == host:
                return f"/{place}/{index}/host"
    return "/ranks"
