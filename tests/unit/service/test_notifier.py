"""Whoever waits for a notifier is woken once, in time, and leaves nothing behind."""

import asyncio

import pytest

from walkgraph.service.runs.notifier import Notifier


async def test_all_who_wait_hear_it_and_who_comes_later_waits_for_the_next() -> None:
    notifier = Notifier()
    notifier.notify()
    waiting = [asyncio.create_task(notifier.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    notifier.notify()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await notifier.wait(0.01)


async def test_who_stops_waiting_is_forgotten() -> None:
    notifier = Notifier()
    assert not await notifier.wait(0.001)
    leaving = asyncio.create_task(notifier.wait(60))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert notifier._waiting == []
    notifier.notify()
