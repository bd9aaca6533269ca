"""Tensors of the host go to a device in the order in which they lie in memory."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from walkgraph.engine.device.cuda_streams import in_order, memory_order, put_rows, stacked_in_order

ORDERS = list(itertools.permutations(range(3)))


def laid(order: tuple[int, ...], seed: int = 0) -> Tensor:
    """`[2, 3, 4]`, whose axes lie in memory in this order."""
    numbers = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(seed))
    return in_order(numbers.permute(order).contiguous(), order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_tensor_without_gaps_is_contiguous_in_its_memory_order(order: tuple[int, ...]) -> None:
    value = laid(order)
    turned = value.permute(memory_order(value))
    assert turned.is_contiguous()
    assert torch.equal(in_order(turned, memory_order(value)), value)


@pytest.mark.parametrize("value", [torch.rand(1, 4).expand(3, 4), torch.rand(5, 6)[1:4, ::2], torch.rand(())])
def test_any_other_tensor_is_still_found_again(value: Tensor) -> None:
    axes = memory_order(value)
    assert torch.equal(in_order(value.permute(axes).contiguous(), axes), value)


@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("second", ORDERS)
def test_rows_are_stacked_as_the_first_one_lies(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    values = [laid(first), laid(second, 1)]
    rows = stacked_in_order(values, pin=False)
    assert torch.equal(rows, torch.stack(values))
    assert memory_order(rows[0]) == memory_order(values[0])
    assert rows.permute(memory_order(rows)).is_contiguous()


def test_rows_are_put_first() -> None:
    target = torch.zeros(3, 2, 3, 4)
    put_rows(target, [laid((2, 0, 1)), laid((0, 1, 2), 1)])
    assert torch.equal(target[0], laid((0, 1, 2)))
    assert torch.equal(target[1], laid((0, 1, 2), 1))
    assert not target[2].any()
