"""Measures where the conductor sends the runs of conversations, with one replica and with several: the share of their
inputs that is found in the replica's cache, the work of the busiest replica over the mean, and the conductor's time for
a run.

The conductor is the real one; ranks are simulated. A rank keeps what it has read, up to `--cache` bytes, the latest of
it, and takes a time for a run that grows with what it doesn't find. All conversations begin with one system prompt.
"""

import argparse
import heapq
import random
import time
from collections import Counter, OrderedDict
from itertools import count
from pathlib import Path
from typing import Any

from _common import show, write

from walkgraph.components import catalogue
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.events import Command, Event, FromRank, FromService, Spawn, Spawned, ToRank, ToService
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.graph import codec
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import ALL, Group, Placement, RankDevice
from walkgraph.resources import bundled
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

SYSTEM, QUESTION, ANSWER = 600, 200, 400
"""Bytes of the system prompt, and of each turn."""
READ, WRITTEN = 1e-5, 0.6
"""Seconds for a byte that is read, and for an answer."""
THINK = 2.0
"""Seconds until a client goes on, on average."""
POOL = m.PoolSize(states=("main",), pages=20_000, page_tokens=16, page_bytes=1024)


class Cache:
    """The latest prefixes of conversations that a rank has read, by their turns."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._kept: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def read(self, turns: tuple[str, ...]) -> int:
        """Bytes that are found; all of it is kept now."""
        found, before = 0, True
        for end in range(1, len(turns) + 1):
            prefix = turns[:end]
            before = before and prefix in self._kept
            found += len(turns[end - 1]) if before else 0
            self._size += 0 if prefix in self._kept else len(turns[end - 1])
            self._kept[prefix] = len(turns[end - 1])
            self._kept.move_to_end(prefix)
        while self._size > self._limit:
            self._size -= self._kept.popitem(last=False)[1]
        return found


class World:
    def __init__(self, replicas: int, cache: int, seed: int) -> None:
        graph, ranks = codec.load(bundled("graphs")["llm"].read_bytes()), tuple(range(replicas))
        devices = tuple(RankDevice(rank=rank, device="cpu") for rank in ranks)
        group = Group(nodes=(ALL,), ranks=ranks, replicas=replicas)
        plan = assemble(Assignment(graph, Placement(name="r", groups=(group,), ranks=devices)), catalogue())
        self.core = Conductor(ItineraryCache(graph, plan), Limits(queue=100_000), lambda: 7)
        self.now, self._numbers, self._events = 0.0, count(), list[tuple[float, int, Event]]()
        self.chance = random.Random(seed)
        self.caches = [Cache(cache) for _ in ranks]
        self.turns: dict[str, list[str]] = {}
        self.starts: dict[Rank, int] = {}
        self.read = self.found = self.runs = 0
        self.work: Counter[int] = Counter()
        self.seconds = 0.0
        """Seconds of the conductor."""
        self._perform(self.core.begin(0.0))

    def converse(self, clients: int, turns: int, conversations: int) -> None:
        """Each client holds so many conversations, one after the other."""
        for client in range(clients):
            self._ask(f"{client}.0", THINK * self.chance.random())
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            began = time.process_time()
            commands = self.core.handle(event, self.now)
            self.seconds += time.process_time() - began
            self._perform(commands)
            if isinstance(event, FromRank) and isinstance(event.message, m.Released):
                self._go_on(event.message.run, turns, conversations)

    def _go_on(self, run: str, turns: int, conversations: int) -> None:
        name, _, turn = run.partition(":")
        client, _, number = name.partition(".")
        self.turns[name].append(f"answer {run}".ljust(ANSWER))
        if int(turn) + 1 < turns:
            self._ask(name, self._thought())
        elif int(number) + 1 < conversations:
            self._ask(f"{client}.{int(number) + 1}", self._thought())

    def _thought(self) -> float:
        return self.chance.expovariate(1 / THINK)

    def _ask(self, name: str, after: float) -> None:
        said = self.turns.setdefault(name, ["you help".ljust(SYSTEM)])
        said.append(f"question {name} {len(said)}".ljust(QUESTION))
        roles = ("system", *("user", "assistant") * (len(said) // 2))
        given = tuple(
            m.Turn(role=role, parts=(m.Part(modality="text", value=m.Small(value=text)),))
            for role, text in zip(roles, said, strict=False)
        )
        inputs: dict[str, tuple[m.Value, ...]] = {"messages": (m.Conversation(turns=given),)}
        run = RunId(f"{name}:{len(said) // 2 - 1}")
        self._at(after, FromService(m.Submit(run=run, task="chat", params={"max_tokens": 128}, inputs=inputs)))

    def _at(self, after: float, event: Event) -> None:
        heapq.heappush(self._events, (self.now + after, next(self._numbers), event))

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Spawn(rank=rank, start=start):
                    self.starts[rank] = start
                    self._at(0.0, Spawned(rank, start, 1000 + start))
                    self._say(rank, m.Hello(rank=rank, peer=m.Peer(address="", start=start)))
                case ToRank(rank=rank, message=message):
                    self._obey(rank, message)
                case ToService(message=m.Rejected() as rejected):
                    raise AssertionError(rejected)
                case _:
                    pass

    def _obey(self, rank: Rank, message: m.ToWorker) -> None:
        match message:
            case m.Load():
                self._say(rank, m.Ready(rank=rank, seconds=0.0, pools=(POOL,)))
                self._connect(rank, message.peers)
            case m.Peers():
                self._connect(rank, message.peers)
            case m.Start():
                name = message.run.partition(":")[0]
                turns = tuple(self.turns[name])
                size, found = sum(map(len, turns)), self.caches[rank].read(turns)
                self.read, self.found, self.runs = self.read + size, self.found + found, self.runs + 1
                takes = READ * (size - found) + WRITTEN
                self.work[rank] += round(1e6 * takes)
                self._say(rank, m.RankDone(rank=rank, run=message.run, times=()), takes)
            case m.Cancel():
                self._say(rank, m.Released(rank=rank, run=message.run, pages_free=0, pages_total=0))
            case _:
                pass

    def _connect(self, rank: Rank, peers: dict[Rank, m.Peer]) -> None:
        self._say(rank, m.Connected(rank=rank, peers={one: peer.start for one, peer in peers.items() if one != rank}))

    def _say(self, rank: Rank, message: m.FromWorker, after: float = 0.0) -> None:
        self._at(after, FromRank(rank, self.starts[rank], message))


def measured(replicas: int, clients: int, args: argparse.Namespace) -> dict[str, Any]:
    world = World(replicas, args.cache, args.seed)
    world.converse(clients, args.turns, args.conversations)
    return {
        "clients": clients,
        "replicas": replicas,
        "runs": world.runs,
        "found": world.found / world.read,
        "busiest": max(world.work.values()) * replicas / world.work.total(),
        "us a run": 1e6 * world.seconds / world.runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--turns", type=int, default=6, help="of each conversation")
    parser.add_argument("--conversations", type=int, default=8, help="of each client")
    parser.add_argument("--cache", type=int, default=2_000_000, help="bytes that a replica keeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="a few runs, and nothing is written")
    args = parser.parse_args()
    if args.check:
        args.replicas, args.clients, args.turns, args.conversations = [1, 2], [4], 3, 2
    rows = [measured(replicas, clients, args) for clients in args.clients for replicas in args.replicas]
    alone = {row["clients"]: row["found"] for row in rows if row["replicas"] == 1}
    for row in rows:
        row["of one"] = row["found"] / alone[row["clients"]] if row["clients"] in alone else None
    show("conversations", rows)
    if not args.check:
        write(args.out, "simulated", {"conversations": rows})


if __name__ == "__main__":
    main()
