"""The network between the hosts of a deployment, for its control messages: addresses of hosts, keys of its processes.

    rank ── DEALER ──> ROUTER of the conductor           each by CURVE: both ends have the deployment's keys
    rank ── PUSH ────> PULL of a rank on another host
    rank ── PUSH ────> PULL of the conductor, which passes telemetry on to the service

Processes listen on ports that the system chooses, and tell each other only these: the addresses are those of the plan's
hosts.
"""

import fcntl
import socket
import struct
from ipaddress import ip_address
from pathlib import Path

import msgspec
import zmq

from walkgraph.errors import InvalidInput

_SIOCGIFADDR = 0x8915
_IPV6 = Path("/proc/net/if_inet6")
"""A line for each address: 32 hexadecimal digits, four other words, the interface."""


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The CURVE keys of one deployment, in Z85. All its processes have the same: each may do what any other may."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"Keys({self.public}, ...)"


def make_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


class HostNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    addresses: dict[str, str]
    """Host, as the plan names it -> its address in the network of the hosts."""
    keys: Keys

    def address(self, host: str) -> str:
        """Raises InvalidInput if the host has none."""
        if host not in self.addresses:
            raise InvalidInput(f"host `{host}` has no address in the deployment's network; deploy again")
        return self.addresses[host]

    def endpoint(self, host: str, port: int) -> str:
        """The `tcp://` address of a port of a host. Raises InvalidInput if the host has no address."""
        return f"tcp://{in_url(self.address(host))}:{port}"


class Ports(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ports on which a conductor listens to ranks on other hosts."""

    workers: int
    telemetry: int


def in_url(address: str) -> str:
    """The IP address of one interface as it stands in a URL. Raises InvalidInput for any other text, and for an address
    of all interfaces or of many hosts."""
    try:
        found = ip_address(address)
    except ValueError:
        found = None
    if found is None or found.is_unspecified or found.is_multicast:
        raise InvalidInput(f"`{address}` is not the IP address of one interface; name that of the hosts' network")
    return f"[{found}]" if found.version == 6 else str(found)


def interface_of(address: str) -> str:
    """The interface of this host with an IP address. Raises InvalidInput if there is none."""
    wanted = ip_address(address)
    if wanted.is_loopback:
        return "lo"
    if wanted.version == 6:
        lines = (line.split() for line in _IPV6.read_text().splitlines())
        found = [name for digits, *_, name in lines if bytes.fromhex(digits) == wanted.packed]
    else:
        found = [name for _, name in socket.if_nameindex() if _ipv4(name) == wanted.packed]
    if not found:
        raise InvalidInput(f"no interface of this host has the address `{address}`; name one of its own")
    return found[0]


def _ipv4(interface: str) -> bytes | None:
    """An interface's first IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            told = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError:
            return None
    return told[20:24]
