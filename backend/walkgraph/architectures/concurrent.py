"""Run work of several calls in parallel threads, for libraries that release the interpreter lock, such as decoders."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_HANDS = ThreadPoolExecutor(4, "hands", torch.set_num_threads, (1,))
"""Threads of the process, started at the first work. A robot has three cameras; each would otherwise use as many torch
threads as there are cores, which take longer to wake than to do the work."""


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`work` of each item, in order. Raises the exception of the first item that fails."""
    others = [_HANDS.submit(work, item) for item in items[1:]]
    return [work(items[0]), *(other.result() for other in others)]
