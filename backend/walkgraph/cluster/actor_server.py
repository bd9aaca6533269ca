"""`python -m walkgraph.cluster.actor_server --listen F --parent P --address A`: has workers started as actors of Ray.

It serves the conductors that connect to the socket `F`, as the fork server does, and tells the service the cluster's
hosts. A deployment's ranks have a placement group, with a bundle for each rank on the host that the plan names. Ray
ends the actors when this process ends, and this process ends those of a conductor when its connection does.

An actor's name is that of its deployment's folder and its rank. Ray has one actor of a name at most, so a rank is not
started again while its last start may live.
"""

import argparse
import asyncio
import contextlib
import errno
import hashlib
import importlib
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from walkgraph.cluster import checkpoint_copies
from walkgraph.cluster.cluster_hosts import ClusterHosts
from walkgraph.cluster.joining import Joining
from walkgraph.cluster.rank_actor import RankActor
from walkgraph.errors import InvalidInput, Refused, WalkgraphError
from walkgraph.placement.tables import RankPlan
from walkgraph.wire.processes import forks
from walkgraph.wire.processes.common import die_with
from walkgraph.wire.spec import DeploymentSpec, read_spec

_log = logging.getLogger(__name__)

NO_ROOM = "the Ray cluster has no room for the deployment; see `ray status`, and free its GPUs or add nodes"
ROOM_SECONDS = 60.0
"""Seconds that a placement group waits for room in the cluster."""
_PIN = 0.001
"""The share of a host's own resource that keeps a bundle there."""


class ActorServer:
    def __init__(self, joining: Joining, listener: socket.socket, room: float = ROOM_SECONDS) -> None:
        """`room`: seconds that a deployment waits for room in the cluster, until that is told."""
        self._joining, self._listener, self._room = joining, listener, room
        listener.setblocking(False)
        self._hosts = ClusterHosts()
        self._conductors: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._listener)
            connection.setblocking(False)
            task = asyncio.create_task(_Conductor(self._joining, connection, self._hosts, self._room).serve())
            self._conductors.add(task)
            task.add_done_callback(self._conductors.discard)


