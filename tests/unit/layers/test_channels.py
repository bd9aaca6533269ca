"""Channels between threads of one process: values in their iterations, waits that end."""

from __future__ import annotations

import threading

import torch

from walkgraph.layers import channels
from walkgraph.layers.channels import StopFlags

CPU = torch.device("cpu")


class Rows:
    """A table of two rows with two channels; the last row pads."""

    def __init__(self) -> None:
        self.rooms = torch.zeros(2, 4)
        self.numbers = torch.tensor([10, 20])
        self.halts = StopFlags(1, CPU)
        word = self.halts.take()
        assert word is not None
        self.word = word
        self.links = torch.zeros(2, channels.width(2), dtype=torch.int64)
        there = [self.halts.address(word)]
        for at in range(2):
            there += [self.rooms[at].data_ptr(), self.numbers[at:].data_ptr(), int(self.numbers[at])]
        self.links[0] = torch.tensor(there)

    def send(self, value: torch.Tensor, channel: int, k: int, row: int = 0) -> None:
        channels.send(value, self.links, torch.tensor([row]), channel, torch.tensor([k]))

    def receive(
        self, channel: int, k: int, first: torch.Tensor | None = None, row: int = 0
    ) -> tuple[list[float], bool]:
        like = ((4,), torch.float32)
        value, came = channels.receive(self.links, torch.tensor([row]), channel, torch.tensor([k]), like, first)
        return value[0].tolist(), bool(came)


def test_channels_hold_one_value_each_of_this_iteration_or_the_one_before() -> None:
    rows, first = Rows(), torch.full((1, 4), 7.0)
    assert rows.receive(0, 0, first) == ([7.0] * 4, True)
    rows.send(torch.ones(1, 4), 0, 0)
    rows.send(torch.full((1, 8), 2.0)[:, ::2], 1, 0)
    assert rows.receive(0, 1, first) == ([1.0] * 4, True)
    assert rows.receive(1, 0) == ([2.0] * 4, True)
    assert rows.numbers.tolist() == [11, 21]


def test_the_pad_row_has_no_channels() -> None:
    rows = Rows()
    rows.send(torch.ones(1, 4), 0, 3, row=1)
    assert rows.receive(0, 3, row=1) == ([0.0] * 4, True)
    assert rows.receive(0, 3, torch.full((1, 4), 7.0), row=1) == ([7.0] * 4, True)
    assert rows.numbers.tolist() == [10, 20]


def test_a_value_is_waited_for_until_it_comes_or_nobody_wants_it() -> None:
    rows, found = Rows(), list[tuple[list[float], bool]]()

    def wait() -> None:
        found.extend((rows.receive(0, 2), rows.receive(1, 0)))

    thread = threading.Thread(target=wait)
    thread.start()
    rows.send(torch.ones(1, 4), 0, 1)
    rows.send(torch.full((1, 4), 3.0), 0, 2)
    rows.halts.set(rows.word)
    thread.join(60)
    assert not thread.is_alive()
    assert found[1] == ([0.0] * 4, False)
    assert found[0] in [([3.0] * 4, True), ([1.0] * 4, False), ([0.0] * 4, False)]
