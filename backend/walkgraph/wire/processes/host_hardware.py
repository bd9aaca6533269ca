"""The hardware of a cluster's hosts: how it travels, how the service asks for it, and the network of a plan's hosts."""

import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from walkgraph.errors import Overloaded
from walkgraph.placement.document import ANY
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.tables import Plan
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

HOSTS_SECONDS = 60.0
"""Time that the actor server has to tell a host. Ray takes half a minute to give up a key that doesn't fit."""

SKEW = 5.0
"""Seconds between two clocks that traces and deadlines tolerate."""


class HostReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The report of a host, which its actor has read there."""

    hardware: Hardware
    versions: dict[str, str]
    """Those of what all hosts must have alike: `walkgraph`, `ray`, `python`."""
    lacks: tuple[str, ...]
    missing: tuple[str, ...]
    """As in `Hardware`."""
    clock: float
    """Seconds since 1970, when it was read."""


_decoder = msgspec.msgpack.Decoder(HostReport)


class HostsUnknown(Overloaded):
    """The cluster, or a host that a plan needs, can't be asked now."""


def encoded(report: HostReport) -> bytes:
    return msgspec.msgpack.encode(report)


def decoded(report: bytes) -> HostReport:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(report)


def ask_hosts(
    server: Path, roots: Sequence[Path] = (), without: Collection[str] = (), seconds: float = HOSTS_SECONDS
) -> Hardware:
    """The service's host, with the others of its cluster. Slow. `server`: the socket of the actor server. `roots`: the
    service's folders of checkpoints. `without`: hosts that are left out. Raises HostsUnknown."""
    told: list[forks.HostTold] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.settimeout(seconds)
        try:
            asked.connect(str(server))
            forks.send(asked, forks.AskHosts(tuple(map(str, roots)), tuple(sorted(without))))
            while not told or told[-1].left:
                match forks.receive_host(asked):
                    case forks.HostTold() as one:
                        told.append(one)
                    case forks.NoHosts(reason=reason):
                        raise HostsUnknown(reason)
                    case None:
                        raise ConnectionResetError
            return _cluster(told)
        except (OSError, msgspec.DecodeError) as error:
            message = "the process that asks Ray for hosts has not answered; `d/forks.log` says why, and try again"
            raise HostsUnknown(message) from error


def _cluster(told: Sequence[forks.HostTold]) -> Hardware:
    """The hosts as they were told, the service's first. Raises msgspec.DecodeError."""
    here, names = decoded(told[0].report), Counter(one.name for one in told)
    found: list[Hardware] = []
    for one in told:
        twice = f"several hosts are called `{one.name}`; name each its own by `ray start --node-name`"
        reserved = (
            f"host `{one.name}` can't be named, as `{ANY}` leaves the host to the plan; give its node another name"
        )
        faults = ((twice,) if names[one.name] > 1 else ()) + ((reserved,) if one.name == ANY else ())
        if one.report:
            report = decoded(one.report)
            faults += host_faults(one.name, report, here, one.skew)
            known = replace(report.hardware, lacks=report.lacks, missing=report.missing)
        else:
            silent = f"host `{one.name}` is in the cluster and doesn't answer; see that it is reached"
            faults += (f"{silent} and has the same Walkgraph, and what `d/forks.log` says",)
            known = Hardware(host=one.name, cores=0, shm=0, devices=())
        found.append(replace(known, host=one.name, address=one.address, faults=faults))
    links = tuple(link for one in told for link in _links(one))
    return replace(found[0], others=tuple(found[1:]), links=links)


def host_faults(name: str, report: HostReport, here: HostReport, skew: float) -> tuple[str, ...]:
    """Why nothing can be deployed to a host. `here`: that of the service's."""
    found = [
        f"host `{name}` has {what} {report.versions.get(what, 'none')}, and the service's host {wanted}; install that "
        f"there too"
        for what, wanted in here.versions.items()
        if report.versions.get(what) != wanted
    ]
    if abs(skew) > SKEW:
        side = "ahead of" if skew > 0 else "behind"
        found.append(
            f"the clock of host `{name}` is {abs(skew):.0f} s {side} that of the service's host; let both follow a "
            f"time server, as traces and deadlines are compared by them"
        )
    return tuple(found)


def _links(told: forks.HostTold) -> Iterator[HostLink]:
    for link in told.links:
        yield HostLink(first=link.to, second=told.name, bandwidth=link.bandwidth, latency=link.latency)


def network_of(plan: Plan, hardware: Hardware) -> HostNetwork | None:
    """Joins the hosts of a plan, with new keys; None if there is one. Raises HostsUnknown if one is gone."""
    names = {"", *(rank.host for rank in plan.ranks)}
    if len(names) == 1:
        return None
    return HostNetwork(addresses_of(names, hardware), make_keys())


def is_lost(plan: Plan, hardware: Hardware) -> bool:
    """True if unpinned ranks of a plan are on a host that is gone, or that nothing can be deployed to now."""
    try:
        addresses_of({rank.host for rank in plan.ranks if rank.unpinned and rank.host}, hardware)
    except HostsUnknown:
        return True
    return False


def addresses_of(names: Iterable[str], hardware: Hardware) -> dict[str, str]:
    """Host -> its address in the cluster. Raises HostsUnknown if one is gone, or nothing can be deployed to it now."""
    addresses: dict[str, str] = {}
    for name in sorted(names):
        host = hardware.at(name)
        if host is None or not host.address:
            raise HostsUnknown(f"the cluster has no host `{name or hardware.host}` now; start it")
        if host.faults and host is not hardware:
            raise HostsUnknown(host.faults[0])
        addresses[name] = host.address
    return addresses
