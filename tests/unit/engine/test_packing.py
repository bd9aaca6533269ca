"""Tensors in one piece of memory, against each of them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from walkgraph.engine.device.packing import ALIGNED, packed, unpacked

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.bool, torch.uint8, torch.float64)
SHAPES = st.lists(st.integers(0, 5), max_size=3)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    value = torch.randint(0, 2, draw(SHAPES), generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return value.to(draw(st.sampled_from(DTYPES)))


@given(st.lists(tensors(), min_size=1, max_size=6))
def test_values_come_out_as_they_went_in(values: list[Tensor]) -> None:
    memory = packed(values, pin=False)
    found = unpacked(memory.clone(), values)
    for value, one in zip(values, found, strict=True):
        assert (one.dtype, one.shape) == (value.dtype, value.shape)
        assert torch.equal(one, value)


def test_places_are_aligned_and_apart() -> None:
    values = [torch.ones(3, dtype=torch.bool), torch.arange(9), torch.tensor(7.5)]
    memory = packed(values, pin=False)
    places = [one.data_ptr() - memory.data_ptr() for one in unpacked(memory, values)]
    assert places == [0, ALIGNED, 3 * ALIGNED]
    assert len(memory) == 4 * ALIGNED


@pytest.mark.parametrize("value", [torch.arange(3).expand(4, 3), torch.arange(12).view(3, 4).t(), torch.arange(8)[::2]])
def test_elements_need_not_be_adjacent(value: Tensor) -> None:
    (found,) = unpacked(packed([value], pin=False), [value])
    assert torch.equal(found, value)
    assert found.is_contiguous()
