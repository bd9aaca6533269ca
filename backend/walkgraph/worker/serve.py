"""The life of a rank: Hello ──> Load ──> Progress ... ──> Ready, then the loop, which starts with Greet, Connected.

Another Load ends the loop, and begins the next one with the operators that both plans have.
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from walkgraph.collectives.base import Shard
from walkgraph.engine.calls.memo import Memo
from walkgraph.engine.calls.schedule import CPU_MIX, MIX
from walkgraph.engine.engine import Engine
from walkgraph.engine.failures import is_memory, too_little
from walkgraph.engine.load import KeptOperators, rank_plan
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.errors import ErrorInfo, GroupBroken, WalkgraphError
from walkgraph.ids import Rank
from walkgraph.placement.host.neighbours import apart, beside
from walkgraph.placement.transports import arenas, declared_transports
from walkgraph.settings import openmp_threads
from walkgraph.telemetry.clocks import EventClock, FarClock, OwnClock
from walkgraph.telemetry.emit import Buffered, Emitter, Off
from walkgraph.telemetry.places import Places
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import FaultPoints, fault_points
from walkgraph.wire.processes.host_network import Ports
from walkgraph.wire.processes.posting import WorkerPost
from walkgraph.wire.spec import DeploymentSpec, read_spec
from walkgraph.worker.addresses import Addresses
from walkgraph.worker.core import Core
from walkgraph.worker.interfaces import LoopParts, NoParts
from walkgraph.worker.io.carrier import Carrier, shared_memory
from walkgraph.worker.io.links import Links
from walkgraph.worker.loop import WorkerLoop
from walkgraph.worker.loops.parts import spanning_parts
from walkgraph.worker.plan_variants import Variants
from walkgraph.worker.processors import stand_near
from walkgraph.worker.shards.broadcast import address
from walkgraph.worker.shards.membership import join, links_of
from walkgraph.worker.shards.shard_links import OtherLinks

_PROGRESS_SECONDS = 0.1
_LAST_WORDS = 200
"""Milliseconds for unsent messages at exit."""
_BESIDE_A_GPU = 4
"""The most threads of a rank with a GPU."""
_PHASES: Mapping[str, Literal["load", "warm", "capture"]] = {"weights": "load", "capture": "capture"}
"""First word of the engine's progress text -> the phase to show; anything else is a warm-up."""


def serve(directory: Path, rank: Rank, start: int, ports: Ports | None = None) -> None:
    """`ports`: those of the conductor, if it is on another host."""
    spec = read_spec(directory)
    here = next(one for one in spec.plan.ranks if one.rank == rank)
    cpus = len(os.sched_getaffinity(0))
    if spec.numa_binding:
        # Threads inherit it from the one that starts them, so none may have been started before.
        stand_near(here.device)
    faults = fault_points(spec.fault, directory, f"rank{rank}")
    context = sockets.context(faults, spec.network and spec.network.keys)
    addresses = Addresses(directory, spec, rank, ports)
    at = sockets.address(directory, f"rank{rank}.{start}")
    inbox = sockets.pull(context, at)
    port = addresses.listen(inbox)
    conductor = sockets.dealer(context, addresses.conductor, f"{rank}.{start}".encode())
    _stand_on(here.device)
    transports = declared_transports()
    opened = arenas(spec.plan, rank, spec.limits.arena_bytes, transports)
    # Even a rank whose GPU sends nothing may read the memory of others.
    memory = shared_memory(here.device) if any(transports[name].on_device for name in opened) else None
    try:
        carrier = Carrier(rank, opened, memory, faults, apart=apart(spec.plan, rank))
    except WalkgraphError as error:
        _fail(conductor, rank, str(error))
        context.destroy(linger=_LAST_WORDS)
        raise
    post = WorkerPost(directory, rank, start) if ports is None else None
    connect = addresses.connect(context)
    links = links_of(here)(rank, start, conductor, inbox, connect, carrier, Places.of(spec.plan), post)
    if isinstance(links, OtherLinks):
        links.listen(address(directory, rank, start))
    feed = None if addresses.telemetry is None else sockets.feed(context, addresses.telemetry)
    clock = OwnClock() if ports is None else FarClock()
    process = _Process(directory, spec, rank, f"rank {rank}.{start}", cpus, carrier, links, feed, clock, faults)
    try:
        _send(conductor, m.Hello(rank=rank, peer=carrier.peer(at, start, port)))
        process.serve()
    finally:
        for peer in links.peers.known:
            process.parts.gone(peer)
        links.close()
        context.destroy(linger=_LAST_WORDS)


