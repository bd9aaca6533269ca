"""The telemetry of ranks on other hosts reaches the service in its order, and waits for nobody."""

from pathlib import Path

import pytest
import zmq

from tests.support.contexts import contexts
from walkgraph.conductor.telemetry_relay import TelemetryRelay
from walkgraph.wire import sockets
from walkgraph.wire.processes.host_network import make_keys

HERE = "127.0.0.1"
PATIENCE = 60_000
"""Milliseconds that nothing takes."""


@pytest.mark.parametrize("read", [True, False])
def test_packets_are_passed_on_or_lost(tmp_path: Path, read: bool) -> None:
    keys, address = make_keys(), sockets.address(tmp_path, "t")
    with contexts(keys, keys) as (context, far):
        service = sockets.pull(context, address) if read else None
        source = sockets.unbound_pull(context)
        port = sockets.listen(source, HERE)
        relay = TelemetryRelay(source, sockets.feed(context, address))
        rank = sockets.feed(far, f"tcp://{HERE}:{port}")
        count = sockets.MAX_FEED if read else 3 * sockets.MAX_FEED
        for number in range(count):
            rank.send(str(number).encode())
            relay.pass_on()
        found: list[int] = []
        poller = zmq.Poller()
        for socket in (source, service):
            if socket is not None:
                poller.register(socket, zmq.POLLIN)
        while service is not None and len(found) < count:
            assert poller.poll(PATIENCE)
            relay.pass_on()
            while service.poll(0):
                found.append(int(service.recv()))
        assert found == (list(range(count)) if read else [])
        assert relay.rejected == 0


def test_a_stranger_is_counted(tmp_path: Path) -> None:
    with contexts(make_keys(), make_keys()) as (context, other):
        source = sockets.unbound_pull(context)
        port = sockets.listen(source, HERE)
        relay = TelemetryRelay(source, sockets.feed(context, sockets.address(tmp_path, "t")))
        sockets.feed(other, f"tcp://{HERE}:{port}").send(b"x")
        poller = zmq.Poller()
        for file in relay.files:
            poller.register(file, zmq.POLLIN)
        while not relay.rejected:
            assert poller.poll(PATIENCE)
            relay.pass_on()
