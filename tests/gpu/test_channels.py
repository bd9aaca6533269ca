"""Channels on a GPU: sending, receiving, waiting and giving up, within CUDA graphs, as in the twin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from walkgraph.engine.device.capture import Capturer
from walkgraph.layers import channels
from walkgraph.layers.channels import StopFlags

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
ON = torch.device("cuda")
SHAPES: list[tuple[tuple[int, ...], torch.dtype]] = [
    ((64, 64, 64), torch.float32),
    ((5, 7), torch.bfloat16),
    ((3,), torch.bool),
    ((), torch.int64),
]


class Loop:
    """Rows of two parts over one device: row 0 is in use, row 1 pads."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, start: int = 1000) -> None:
        self.like = (shape, dtype)
        self.room = torch.empty(1, *shape, dtype=dtype, device=ON)
        self.number = torch.full((1,), start, dtype=torch.int64, device=ON)
        self.halts = StopFlags(2, ON)
        word = self.halts.take()
        assert word is not None
        self.word = word
        self.links = torch.zeros(2, channels.width(1), dtype=torch.int64, device=ON)
        there = [self.halts.address(word), self.room.data_ptr(), self.number.data_ptr(), start]
        self.links[0] = torch.tensor(there)
        self.row, self.at = torch.zeros(1, dtype=torch.int64, device=ON), torch.zeros(1, dtype=torch.int64, device=ON)

    def value(self, seed: int) -> Tensor:
        shape, dtype = self.like
        drawn = torch.randint(0, 2 if dtype == torch.bool else 100, (1, *shape), generator=_seeded(seed))
        return drawn.to(ON, dtype)

    def send(self, value: Tensor) -> None:
        channels.send(value, self.links, self.row, 0, self.at)

    def receive(self, first: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return channels.receive(self.links, self.row, 0, self.at, self.like, first)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_what_is_sent_in_an_iteration_is_received_in_it_and_in_the_next(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    loop = Loop(shape, dtype)
    first = loop.value(99)
    for k in range(3):
        loop.at.fill_(k)
        before, came = loop.receive(first)
        assert torch.equal(before, first if k == 0 else loop.value(k - 1))
        assert came.item()
        loop.send(loop.value(k))
        found, came = loop.receive()
        assert torch.equal(found, loop.value(k))
        assert came.item()
    assert loop.number.item() == 1003


def test_the_pad_row_sends_and_waits_for_nothing() -> None:
    loop = Loop((8,), torch.float32)
    loop.row.fill_(1)
    loop.at.fill_(5)
    loop.send(loop.value(0))
    assert loop.number.item() == 1000
    found, came = loop.receive()
    assert (found.abs().sum().item(), came.item()) == (0, True)
    first = loop.value(3)
    found, came = loop.receive(first)
    assert torch.equal(found, first)


def test_a_captured_receiver_waits_for_who_sends_later() -> None:
    loop, own = Loop((1 << 16,), torch.float32), torch.zeros(1 << 16, device=ON)

    def work() -> None:
        found, came = loop.receive()
        own.copy_(found[0] * came)

    loop.row.fill_(1)
    replay = Capturer(ON)(work, "a receiver")
    loop.row.fill_(0)
    # A driver that loads kernels at their first launch does so when nothing runs: what is launched beside who waits
    # must be there already.
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    replay()
    mark = torch.cuda.Event()
    mark.record()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        assert not mark.query()
        loop.send(loop.value(4))
    torch.cuda.synchronize()
    assert torch.equal(own, loop.value(4)[0])


def test_who_is_halted_goes_on_without_the_value() -> None:
    loop = Loop((8,), torch.float32)
    _, came = loop.receive()
    mark = torch.cuda.Event()
    mark.record()
    assert not mark.query()
    loop.halts.set(loop.word)
    mark.synchronize()
    assert not came.item()
