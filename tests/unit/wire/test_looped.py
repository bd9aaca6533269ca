"""A socket on an event loop: every message once, in order, whatever is sent meanwhile, and nobody is kept waiting."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from walkgraph.wire import sockets
from walkgraph.wire.looped import TURN, Looped

MESSAGES = 400
LONG = 60.0


@pytest.fixture
def context() -> Iterator[sockets.Context]:
    made: sockets.Context = zmq.Context()
    yield made
    made.destroy(linger=0)


class Seen(list[bytes]):
    """Last frames, and who waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def take(self, frames: list[bytes]) -> None:
        self.append(frames[-1])
        self._more.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LONG):
            while len(self) < count:
                self._more.clear()
                await self._more.wait()


class Refusing(zmq.Socket[bytes]):
    """Its peer connects just after it has refused a message, and is seen by whoever checks the socket first."""

    refused: Callable[[], None]

    def send(self, *given: Any, **how: Any) -> Any:
        try:
            return cast("Any", super()).send(*given, **how)
        except zmq.Again:
            self.refused()
            assert self.poll(1000 * int(LONG), zmq.POLLOUT)
            raise


def test_what_is_refused_just_before_a_peer_connects_goes_out(tmp_path: Path, context: sockets.Context) -> None:
    async def talk() -> None:
        address, seen = sockets.address(tmp_path, "s"), Seen()
        socket = context.socket(zmq.PAIR, Refusing)
        sockets.configure(socket)
        socket.bind(address)
        peers: list[Looped] = []
        socket.refused = lambda: peers.append(Looped(sockets.pair(context, address), seen.take))
        looped = Looped(socket, lambda frames: None)
        # Once it has looked for earlier messages, by itself and for the signal of the bind, it looks no more.
        for _ in range(3):
            await asyncio.sleep(0)
        assert looped.send(b"first")
        await seen.until(1)
        for one in (looped, *peers):
            one.close()

    asyncio.run(talk())


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_at_once_nothing_is_lost_and_order_stays(tmp_path: Path, context: sockets.Context, seed: int) -> None:
    async def talk() -> None:
        chance = random.Random(seed)
        address = sockets.address(tmp_path, "s")
        seen = {"here": Seen(), "there": Seen()}
        here = Looped(sockets.pair_for(context, address), seen["here"].take)
        # Nobody is there yet: it waits.
        assert here.send(b"first")
        there = Looped(sockets.pair(context, address), seen["there"].take)
        sent: dict[str, list[bytes]] = {"here": [b"first"], "there": []}
        for number in range(MESSAGES):
            name = chance.choice(["here", "there"])
            sent[name].append(b"%d" % number)
            assert (here if name == "here" else there).send(sent[name][-1])
            if chance.random() < 0.1:
                await asyncio.sleep(0)
        await seen["there"].until(len(sent["here"]))
        await seen["here"].until(len(sent["there"]))
        assert seen == {"here": sent["there"], "there": sent["here"]}
        here.close()
        there.close()

    asyncio.run(talk())


def test_others_have_their_turn_while_messages_come(tmp_path: Path, context: sockets.Context) -> None:
    async def talk() -> None:
        address, seen = sockets.address(tmp_path, "s"), Seen()
        looped = Looped(sockets.pull(context, address), seen.take)
        source = sockets.push(context, address)
        for _ in range(MESSAGES):
            source.send(b"x")
        jumps, before = list[int](), 0
        async with asyncio.timeout(LONG):
            while len(seen) < MESSAGES:
                await asyncio.sleep(0)
                jumps.append(len(seen) - before)
                before = len(seen)
        assert max(jumps) <= 2 * TURN
        source.close()
        looped.close()

    asyncio.run(talk())


def test_one_that_fails_to_take_a_message_gets_the_next(tmp_path: Path, context: sockets.Context) -> None:
    async def talk() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: None)
        address, seen = sockets.address(tmp_path, "s"), Seen()

        def take(frames: list[bytes]) -> None:
            seen.take(frames)
            raise ValueError

        looped = Looped(sockets.pull(context, address), take)
        source = sockets.push(context, address)
        for number in range(20):
            source.send(b"%d" % number)
        await seen.until(20)
        source.close()
        looped.close()

    asyncio.run(talk())


def test_too_many_that_wait_are_refused_and_what_lies_there_at_the_end_is_taken(
    tmp_path: Path, context: sockets.Context
) -> None:
    async def talk() -> None:
        address, seen = sockets.address(tmp_path, "s"), Seen()
        socket = sockets.pair_for(context, address)
        looped = Looped(socket, seen.take)
        assert all(looped.send(b"x") for _ in range(sockets.MAX_QUEUED))
        assert not looped.send(b"x")
        peer = sockets.pair(context, address)
        peer.send(b"last words")
        # The loop has no turn meanwhile.
        assert socket.poll(1000 * int(LONG), zmq.POLLIN)
        assert not seen
        looped.close()
        assert seen == [b"last words"]
        peer.close()

    asyncio.run(talk())
