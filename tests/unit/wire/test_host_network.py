"""Addresses of hosts and keys of deployments."""

import json
import shutil
import subprocess

import msgspec
import pytest

from walkgraph.errors import InvalidInput
from walkgraph.wire.processes.host_network import HostNetwork, interface_of, make_keys

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


def test_an_address_belongs_to_one_interface() -> None:
    assert {interface_of(address) for address in ("127.0.0.1", "127.0.0.2", "::1")} == {"lo"}
    for strange in ("192.0.2.77", "2001:db8::77"):
        with pytest.raises(InvalidInput, match=f"no interface of this host has the address `{strange}`"):
            interface_of(strange)


@pytest.mark.skipif(shutil.which("ip") is None, reason="there is no `ip` to compare with")
def test_interfaces_are_those_that_the_system_names() -> None:
    told = subprocess.run(["ip", "-json", "address"], capture_output=True, check=True)
    first: dict[tuple[str, str], str] = {}
    for interface in json.loads(told.stdout):
        for address in interface["addr_info"]:
            first.setdefault((interface["ifname"], address["family"]), address["local"])
    assert {(interface_of(address), family): address for (_, family), address in first.items()} == first
