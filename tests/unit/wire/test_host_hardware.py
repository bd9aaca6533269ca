"""The service learns of a cluster's hosts, and makes the network of those that a plan needs."""

import socket
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as changed

from tests.support.deployment import plan_named
from tests.support.placing import hardware
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.host.topology import Link, NumaNode, Topology
from walkgraph.placement.tables import Plan
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_hardware import (
    SKEW,
    HostReport,
    HostsUnknown,
    addresses_of,
    ask_hosts,
    encoded,
    is_lost,
    network_of,
)

TOPOLOGY = Topology(
    nodes=(NumaNode(number=0, cpus=frozenset({0, 1}), memory=7),),
    near={"cuda:0": 0},
    links=(Link(first="cuda:0", second="cuda:1", kind="nvlink", peers=True),),
)
ONE = replace(hardware(5, 6), topology=TOPOLOGY)
FAR = replace(hardware(), host="far", address="10.0.0.2")
NEAR = replace(ONE, host="near", address="10.0.0.1", others=(FAR,))


VERSIONS = {"walkgraph": "1.2", "ray": "2.60.0", "python": "3.11"}


def report(found: Hardware, lacks: tuple[str, ...] = (), missing: tuple[str, ...] = (), **versions: str) -> bytes:
    known = {"versions": {**VERSIONS, **versions}, "lacks": lacks, "missing": missing, "clock": 1.0}
    return encoded(HostReport(hardware=found, **known))


def asked(folder: Path, answers: Iterable[forks.AboutHosts]) -> Hardware:
    """The hardware that the service makes of the answers of a server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                heard = forks.receive_order(connection)
                assert heard is not None
                assert heard[0] == forks.AskHosts(("/weights",))
                for answer in answers:
                    forks.send(connection, answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            return ask_hosts(folder / "s", [Path("/weights")])
        finally:
            server.join()


def test_hosts_come_as_they_were_found(tmp_path: Path) -> None:
    told = [forks.HostTold("near", "10.0.0.1", report(ONE), 1), forks.HostTold("far", "10.0.0.2", report(FAR), 0)]
    assert asked(tmp_path, told) == NEAR


def test_links_come_with_the_later_of_their_hosts(tmp_path: Path) -> None:
    link = forks.LinkTold("near", 1e9, 0.001)
    near = forks.HostTold("near", "10.0.0.1", report(ONE), 1)
    far = forks.HostTold("far", "10.0.0.2", report(FAR), 0, links=(link,))
    found = HostLink(first="near", second="far", bandwidth=1e9, latency=0.001)
    assert asked(tmp_path, [near, far]) == replace(NEAR, links=(found,))
    assert NEAR.link("", "far") is None
    assert replace(NEAR, links=(found,)).link("far", "") == found


def faults_of(folder: Path, far: bytes, name: str = "far", skew: float = 0.0) -> tuple[str, ...]:
    near = forks.HostTold("near", "10.0.0.1", report(ONE), 1)
    return asked(folder, [near, forks.HostTold(name, "10.0.0.2", far, 0, skew)]).others[0].faults


@pytest.mark.parametrize(
    ("far", "skew", "said"),
    [
        (report(FAR, ray="2.50.0"), 0.0, "host `far` has ray 2.50.0, and the service's host 2.60.0; install that"),
        (report(FAR, walkgraph="1.1"), 0.0, "host `far` has walkgraph 1.1, and the service's host 1.2; install that"),
        (report(FAR), 3600.0, "the clock of host `far` is 3600 s ahead of that of the service's host; let both follow"),
        (report(FAR), -3600.0, "the clock of host `far` is 3600 s behind that of the service's host; let both follow"),
        (b"", 0.0, "host `far` is in the cluster and doesn't answer; see that it is reached"),
    ],
)
def test_what_is_wrong_with_a_host_says_what_to_do(tmp_path: Path, far: bytes, skew: float, said: str) -> None:
    (fault,) = faults_of(tmp_path, far, skew=skew)
    assert fault.startswith(said)


def test_a_host_that_is_like_the_services_has_no_fault(tmp_path: Path) -> None:
    assert faults_of(tmp_path, report(FAR), skew=SKEW) == ()


def test_hosts_of_one_name_are_told(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, report(FAR), name="near")
    assert "several hosts are called `near`; name each its own" in fault


def test_a_host_can_not_have_the_name_that_leaves_it_to_the_plan(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, report(FAR), name="any")
    assert "host `any` can't be named" in fault


def test_a_plan_is_lost_with_a_host_that_it_has_chosen() -> None:
    unpinned = over("far")
    unpinned = changed(unpinned, ranks=tuple(changed(rank, unpinned=rank.host == "far") for rank in unpinned.ranks))
    assert not is_lost(unpinned, NEAR)
    assert is_lost(unpinned, replace(NEAR, others=()))
    assert is_lost(unpinned, replace(NEAR, others=(replace(NEAR.others[0], faults=("it doesn't answer",)),)))
    assert not is_lost(over("far"), replace(NEAR, others=())), "it waits for a host that it names"


def test_what_a_host_lacks_is_told(tmp_path: Path) -> None:
    near = forks.HostTold("near", "10.0.0.1", report(ONE), 1)
    far = forks.HostTold("far", "10.0.0.2", report(FAR, ("nixl",), ("/weights",)), 0)
    found = asked(tmp_path, [near, far])
    assert (found.lacks, found.missing) == ((), ())
    assert (found.others[0].lacks, found.others[0].missing) == (("nixl",), ("/weights",))


def test_the_report_of_a_large_host_arrives_with_its_links_to_many(tmp_path: Path) -> None:
    ways = [Link(first=f"cuda:{i}", second=f"cuda:{j}", kind="nvlink", peers=True) for i in range(16) for j in range(i)]
    large = replace(hardware(*[141 * 10**9] * 16), topology=replace(TOPOLOGY, links=tuple(ways)))
    links = tuple(forks.LinkTold(f"a-host-of-a-longer-name-{i}", 1e9 / 3, 0.001 / 3) for i in range(255))
    told = forks.HostTold("far", "10.0.0.2", report(large), 0, links=links)
    found = asked(tmp_path, [forks.HostTold("near", "10.0.0.1", report(ONE), 1), told])
    assert len(msgspec.msgpack.encode(told)) > 16 * 1024
    assert found.others[0].topology == large.topology
    assert len(found.links) == 255


def test_a_cluster_that_can_not_be_asked_says_why(tmp_path: Path) -> None:
    with pytest.raises(HostsUnknown, match="start the head"):
        asked(tmp_path, [forks.NoHosts("start the head")])


def test_a_server_that_ends_or_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(HostsUnknown, match=r"forks\.log"):
        asked(tmp_path, [forks.HostTold("near", "10.0.0.1", report(ONE), 1)])
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


def test_a_host_to_which_nothing_can_be_deployed_is_waited_for() -> None:
    faulty = replace(NEAR, faults=("two are called so",), others=(replace(FAR, faults=("it is silent", "it is old")),))
    with pytest.raises(HostsUnknown, match=r"^it is silent$"):
        network_of(over("far"), faulty)
    assert addresses_of([""], faulty) == {"": "10.0.0.1"}, "the service's own is there"
