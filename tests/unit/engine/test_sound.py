"""The rows of a batch that are finite are found."""

from __future__ import annotations

import pytest
import torch

from walkgraph.engine.calls.finite import sound_rows

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_rows_with_what_is_no_number_are_told(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    most = torch.finfo(dtype).max
    values = torch.full((7, *shape), most, dtype=dtype)
    values.view(7, -1)[:, 0] = torch.tensor([most, -most, 0.0, INF, -INF, NAN, most], dtype=dtype)
    if shape:
        values.view(7, -1)[3, 1] = -INF
    assert sound_rows([torch.ones(7, dtype=torch.int64), values]) is not None
    assert sound_rows([values]).tolist() == [True, True, True, False, False, False, True]  # type: ignore[union-attr]


def test_a_row_is_finite_where_all_its_outputs_are() -> None:
    one, two = torch.tensor([1.0, NAN, 1.0]), torch.tensor([[1.0], [1.0], [INF]])
    found = sound_rows([one, two])
    assert found is not None
    assert found.tolist() == [True, False, False]
    assert sound_rows([torch.ones(3, dtype=torch.int64)]) is None
