"""Addresses of hosts and keys of deployments."""

import msgspec
import pytest

from walkgraph.errors import InvalidInput
from walkgraph.wire.processes.host_network import HostNetwork, make_keys

HERE = "10.0.0.1"


def test_each_deployment_has_keys_of_its_own_and_does_not_show_them() -> None:
    one, other = make_keys(), make_keys()
    assert len({one.public, one.secret, other.public, other.secret}) == 4
    network = HostNetwork({"": HERE}, one)
    assert one.secret not in repr(network)
    assert msgspec.json.decode(msgspec.json.encode(network), type=HostNetwork) == network


def test_addresses_are_those_of_the_hosts() -> None:
    network = HostNetwork({"": HERE, "far": "fd00:0::1"}, make_keys())
    assert network.endpoint("", 7) == f"tcp://{HERE}:7"
    assert network.endpoint("far", 7) == "tcp://[fd00::1]:7"
    with pytest.raises(InvalidInput, match="host `other` has no address"):
        network.endpoint("other", 7)
