"""The addresses at which a rank finds its conductor, its peers and the reader of its telemetry: in the deployment's
folder, or on the network of its hosts."""

from pathlib import Path

from walkgraph.errors import InvalidInput
from walkgraph.ids import Rank
from walkgraph.placement.host.neighbours import apart
from walkgraph.settings import use_interface
from walkgraph.wire import messages as m
from walkgraph.wire import sockets
from walkgraph.wire.processes.host_network import HostNetwork, Ports, interface_of
from walkgraph.wire.spec import WORKERS_SOCKET, DeploymentSpec
from walkgraph.worker.io.peers import Connect


class Addresses:
    def __init__(self, directory: Path, spec: DeploymentSpec, rank: Rank, ports: Ports | None) -> None:
        """`ports`: those of the conductor; None: it is on this host."""
        self._directory, self._spec, self._ports = directory, spec, ports
        self._hosts = {one.rank: one.host for one in spec.plan.ranks}
        self._apart, self._here = apart(spec.plan, rank), self._hosts[rank]

    def listen(self, inbox: sockets.Socket) -> int:
        """Let peers on other hosts connect; returns the port. 0: there are none. Raises InvalidInput if this host
        doesn't have the address that it has in the network."""
        if not self._apart:
            return 0
        use_interface(interface_of(self._network.address(self._here)))
        return sockets.listen(inbox, self._network.address(self._here))

    @property
    def conductor(self) -> str:
        if self._ports is None:
            return sockets.address(self._directory, WORKERS_SOCKET)
        return self._network.endpoint("", self._ports.workers)

    @property
    def telemetry(self) -> str | None:
        """None where nobody reads it. Raises InvalidInput for an address that isn't in a folder."""
        address = self._spec.telemetry_address
        if address is None:
            return None
        if not address.startswith("ipc://"):
            raise InvalidInput("the telemetry address must begin with `ipc://`")
        return address if self._ports is None else self._network.endpoint("", self._ports.telemetry)

    def connect(self, context: sockets.Context) -> Connect:
        """Connects to peers wherever they are."""

        def connected(rank: Rank, peer: m.Peer) -> sockets.Socket:
            far = rank in self._apart
            return sockets.push(context, self._network.endpoint(self._hosts[rank], peer.port) if far else peer.address)

        return connected

    @property
    def _network(self) -> HostNetwork:
        if self._spec.network is None:
            raise InvalidInput("a plan for several hosts needs their network; deploy again")
        return self._spec.network
