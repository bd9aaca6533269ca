"""Memory for large content is used again, but never while anybody has a view of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from walkgraph.client.rooms import HUGE_BYTES, KEPT_BYTES, SMALL_BYTES, Rooms

MIB = 1024 * 1024


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


@pytest.mark.parametrize("nbytes", [1, SMALL_BYTES - 1, SMALL_BYTES, 720_898, HUGE_BYTES, HUGE_BYTES + 1])
def test_a_room_has_its_size_and_can_be_written_to(nbytes: int) -> None:
    room = Rooms().room(nbytes)
    assert len(room) == nbytes
    room[0], room[-1] = 1, 2
    assert (room[0], room[-1]) == ((2, 2) if nbytes == 1 else (1, 2))


def test_memory_is_used_again_once_its_last_view_is_gone() -> None:
    rooms = Rooms()
    first = rooms.room(MIB)
    array = np.frombuffer(first, np.float16)[100:200]
    where = address(first)
    del first
    second = rooms.room(MIB)
    assert address(second) != where, "an array still shares the first one's memory"
    del array
    third = rooms.room(MIB - 1000)
    assert address(third) == where
    assert len(third) == MIB - 1000


def test_content_does_not_take_far_larger_memory() -> None:
    rooms = Rooms()
    where = address(rooms.room(MIB))
    assert address(rooms.room(MIB // 2)) != where


@pytest.mark.parametrize("seed", range(4))
def test_views_that_are_held_keep_their_content(seed: int) -> None:
    """Each has the number that was written to it, whatever was given out and dropped meanwhile."""
    drawn, rooms = random.Random(seed), Rooms()
    held: dict[int, memoryview] = {}
    for number in range(300):
        room = rooms.room(drawn.randrange(1, 4 * SMALL_BYTES))
        room[:] = bytes([number % 256]) * len(room)
        held[number] = room[len(room) // 2 :]
        del room
        for gone in [one for one in held if drawn.random() < 0.1]:
            del held[gone]
        assert all(set(view[::1000]) == {one % 256} for one, view in held.items())


def test_what_is_kept_has_a_bound() -> None:
    rooms = Rooms()
    held = [rooms.room(HUGE_BYTES // 2) for _ in range(2 * KEPT_BYTES // (HUGE_BYTES // 2))]
    assert sum(map(len, rooms._kept)) <= KEPT_BYTES
    assert len({address(one) for one in held}) == len(held)
