"""Simulated ranks: a separate process that reports calls at a given rate, through the telemetry socket, with a worker's
own emitters.

python benchmarks/_ranks.py < OPTIONS      at the end prints [node, number, end of the call] for each call
"""

import json
import random
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import zmq

from walkgraph.ids import Rank
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import Buffered
from walkgraph.wire import sockets

TICK = 0.001
"""Seconds from one look at what is due to the next."""
CALL = 0.0005
"""Seconds of a call."""


class Options(NamedTuple):
    address: str
    """The address of the telemetry socket."""
    deployment: str
    """As packets name it."""
    level: str
    ranks: int
    runs: int
    walk: str
    busy: list[str]
    """Nodes that are called in turn, `rate` times a second in all."""
    rare: list[str]
    """Nodes that are called alone, each about once in `pause` seconds."""
    rate: int
    pause: float
    seconds: float


def main() -> None:
    print(json.dumps(play(Options(**json.load(sys.stdin)))))


def play(given: Options) -> list[tuple[str, int, float]]:
    socket = sockets.feed(zmq.Context(), given.address)
    send = sockets.offer(socket)
    ranks = [Buffered(given.deployment, f"rank {rank}.played", "full", send) for rank in range(given.ranks)]
    own = {node: place % given.ranks for place, node in enumerate([*given.busy, *given.rare])}
    told: list[tuple[str, int, float]] = []
    calls = due_calls(given)
    began = time.monotonic()
    node, due = next(calls)
    while node:
        now = time.monotonic()
        while node and began + due <= now:
            ranks[own[node]].emit(event(given, Rank(own[node]), node, len(told), now))
            told.append((node, len(told), now))
            node, due = next(calls, ("", 0.0))
        for rank in ranks:
            rank.flush(now)
        time.sleep(TICK)
    for rank in ranks:
        rank.flush(time.monotonic(), force=True)
    return told


def due_calls(given: Options) -> Iterator[tuple[str, float]]:
    """(node, seconds from the beginning until its call ends), in order of time."""
    chance = random.Random(1)
    later = {node: chance.uniform(0.0, given.pause) for node in given.rare}
    for count in range(int(given.rate * given.seconds)):
        due = count / given.rate
        for node, at in later.items():
            if at <= due:
                yield node, at
                later[node] = at + given.pause * chance.uniform(0.8, 1.2)
        yield given.busy[count % len(given.busy)], due


def event(given: Options, rank: Rank, node: str, number: int, now: float) -> e.Activity | e.Forward:
    run, began = f"{number % given.runs:032}", now - CALL
    if given.level == "full":
        return e.Forward(
            rank=rank, number=number, runs=(run,), walks=(given.walk,), nodes=(node,), uses=(node,), steps=(0,),
            iterations=((number,),), ready=(began,), taken=began, launched=began, started=began, finished=now,
        )  # fmt: skip
    return e.Activity(
        run=run, rank=rank, node=node, use=node, walk=given.walk, iteration=(number,), calls=1, busy=CALL, queued=0.0,
        launched=began, finished=now, batch=1,
    )  # fmt: skip


if __name__ == "__main__":
    main()
