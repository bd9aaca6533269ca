"""Who waits for a bell hears it once, in time, and leaves nothing behind."""

import asyncio

import pytest

from walkgraph.service.runs.notifier import Bell


async def test_all_who_wait_hear_it_and_who_comes_later_waits_for_the_next() -> None:
    bell = Bell()
    bell.ring()
    waiting = [asyncio.create_task(bell.heard()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    bell.ring()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await bell.heard(0.01)


async def test_who_stops_waiting_is_forgotten() -> None:
    bell = Bell()
    assert not await bell.heard(0.001)
    leaving = asyncio.create_task(bell.heard(60))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert bell._waiting == []
    bell.ring()
