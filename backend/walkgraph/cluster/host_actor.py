"""The actor of a host, which reads its hardware."""

from walkgraph.placement.hardware import find_hardware
from walkgraph.settings import use_gpus_of_host
from walkgraph.wire.processes.host_hardware import encoded


class HostActor:
    """Its method gives bytes alone, as those of `RankActor` do."""

    def __init__(self) -> None:
        use_gpus_of_host()

    def hardware(self) -> bytes:
        return encoded(find_hardware())
