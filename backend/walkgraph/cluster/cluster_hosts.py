"""The hosts of a Ray cluster, each with an actor that reads its hardware: it is started when it is first asked, and
again when it is lost."""

import asyncio
import importlib
import logging
import secrets
import time
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from walkgraph.cluster.host_actor import HostActor
from walkgraph.cluster.host_links import HostLinks
from walkgraph.cluster.link_meter import TOKEN_BYTES, LinkEnd, Measured
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.host_hardware import decoded

HOST_SECONDS = 20.0
"""Time that a host has to start its actor and read its hardware, or to measure a link."""

_log = logging.getLogger(__name__)


class ClusterHosts:
    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        """Actors by the ids of their nodes."""
        self._addresses: dict[str, str] = {}
        self._links = HostLinks(self._measured)

    async def told(
        self, ray: Any, roots: Sequence[str], without: Collection[str] = ()
    ) -> list[forks.HostTold] | forks.NoHosts:
        """The hosts, this one first; those that don't answer have no report. `ray`: the module, connected to its
        cluster. `roots`: the service's folders of checkpoints. `without`: hosts that are left out."""
        here = ray.get_runtime_context().get_node_id()
        nodes = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
        for lost in self._actors.keys() - nodes.keys():
            del self._actors[lost]
        asked_for = [node for node in nodes if node == here or nodes[node]["NodeName"] not in without]
        order = sorted(asked_for, key=lambda node: (node != here, nodes[node]["NodeName"]))
        asked = msgspec.msgpack.encode(roots)
        reports = dict(
            zip(order, await asyncio.gather(*(self._report(ray, node, asked) for node in order)), strict=True)
        )
        if here not in reports or not reports[here][0]:
            return forks.NoHosts("the service's own node in the Ray cluster doesn't answer; see `ray status` there")
        self._addresses = {node: nodes[node]["NodeManagerAddress"] for node in order if reports[node][0]}
        self._links.keep(self._addresses)
        return [
            forks.HostTold(
                name=nodes[node]["NodeName"],
                address=nodes[node]["NodeManagerAddress"],
                report=reports[node][0],
                left=len(order) - place,
                skew=reports[node][1],
                links=tuple(
                    forks.LinkTold(nodes[other]["NodeName"], link.bandwidth, link.latency)
                    for other in order[: place - 1]
                    if (link := self._links.link(node, other)) is not None
                ),
            )
            for place, node in enumerate(order, start=1)
        ]

    def named(self, ray: Any, names: Collection[str]) -> dict[str, Any]:
        """The actors of the hosts of these names, as far as they are there; "": this one."""
        here = ray.get_runtime_context().get_node_id()
        nodes = {"" if node["NodeID"] == here else node["NodeName"]: node for node in ray.nodes() if node["Alive"]}
        return {name: self._actor(ray, nodes[name]["NodeID"]) for name in names if name in nodes}

    def _actor(self, ray: Any, node: str) -> Any:
        if node not in self._actors:
            scheduling = importlib.import_module("ray.util.scheduling_strategies")
            there = scheduling.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            self._actors[node] = (
                ray.remote(HostActor).options(num_cpus=0, max_restarts=0, scheduling_strategy=there).remote()
            )
        return self._actors[node]

    async def _report(self, ray: Any, node: str, roots: bytes) -> tuple[bytes, float]:
        """The report of a host, and the seconds by which its clock is ahead; no report if the host doesn't answer."""
        try:
            async with asyncio.timeout(HOST_SECONDS):
                found: bytes = await self._actor(ray, node).report.remote(roots)
            return found, decoded(found).clock - time.time()
        except (TimeoutError, msgspec.DecodeError, ray.exceptions.RayError) as error:
            _log.warning("host %s doesn't tell its hardware: %s", node, error)
            ray.kill(self._actors.pop(node))
            return b"", 0.0

    async def _measured(self, one: str, other: str) -> Measured | None:
        """The link between two nodes; None if one of them is gone, or doesn't reach the other."""
        errors = importlib.import_module("ray.exceptions")
        end = LinkEnd(self._addresses.get(other, ""), secrets.token_bytes(TOKEN_BYTES))
        try:
            async with asyncio.timeout(HOST_SECONDS):
                port: int = await self._actors[other].answer_link.remote(msgspec.msgpack.encode(end))
                reached = msgspec.msgpack.encode(msgspec.structs.replace(end, port=port))
                return msgspec.msgpack.decode(await self._actors[one].measure_link.remote(reached), type=Measured)
        except (KeyError, TimeoutError, errors.RayError) as error:
            _log.warning("the link between hosts %s and %s isn't measured: %s", one, other, error)
            return None
