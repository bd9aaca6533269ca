"""The part that a process takes in its rank: of a rank without shards, of the first shard, or of another one.

The first shard serves as any rank does, and tells the others what its choices follow from. The others take its part in
the plan, on their own devices and with their own shards of the weights, and repeat its turns.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import zmq
from msgspec.structs import replace

from walkgraph.collectives import joining
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.engine.device.outside import Firsthand, Outside
from walkgraph.ids import Rank
from walkgraph.placement.tables import Plan, RankPlan
from walkgraph.telemetry.emit import Emitter
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop
from walkgraph.worker.observe.observer import Observer
from walkgraph.worker.observe.work_telemetry import MeasuredEngine
from walkgraph.worker.shards.broadcast import Broadcast, address
from walkgraph.worker.shards.shard_links import FirstLinks, OtherLinks
from walkgraph.worker.shards.shard_telemetry import NoSamples, ShardTelemetry
from walkgraph.worker.shards.shared_outside import RepeatedOutside, ToldOutside


@dataclass(frozen=True)
class Membership:
    plan: Plan
    """The plan as the process carries it out."""
    rank: Rank
    """The rank whose part it takes."""
    shard: Shard
    outside: Outside
    run: Callable[[WorkerLoop], None]
    """Runs the loop until it is stopped."""
    observer: Callable[[Emitter, MeasuredEngine], Observer] | None = None
    """Makes what reports the loop's work; None: all of it is reported."""


def links_of(here: RankPlan) -> type[Links]:
    if not here.shards:
        return Links
    return OtherLinks if here.repeats else FirstLinks


def join(directory: Path, order: m.Load, here: RankPlan, links: Links) -> Membership:
    """Take the part of a rank; a shard meets the others first. Raises ShardsApart or ShardLost if one of them doesn't
    come."""
    if isinstance(links, FirstLinks):
        told = Broadcast([address(directory, rank, order.shards[rank]) for rank in here.shards[1:]])
        links.tell(told)
        outside = ToldOutside(told, time.monotonic)
        return Membership(order.plan, here.rank, _shard(directory, order, here), outside, WorkerLoop.run)
    if isinstance(links, OtherLinks):
        links.told.accept()

        def run(loop: WorkerLoop) -> None:
            _repeat(loop, links, here.rank)

        outside = RepeatedOutside(links.told, time.monotonic)
        ranks = here.rank, here.shards[0]

        def observer(emitter: Emitter, engine: MeasuredEngine) -> Observer:
            return Observer(ShardTelemetry(ranks, outside, emitter, time.monotonic, engine, links), NoSamples())

        plan, shard = _plan_of(order.plan, here), _shard(directory, order, here)
        return Membership(plan, here.shards[0], shard, outside, run, observer)
    return Membership(order.plan, here.rank, WHOLE, Firsthand(hears=links.wait), WorkerLoop.run)


def _shard(directory: Path, order: m.Load, here: RankPlan) -> Shard:
    first = here.shards[0]
    at = directory / f"shards{first}.{order.shards[first]}"
    return joining.join(at, here.shards.index(here.rank), len(here.shards), torch.device(here.device))


def _plan_of(plan: Plan, here: RankPlan) -> Plan:
    """The plan with the first shard's part on another shard's device."""
    first = here.shards[0]
    ranks = tuple(
        replace(rank, device=here.device, budget=here.budget) if rank.rank == first else rank for rank in plan.ranks
    )
    return replace(plan, ranks=ranks)


def _repeat(loop: WorkerLoop, links: OtherLinks, rank: Rank) -> None:
    """Repeat turns until the first shard stops. Raises ShardsApart if it ends otherwise."""
    poller = zmq.Poller()
    conductor, told = links.from_conductor.socket, links.told.fileno()
    poller.register(conductor, zmq.POLLIN)
    poller.register(told, zmq.POLLIN)
    ready = {conductor}
    while not loop.stopping:
        if conductor in ready:
            _answer(links, rank)
        if told in ready:
            loop.act()
        ready = {one for one, _ in poller.poll()}


def _answer(links: Links, rank: Rank) -> None:
    """Answer pings. Whatever else comes to a loaded rank comes to the first shard too, which tells it in its place."""
    for _, message in links.from_conductor.drain():
        if isinstance(message, m.Ping):
            pong = m.Pong(rank=rank, number=message.number, at=time.monotonic())
            links.from_conductor.socket.send(codec.encode(pong))
