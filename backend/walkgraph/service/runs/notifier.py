"""Wakes all waiting tasks in the same turn of the event loop."""

import asyncio


class Notifier:
    """Belongs to one event loop. Costs nothing while nobody waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def notify(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            _answer(one, True)

    async def wait(self, seconds: float | None = None) -> bool:
        """Returns True once notified, False after `seconds`."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(mine)
        timer = None if seconds is None else loop.call_later(seconds, _answer, mine, False)
        notified = False
        try:
            notified = await mine
        finally:
            if timer is not None:
                timer.cancel()
            if not notified and mine in self._waiting:
                self._waiting.remove(mine)
        return notified


def _answer(one: asyncio.Future[bool], notified: bool) -> None:
    if not one.done():
        one.set_result(notified)
