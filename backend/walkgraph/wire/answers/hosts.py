"""Answers about the hosts that a service deploys to."""

from typing import TypedDict

from walkgraph.wire.answers.plans import Device, Link


class HostReach(TypedDict):
    """The way to another host, as it was measured when the later one joined the cluster."""

    host: str
    bandwidth: float
    """Bytes a second, in the slower direction."""
    latency: float
    """Seconds."""


class HostRank(TypedDict):
    """A rank of a deployment that runs on a host."""

    deployment: str
    rank: int
    device: str
    """`cpu` or `cuda:N`."""
    state: str
    """Its worker's; `starting` until that is known."""


class Host(TypedDict):
    name: str
    address: str
    """In the network of its cluster; empty without a cluster."""
    here: bool
    """The service runs on it."""
    alive: bool
    """False for one that doesn't answer, or that deployments have ranks on and that is gone: its devices aren't known
    then."""
    problems: list[str]
    """Problems that keep deployments from it, each a sentence that says what to do."""
    cores: int
    devices: list[Device]
    """The CPU, with the host's memory, and every GPU."""
    links: list[Link]
    """The ways between its GPUs, as far as the driver knows them."""
    reaches: list[HostReach]
    """Other hosts, as far as the ways there are measured."""
    ranks: list[HostRank]
