"""A rank finds others in the deployment's folder where they are on its host, and on the hosts' network where not."""

from pathlib import Path

import pytest
import zmq
from msgspec.structs import replace

from tests.support.contexts import contexts
from tests.support.deployment import plan_named
from walkgraph.errors import InvalidInput
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire import sockets
from walkgraph.wire.processes.host_network import HostNetwork, Ports, make_keys
from walkgraph.wire.spec import DeploymentSpec
from walkgraph.worker.addresses import Addresses

NEAR, FAR = Rank(0), Rank(1)
PORTS = Ports(workers=7, telemetry=8)
HERE, THERE = "127.0.0.1", "127.0.0.2"
NETWORK = HostNetwork({"": HERE, "there": THERE}, make_keys())
PEER = m.Peer(address="ipc://nowhere", start=1, port=9)


def spec(*hosts: str, network: HostNetwork | None = NETWORK, telemetry: str | None = "ipc://t") -> DeploymentSpec:
    _, plan = plan_named("synthetic_loops")
    ranks = tuple(replace(rank, host=host) for rank, host in zip(plan.ranks, hosts, strict=True))
    return DeploymentSpec(
        name="s", graph={}, plan=replace(plan, ranks=ranks), network=network, telemetry_address=telemetry
    )


def connected(addresses: Addresses, rank: Rank) -> str:
    with contexts(NETWORK.keys) as (context,):
        return addresses.connect(context)(rank, PEER).getsockopt_string(zmq.LAST_ENDPOINT)


def test_a_rank_beside_its_conductor_stays_in_the_folder(tmp_path: Path) -> None:
    one = Addresses(tmp_path, spec("", "there"), NEAR, None)
    assert one.conductor == f"ipc://{tmp_path}/workers"
    assert one.telemetry == "ipc://t"
    assert connected(one, FAR) == f"tcp://{THERE}:9", "but not to its peer"


def test_a_rank_on_another_host_uses_the_network(tmp_path: Path) -> None:
    other = Addresses(tmp_path, spec("", "there"), FAR, PORTS)
    assert other.conductor == f"tcp://{HERE}:7"
    assert other.telemetry == f"tcp://{HERE}:8"
    assert connected(other, NEAR) == f"tcp://{HERE}:9"
    assert Addresses(tmp_path, spec("", "there", telemetry=None), FAR, PORTS).telemetry is None


def test_ranks_of_one_host_share_its_folder_wherever_that_is(tmp_path: Path) -> None:
    beside = Addresses(tmp_path, spec("there", "there"), FAR, PORTS)
    assert connected(beside, NEAR) == PEER.address
    with contexts(NETWORK.keys) as (context,):
        assert beside.listen(sockets.unbound_pull(context)) == 0
        assert Addresses(tmp_path, spec("", "there"), FAR, PORTS).listen(sockets.unbound_pull(context)) > 0


def test_a_network_is_needed_between_hosts_alone(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="several hosts"):
        Addresses(tmp_path, spec("", "there", network=None), FAR, PORTS).conductor  # noqa: B018
    assert Addresses(tmp_path, spec("", "", network=None), FAR, None).conductor.startswith("ipc://")


def test_telemetry_is_sent_to_a_folder_of_this_host(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="ipc"):
        Addresses(tmp_path, spec("", "", telemetry=f"tcp://{HERE}:5"), NEAR, None).telemetry  # noqa: B018
