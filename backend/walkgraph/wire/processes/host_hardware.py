"""The hardware of a cluster's hosts: how it travels, how the service asks for it, and the network of a plan's hosts."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from walkgraph.errors import Overloaded
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.tables import Plan
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

HOSTS_SECONDS = 30.0
"""Time that the actor server has to tell a host."""

_decoder = msgspec.msgpack.Decoder(Hardware)


class HostsUnknown(Overloaded):
    """The cluster, or a host that a plan needs, can't be asked now."""


def encoded(hardware: Hardware) -> bytes:
    return msgspec.msgpack.encode(hardware)


def ask_hosts(server: Path, seconds: float = HOSTS_SECONDS) -> Hardware:
    """The service's host, with the others of its cluster. Slow. `server`: the socket of the actor server. Raises
    HostsUnknown."""
    found: list[Hardware] = []
    links: list[HostLink] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
        asked.settimeout(seconds)
        try:
            asked.connect(str(server))
            forks.send(asked, forks.AskHosts())
            while True:
                match forks.receive_host(asked):
                    case forks.HostTold() as told:
                        one = _decoder.decode(told.hardware)
                        found.append(replace(one, host=told.name, address=told.address))
                        links.extend(_links(told))
                        if not told.left:
                            return replace(found[0], others=tuple(found[1:]), links=tuple(links))
                    case forks.NoHosts(reason=reason):
                        raise HostsUnknown(reason)
                    case None:
                        raise ConnectionResetError
        except (OSError, msgspec.DecodeError) as error:
            message = "the process that asks Ray for hosts has not answered; `d/forks.log` says why, and try again"
            raise HostsUnknown(message) from error


def _links(told: forks.HostTold) -> Iterator[HostLink]:
    for link in told.links:
        yield HostLink(first=link.to, second=told.name, bandwidth=link.bandwidth, latency=link.latency)


def network_of(plan: Plan, hardware: Hardware) -> HostNetwork | None:
    """Joins the hosts of a plan, with new keys; None if there is one. Raises HostsUnknown if one is gone."""
    names = {"", *(rank.host for rank in plan.ranks)}
    if len(names) == 1:
        return None
    addresses: dict[str, str] = {}
    for name in sorted(names):
        host = hardware.at(name)
        if host is None or not host.address:
            raise HostsUnknown(f"the cluster has no host `{name or hardware.host}` now; start it")
        addresses[name] = host.address
    return HostNetwork(addresses, make_keys())
