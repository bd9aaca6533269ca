"""Tensors between two hosts, which are network namespaces: a short cut loses nothing, a long one blocks nobody."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.far_transport import FarTransport, far_transport
from tests.support.namespaces import Host, allowed, two_hosts
from walkgraph.placement.transports import declared_transports

pytestmark = [
    pytest.mark.skipif(not declared_transports()["nixl"].installed, reason="`nixl` is not installed"),
    pytest.mark.skipif(not allowed(), reason="network namespaces are not allowed here"),
]
LARGE = 16 << 20
LONG = 300.0
"""Seconds that nothing takes."""

Ends = tuple[Host, FarTransport, FarTransport]


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    """The sender's host, the sender, which is rank 0, and the receiver, rank 1."""
    with two_hosts() as (here, there), far_transport(here, 0) as sender, far_transport(there, 1) as receiver:
        receiver.ask("connect", 0, sender.ask("handle"))
        yield here, sender, receiver


def sent_into_a_cut(ends: Ends) -> Any:
    """Cut the cable behind a tensor that has come; returns the ticket of another, which is on its way."""
    here, sender, receiver = ends
    assert receiver.ask("get", sender.ask("put", LARGE, 1, 1), LONG) == [1, 1]
    here.plug(into=False)
    ticket = sender.ask("put", LARGE, 2, 1)
    assert receiver.ask("get", ticket, 0.5) is None
    return ticket


def test_a_cut_that_is_mended_loses_nothing(ends: Ends) -> None:
    here, _, receiver = ends
    ticket = sent_into_a_cut(ends)
    here.plug(into=True)
    assert receiver.ask("get", ticket, LONG) == [2, 2]


def test_a_peer_behind_a_cut_is_given_up_at_once(ends: Ends) -> None:
    here, sender, receiver = ends
    ticket = sent_into_a_cut(ends)
    receiver.ask("disconnect", 0)
    assert receiver.ask("get", ticket, LONG) == "worker_lost"
    here.plug(into=True)
    receiver.ask("connect", 0, sender.ask("handle"))
    assert receiver.ask("get", sender.ask("put", LARGE, 3, 1), LONG) == [3, 3]
