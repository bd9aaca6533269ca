"""The actor of a host, which reads its hardware and measures its links."""

import msgspec

from walkgraph.cluster.link_meter import LinkEnd, answer_once, measure
from walkgraph.placement.hardware import find_hardware
from walkgraph.settings import use_gpus_of_host
from walkgraph.wire.processes.host_hardware import encoded


class HostActor:
    """Its methods take and give bytes and numbers alone, as those of `RankActor` do."""

    def __init__(self) -> None:
        use_gpus_of_host()

    def hardware(self) -> bytes:
        return encoded(find_hardware())

    def answer_link(self, end: bytes) -> int:
        """Answer the next measurement of a link to this host, an encoded `LinkEnd`; returns its port."""
        asked = msgspec.msgpack.decode(end, type=LinkEnd)
        return answer_once(asked.address, asked.token)

    def measure_link(self, end: bytes) -> bytes:
        """An encoded `Measured` of the link to a host that answers."""
        asked = msgspec.msgpack.decode(end, type=LinkEnd)
        return msgspec.msgpack.encode(measure(asked.address, asked.port, asked.token))
