"""Work for several calls at a time."""

import threading

import pytest
import torch

from walkgraph.architectures.concurrent import side_by_side


def test_several_are_done_at_a_time_and_in_their_order() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def work(number: int) -> int:
        meeting.wait()
        return number * number

    assert side_by_side(work, [3, 1, 2]) == [9, 1, 4]


def test_one_alone_stays_where_it_is() -> None:
    assert side_by_side(lambda _: threading.get_ident(), [0]) == [threading.get_ident()]


def test_what_the_first_that_fails_raises_is_raised() -> None:
    def work(number: int) -> int:
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number 7"):
        side_by_side(work, [7, 8])


def test_none_has_threads_of_its_own() -> None:
    assert side_by_side(lambda _: torch.get_num_threads(), [0, 1, 2]) == [1, 1, 1]