class _Conductor:
    """A connection, and the actors of its ranks."""

    def __init__(self, joining: Joining, connection: socket.socket, hosts: ClusterHosts, room: float) -> None:
        self._joining, self._connection, self._hosts, self._room = joining, connection, hosts, room
        self._ray: Any = None
        """None until the cluster is joined."""
        self._actors: dict[tuple[int, int], Any] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._group: asyncio.Task[Any] | None = None
        self._copies: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        try:
            while (order := await self._order()) is not None:
                try:
                    self._ray = self._joining.joined()
                except Refused as error:
                    self._refuse(order, str(error))
                    continue
                match order:
                    case forks.Fork():
                        task = asyncio.create_task(self._run(order))
                        self._starting.add(task)
                        task.add_done_callback(self._starting.discard)
                    case forks.Kill():
                        self._kill(order.rank, order.start)
                    case forks.AskHosts(roots=roots, without=without):
                        match await self._hosts.told(self._ray, roots, without):
                            case forks.NoHosts() as none:
                                self._tell(none)
                            case hosts:
                                for host in hosts:
                                    self._tell(host)
        finally:
            await self._close()

    async def _order(self) -> forks.ToForkServer | None:
        """The next message; None at the end, and for anything else."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                heard = forks.receive_order(self._connection)
            except BlockingIOError:
                readable = loop.create_future()
                loop.add_reader(self._connection, readable.set_result, None)
                try:
                    await readable
                finally:
                    loop.remove_reader(self._connection)
                continue
            except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            if heard is None:
                return None
            order, files = heard
            # A pipe ends at this host: the connection stands for it.
            for file in files:
                os.close(file)
            return order

    async def _run(self, fork: forks.Fork) -> None:
        """Start a worker and wait for its end."""
        key = fork.rank, fork.start
        try:
            spec = read_spec(Path(fork.directory))
            actor = self._actors[key] = await self._actor(fork, spec)
            far = fork.ports is not None
            if far:
                await self._copied(spec)
            begun = actor.begin.remote(msgspec.msgpack.encode(fork), msgspec.json.encode(spec) if far else b"")
            self._tell(forks.Forked(*key, await begun))
        except (WalkgraphError, OSError, ValueError, self._ray.exceptions.RayError) as error:
            _log.warning("rank %d is not started: %s", fork.rank, error)
            self._kill(*key)
            self._tell(forks.Forked(*key, 0, errno.EHOSTUNREACH, self._reason(fork.rank, error)))
            return
        code = -signal.SIGKILL
        with contextlib.suppress(self._ray.exceptions.RayError):
            code = await actor.wait.remote()
        self._kill(*key)
        self._tell(forks.Exited(*key, code))

    def _reason(self, rank: int, error: Exception) -> str:
        """Says why a start that may be possible later is not now; empty for a fault of the actor, which would come
        again."""
        cause = getattr(error, "cause", error)  # what the actor raised
        if isinstance(cause, WalkgraphError):
            return str(cause)
        own = isinstance(error, self._ray.exceptions.RayTaskError)
        return "" if own else f"Ray can't start rank {rank} on its host now; `d/forks.log` says why"

    async def _actor(self, fork: forks.Fork, spec: DeploymentSpec) -> Any:
        mine = tuple(one for one in spec.plan.ranks if one.rank == fork.rank)
        # Ray would wait for a host that is gone, without a word.
        bundles(mine, self._ray.nodes(), self._ray.get_runtime_context().get_node_id())
        if self._group is None:
            self._group = asyncio.create_task(self._reserved(spec))
        try:
            group = await asyncio.shield(self._group)
        except (WalkgraphError, OSError, self._ray.exceptions.RayError):
            self._group = None  # the next one may have room
            raise
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        name = hashlib.sha256(fork.directory.encode()).hexdigest()[:16]
        return (
            self._ray.remote(RankActor)
            .options(
                name=f"{name}.{fork.rank}",
                num_cpus=0,
                max_restarts=0,
                scheduling_strategy=scheduling.PlacementGroupSchedulingStrategy(
                    placement_group=group,
                    placement_group_bundle_index=[int(one.rank) for one in spec.plan.ranks].index(fork.rank),
                ),
            )
            .remote()
        )

    async def _copied(self, spec: DeploymentSpec) -> None:
        """Wait until the deployment's hosts have its checkpoints."""
        if self._copies is None:
            self._copies = asyncio.create_task(self._bring(spec))
        try:
            await asyncio.shield(self._copies)
        except (WalkgraphError, OSError, self._ray.exceptions.RayError):
            self._copies = None  # the next start tries again
            raise

    async def _bring(self, spec: DeploymentSpec) -> None:
        for name, hosts in checkpoint_copies.needed(spec.plan).items():
            actors = self._hosts.named(self._ray, {"", *hosts})
            await checkpoint_copies.bring(name, spec.checkpoint_roots, actors.pop(""), actors)

    async def _reserved(self, spec: DeploymentSpec) -> Any:
        """The placement group of a deployment, once it has room. Raises InvalidInput."""
        groups = importlib.import_module("ray.util.placement_group")
        here = self._ray.get_runtime_context().get_node_id()
        made = groups.placement_group(bundles(spec.plan.ranks, self._ray.nodes(), here), strategy="PACK")
        try:
            async with asyncio.timeout(self._room):
                await made.ready()
        except TimeoutError:
            groups.remove_placement_group(made)
            raise Refused(NO_ROOM) from None
        except asyncio.CancelledError:
            groups.remove_placement_group(made)
            raise
        return made

    def _refuse(self, order: forks.ToForkServer, reason: str) -> None:
        match order:
            case forks.Fork():
                self._tell(forks.Forked(order.rank, order.start, 0, errno.EHOSTUNREACH, reason))
            case forks.AskHosts():
                self._tell(forks.NoHosts(reason))
            case forks.Kill():
                pass  # it has started nothing

    def _kill(self, rank: int, start: int) -> None:
        actor = self._actors.pop((rank, start), None)
        if actor is not None:
            self._ray.kill(actor)

    def _tell(self, message: forks.FromForkServer | forks.AboutHosts) -> None:
        # A conductor that doesn't read is gone, or will be told so by its service.
        with contextlib.suppress(OSError):
            forks.send(self._connection, message)

    async def _close(self) -> None:
        for task in self._starting:
            task.cancel()
        for key in list(self._actors):
            self._kill(*key)
        if self._copies is not None:
            self._copies.cancel()
        if self._group is not None:
            self._group.cancel()
            with contextlib.suppress(asyncio.CancelledError, WalkgraphError, OSError, self._ray.exceptions.RayError):
                importlib.import_module("ray.util.placement_group").remove_placement_group(await self._group)
        self._connection.close()


def bundles(ranks: tuple[RankPlan, ...], nodes: list[Mapping[str, Any]], here: str) -> list[dict[str, float]]:
    """The resources of each rank: its place on the node that is its host, and its share of a GPU. `here`: the node that
    plans. Raises InvalidInput for a host that the cluster doesn't have, or has twice."""
    names: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes:
        if node["Alive"]:
            names.setdefault("" if node["NodeID"] == here else node["NodeName"], []).append(node)
    sharing = Counter((rank.host, rank.device) for rank in ranks)
    found: list[dict[str, float]] = []
    for rank in ranks:
        if rank.host not in names:
            raise InvalidInput(f"the cluster has no host `{rank.host}` now; start it, or name another")
        node, *others = names[rank.host]
        if others:
            raise InvalidInput(f"several hosts are called `{rank.host}`; name each its own by `ray start --node-name`")
        bundle = {f"node:{node['NodeManagerAddress']}": _PIN}
        if rank.device != "cpu":
            bundle["GPU"] = 1 / sharing[rank.host, rank.device]
        found.append(bundle)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--listen", type=int, required=True)
    arguments.add_argument("--parent", type=int, required=True)
    arguments.add_argument("--address", required=True)
    arguments.add_argument("--room", type=float, default=ROOM_SECONDS)
    given = arguments.parse_args()
    die_with(given.parent)
    signal.signal(signal.SIGTERM, _leave)
    asyncio.run(ActorServer(Joining(given.address), socket.socket(fileno=given.listen), given.room).serve())


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