@dataclass
class _Process:
    """The parts of a process that stay while the plans of a rank change."""

    directory: Path
    spec: DeploymentSpec
    rank: Rank
    source: str
    """Its name in telemetry."""
    cpus: int
    """The number of processors that the ranks of the host share."""
    carrier: Carrier
    links: Links
    feed: sockets.Socket | None
    """Takes its telemetry; None where nobody reads it."""
    clock: EventClock
    faults: FaultPoints | None
    parts: LoopParts = field(default_factory=NoParts)
    operators: KeptOperators = field(default_factory=KeptOperators)

    def __post_init__(self) -> None:
        limit = self.spec.limits.kept_bytes
        self.memo = Memo(limit, every=self.spec.changing) if limit else None

    def serve(self) -> None:
        """Serve one plan after the other, until told to stop. A rank that can't load its first plan ends; one that
        can't load a later one is told what to load instead, and ends if it can't do that either."""
        order: m.Load | None = _load_order(self.links)
        first, before = True, False
        while order is not None:
            loaded, order, shard = self._serve(order, again=not first)
            if order is None and (loaded or not before):
                return  # The process ends, and its memory with it: to look for garbage would copy what forks share.
            self._forget_engine(again=not first)
            # Not before: a library waits here for all graphs that hold its collectives.
            shard.close()
            if not loaded and before:
                order = _load_order(self.links)
            first, before = False, loaded

    def _forget_engine(self, *, again: bool) -> None:
        """Collect the engine of the former plan, whose parts refer to each other. What was there before the first plan
        is not gone through, unless the engine was made to stay with it."""
        frozen = not again and not self.spec.changing
        if frozen:
            gc.unfreeze()
        gc.collect()
        if frozen:
            gc.freeze()

    def _serve(self, order: m.Load, *, again: bool) -> tuple[bool, m.Load | None, Shard]:
        """Load a plan and serve it; `again`: after another one. Returns (loaded, the next order, the rank's shard)."""
        spec, rank, links = self.spec, self.rank, self.links
        links.set_peers(order.peers)
        here = next(one for one in order.plan.ranks if one.rank == rank)
        part = join(self.directory, order, here, links)
        plan = part.plan
        engine = Engine(
            plan,
            part.rank,
            weights_roots=tuple(Path(root) for root in spec.checkpoint_roots),
            threads=threads_of(
                here.device,
                self.cpus,
                len(beside(plan, rank)),
                openmp_threads(),
                batch_invariant=spec.batch_invariant,
            ),
            mix=CPU_MIX if here.device == "cpu" else MIX,
            batch_invariant=spec.batch_invariant,
            shared_pages=spec.shared_pages,
            shard=part.shard,
            outside=part.outside,
            faults=self.faults,
            kept=self.operators,
            memo=self.memo,
        )
        # What is drawn is watched, and its nodes are kept one by one.
        core = Core(plan, part.rank, Variants(plan, part.rank, fused=not spec.changing))
        # On a CPU loops are made ready when runs come: nothing is captured.
        ready = here.device != "cpu" or not again
        if not _load(engine, core.loops() if ready else (), order, rank, links.conductor.socket):
            return False, None, part.shard
        name = order.telemetry_name or spec.telemetry_name or spec.name
        emitter = Off() if self.feed is None else self._emitter(name, self.feed)
        self.parts = spanning_parts(plan, rank, engine, links, self.carrier) or NoParts()
        observer = part.observer and part.observer(emitter, engine)
        loop = WorkerLoop(part.rank, core, engine, links, emitter, parts=self.parts, observer=observer)
        if not again and not spec.changing:
            # Loaded objects stay: otherwise a garbage collection would go through all of them, in the middle of a
            # request.
            gc.collect()
            gc.freeze()
        run(loop, rank, links, part.run)
        emitter.flush(time.monotonic(), force=True)
        return True, loop.next, part.shard

    def _emitter(self, name: str, feed: sockets.Socket) -> Emitter:
        return Buffered(name, self.source, self.spec.telemetry_level, sockets.offer(feed), self.clock)


