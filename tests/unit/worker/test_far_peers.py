"""A rank on a network: it tells its conductor of a peer that it has lost, and stops once it has lost its conductor."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.contexts import contexts
from walkgraph.ids import Rank
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.processes.host_network import make_keys
from walkgraph.worker.io.carrier import Carrier
from walkgraph.worker.io.links import Links

HERE = "127.0.0.1"
ME, PEER = Rank(0), Rank(1)
PATIENCE = 60_000


@dataclass
class Network:
    links: Links
    """Those of a rank with a peer on another host, which it has greeted."""
    desk: sockets.Socket
    """The conductor's end, on another host too."""
    inbox: sockets.Socket
    """The peer's end."""

    def heard(self) -> list[m.FromWorker]:
        """The next message to the conductor."""
        while not self.desk.poll(10):
            self.links.wait(0.01)
            assert list(self.links.messages()) == []
            self.links.conductor.flush()
        return codec.from_worker.decode_all(self.desk.recv_multipart()[-1])


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    keys = make_keys()
    with contexts(keys, keys) as (ours, theirs):
        desk, inbox = sockets.router(theirs, sockets.address(tmp_path, "workers")), sockets.unbound_pull(theirs)
        workers, port = sockets.listen(desk, HERE), sockets.listen(inbox, HERE)
        conductor = sockets.dealer(ours, f"tcp://{HERE}:{workers}", b"0.1")
        carrier, other = (Carrier(rank, {"shm": 1 << 16}) for rank in (ME, PEER))
        mine = sockets.pull(ours, sockets.address(tmp_path, "rank0.1"))
        links = Links(ME, 1, conductor, mine, lambda _, peer: sockets.push(ours, f"tcp://{HERE}:{peer.port}"), carrier)
        links.conductor.send(m.Pong(rank=ME, number=0, at=0.0))
        made = Network(links, desk, inbox)
        assert made.heard() == [m.Pong(rank=ME, number=0, at=0.0)]
        links.set_peers({PEER: other.peer("", 7, port)})
        while not inbox.poll(10):
            links.flush()
        yield made
        links.close()
        other.close()


def test_a_rank_tells_of_the_peer_that_it_has_lost(network: Network) -> None:
    network.inbox.close(linger=0)
    assert network.heard() == [m.Parted(rank=ME, peer=PEER, start=7)]
    network.links.set_peers({})
    assert list(network.links.messages()) == [], "and of nobody who is replaced"


@pytest.mark.parametrize("loaded", [False, True])
def test_a_rank_stops_once_it_has_lost_its_conductor(network: Network, loaded: bool) -> None:
    assert network.desk.poll(0) == 0
    network.desk.close(linger=0)
    if loaded:
        network.links.wait(PATIENCE / 1000)
        assert list(network.links.messages()) == [m.Stop()]
    else:
        network.links.from_conductor.wait()
        assert list(network.links.from_conductor.messages()) == [m.Stop()]
