"""What the service learns of a cluster's hosts, and the network of those that a plan needs."""

import socket
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from tests.support.deployment import plan_named
from tests.support.placing import hardware
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.host.topology import Link, NumaNode, Topology
from walkgraph.placement.tables import Plan
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_hardware import HostsUnknown, ask_hosts, encoded, network_of

TOPOLOGY = Topology(
    nodes=(NumaNode(number=0, cpus=frozenset({0, 1}), memory=7),),
    near={"cuda:0": 0},
    links=(Link(first="cuda:0", second="cuda:1", kind="nvlink", peers=True),),
)
ONE = replace(hardware(5, 6), topology=TOPOLOGY)
FAR = replace(hardware(), host="far", address="10.0.0.2")
NEAR = replace(ONE, host="near", address="10.0.0.1", others=(FAR,))


def asked(folder: Path, answers: Iterable[forks.AboutHosts]) -> Hardware:
    """What the service makes of the answers of a server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heard = forks.receive_order(connection)
                assert heard is not None
                assert heard[0] == forks.AskHosts()
                for answer in answers:
                    forks.send(connection, answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            return ask_hosts(folder / "s")
        finally:
            server.join()


def test_hosts_come_as_they_were_found(tmp_path: Path) -> None:
    told = [forks.HostTold("near", "10.0.0.1", encoded(ONE), 1), forks.HostTold("far", "10.0.0.2", encoded(FAR), 0)]
    assert asked(tmp_path, told) == NEAR


def test_links_come_with_the_later_of_their_hosts(tmp_path: Path) -> None:
    link = forks.LinkTold("near", 1e9, 0.001)
    near = forks.HostTold("near", "10.0.0.1", encoded(ONE), 1)
    far = forks.HostTold("far", "10.0.0.2", encoded(FAR), 0, (link,))
    found = HostLink(first="near", second="far", bandwidth=1e9, latency=0.001)
    assert asked(tmp_path, [near, far]) == replace(NEAR, links=(found,))
    assert NEAR.link("", "far") is None
    assert replace(NEAR, links=(found,)).link("far", "") == found


def test_a_cluster_that_can_not_be_asked_says_why(tmp_path: Path) -> None:
    with pytest.raises(HostsUnknown, match="start the head"):
        asked(tmp_path, [forks.NoHosts("start the head")])


def test_a_server_that_ends_or_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostsUnknown, match=r"forks\.log"):
        asked(tmp_path, [forks.HostTold("near", "10.0.0.1", encoded(ONE), 1)])
    with pytest.raises(HostsUnknown, match=r"forks\.log"):
        ask_hosts(tmp_path / "none")


def over(host: str) -> Plan:
    plan = plan_named("synthetic_loops")[1]
    first, second = plan.ranks
    return changed(plan, ranks=(first, changed(second, host=host)))


def test_the_network_has_the_hosts_of_the_plan_and_keys_of_its_own() -> None:
    more = replace(NEAR, others=(FAR, replace(FAR, host="other", address="10.0.0.3")))
    first, second = network_of(over("far"), more), network_of(over("far"), more)
    assert first is not None
    assert second is not None
    assert first.addresses == {"": "10.0.0.1", "far": "10.0.0.2"}
    assert first.keys != second.keys
    assert network_of(over(""), more) is None


@pytest.mark.parametrize("found", [replace(NEAR, others=()), replace(NEAR, others=(replace(FAR, address=""),))])
def test_a_host_that_is_gone_is_waited_for(found: Hardware) -> None:
    with pytest.raises(HostsUnknown, match="no host `far` now; start it") as raised:
        network_of(over("far"), found)
    assert raised.value.retryable
