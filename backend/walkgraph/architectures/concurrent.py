"""Work on a processor for several calls at a time, where libraries leave the interpreter to others: decoders do."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_HANDS = ThreadPoolExecutor(4, "hands", torch.set_num_threads, (1,))
"""Of the process; its threads begin with the first work. A robot has three cameras. Each would have as many threads of
torch's own as there are cores, which take longer to wake than what they share."""


def side_by_side(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """`work` of each, in their order. Raises what the first that fails raises."""
    others = [_HANDS.submit(work, item) for item in items[1:]]
    return [work(items[0]), *(other.result() for other in others)]
