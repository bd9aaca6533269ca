"""A cable that loses frames and delays the others: `python -m ... ONE OTHER LOSS DELAY`, with the names of its ends,
which are TAP devices of this process until its standard input ends. (Few kernels of containers have `tc ... netem`.)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

SET_NAME = 0x400454CA
"""`TUNSETIFF` of linux/if_tun.h."""
TAP, NO_HEADER = 0x0002, 0x1000
FRAME = 1 << 16
LONGEST = 1000
"""Frames on their way in one direction; more are lost, as on any link."""


class Direction:
    """Frames from one end to the other."""

    def __init__(self, source: int, target: int, loss: float, delay: float, chance: random.Random) -> None:
        self.source, self._target = source, target
        self._loss, self._delay, self._chance = loss, delay, chance
        self._under_way: deque[tuple[float, bytes]] = deque()

    def take(self, now: float) -> None:
        frame = os.read(self.source, FRAME)
        if self._chance.random() >= self._loss and len(self._under_way) < LONGEST:
            self._under_way.append((now + self._delay, frame))

    def deliver(self, now: float) -> float | None:
        """Deliver what has arrived by now. Returns when the next frame does, None if there is none."""
        while self._under_way and self._under_way[0][0] <= now:
            _, frame = self._under_way.popleft()
            with contextlib.suppress(OSError):  # a device that is down: the frame is lost
                os.write(self._target, frame)
        return self._under_way[0][0] if self._under_way else None


def tap(name: str) -> int:
    """The file of a new device."""
    file = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(file, SET_NAME, struct.pack("16sH22x", name.encode(), TAP | NO_HEADER))
    return file


def carry(one: int, other: int, loss: float, delay: float) -> None:
    chance = random.Random(0)
    both = [Direction(*ends, loss, delay, chance) for ends in ((one, other), (other, one))]
    while True:
        now = time.monotonic()
        due = [at for direction in both if (at := direction.deliver(now)) is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        ready, _, _ = select.select([one, other, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            return
        for direction in both:
            if direction.source in ready:
                direction.take(time.monotonic())


def main() -> None:
    one, other, loss, delay = sys.argv[1:]
    ends = tap(one), tap(other)
    print("ready", flush=True)
    carry(*ends, float(loss), float(delay))


if __name__ == "__main__":
    main()