def threads_of(device: str, cpus: int, ranks: int, most: int | None, *, batch_invariant: bool) -> int:
    """Threads of torch on the host's processors: the rank's share of these `cpus`, of all `ranks` there. Beside a GPU
    only a few, as the work left is small and waking dozens of threads takes longer than the work. Threads split sums,
    so batch-invariant numbers need a single one. `most`: the limit that the user sets, if any."""
    if batch_invariant:
        return 1
    share = max(1, cpus // ranks)
    share = share if most is None else min(share, most)
    return share if device == "cpu" else min(_BESIDE_A_GPU, share)


def _stand_on(device: str) -> None:
    """Make the device current: kernels that aren't torch's own are launched on the current device, wherever their
    tensors are."""
    if device != "cpu" and torch.device(device).index in range(torch.cuda.device_count()):
        torch.cuda.set_device(device)


def run(loop: WorkerLoop, rank: Rank, links: Links, turns: Callable[[WorkerLoop], None] = WorkerLoop.run) -> None:
    """Run the loop, turn by turn, until it is stopped. An exception is reported to the conductor and raised."""
    try:
        turns(loop)
    except (Exception, GroupBroken) as raised:
        ours = isinstance(raised, WalkgraphError | GroupBroken)
        links.conductor.flush()
        _fail(links.conductor.socket, rank, str(raised) if ours else f"`{type(raised).__name__}`; see its log")
        raise


def _fail(conductor: sockets.Socket, rank: Rank, what: str) -> None:
    """Tell the conductor why this process ends."""
    error = ErrorInfo(code="worker_lost", message=f"the worker of rank {rank} failed: {what}", rank=rank)
    _send(conductor, m.Faulted(rank=rank, error=error))


def _load_order(links: Links) -> m.Load:
    """Wait for `Load`. Messages behind it in its frame are left to the loop."""
    while True:
        links.from_conductor.wait()
        for message in links.from_conductor.messages():
            if isinstance(message, m.Load):
                return message
            if isinstance(message, m.Stop):
                sys.exit(0)


def _load(engine: Engine, loops: Iterable[LoopCall], order: m.Load, rank: Rank, conductor: sockets.Socket) -> bool:
    """Load the engine, and make these loops ready. If it can't be loaded, tell the conductor why and return False."""
    began = time.monotonic()
    try:
        progress = _progress(rank, conductor)
        engine.load(progress)
        for loop in loops:
            engine.prepare(loop, progress)
    except WalkgraphError as error:
        _send(conductor, m.LoadFailed(rank=rank, error=error.info(), number=order.number))
        return False
    except Exception as raised:
        if not is_memory(raised):
            raise
        message = too_little(rank_plan(order.plan, rank), "to load")
        info = ErrorInfo(code="out_of_memory", message=message, rank=rank)
        _send(conductor, m.LoadFailed(rank=rank, error=info, number=order.number))
        return False
    pools = tuple(m.PoolSize(**pool._asdict()) for pool in engine.pools.infos())
    seconds = time.monotonic() - began
    _send(conductor, m.Ready(rank=rank, seconds=seconds, pools=pools, number=order.number))
    return True


def _progress(rank: Rank, conductor: sockets.Socket) -> Callable[[str, float], None]:
    told = 0.0

    def progress(what: str, fraction: float) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _PROGRESS_SECONDS or fraction >= 1:
            told = now
            phase = _PHASES.get(what.partition(" ")[0], "warm")
            _send(conductor, m.Progress(rank=rank, phase=phase, fraction=fraction))

    return progress


def _send(socket: sockets.Socket, message: m.FromWorker) -> None:
    socket.send(codec.encode(message))
