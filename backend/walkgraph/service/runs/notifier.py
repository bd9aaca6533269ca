"""Somebody is told that something has happened, in the same turn of the loop as all others who wait for it."""

import asyncio


class Bell:
    """Of one event loop. Costs nothing while nobody waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[bool]] = []

    def ring(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            _answer(one, True)

    async def heard(self, seconds: float | None = None) -> bool:
        """Whether it rang; False after so many seconds."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[bool] = loop.create_future()
        self._waiting.append(mine)
        timer = None if seconds is None else loop.call_later(seconds, _answer, mine, False)
        rung = False
        try:
            rung = await mine
        finally:
            if timer is not None:
                timer.cancel()
            if not rung and mine in self._waiting:
                self._waiting.remove(mine)
        return rung


def _answer(one: asyncio.Future[bool], rung: bool) -> None:
    if not one.done():
        one.set_result(rung)
