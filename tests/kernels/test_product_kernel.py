"""Products of many rows with what stands after them, against float32.

The interpreter can't multiply matrices of bfloat16, so they are float16 here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from walkgraph.layers.kernels.product import Ending, launch, unfit
from walkgraph.layers.kernels.product_config import ALIKE, PLACED, STAYS, TABLE, Cut, choose, fits, tail_of, tiles_of
from walkgraph.layers.product import plain_product

CUTS = {
    "tiles": Cut(16, 16, k=16),
    "swapped": Cut(16, 32, k=16, swap=True),
    "without a tail": Cut(16, 16, k=16, tail=False),
    "parts of K": Cut(32, 16, k=16, split=2),
    "many parts of K, swapped": Cut(16, 16, k=16, split=3, swap=True),
    "stays": Cut(32, 16, k=16, stays=True, group=2),
}
ENDINGS = [("bias",), ("gelu", "bias"), ("gelu_tanh", "residual"), ("residual", "bias")]


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Loops may begin at a program's number in the interpreter too: it makes an int of an array of one number, which
    NumPy allows no longer."""
    if device == "cpu":
        from triton.runtime import interpreter

        patch = interpreter._patch_lang_tensor

        def patched(tensor: Any, scope: Any) -> None:
            patch(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


def drawn(device: str, *shape: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).half().to(device)


def wrong(cut: Cut, x: Tensor, weight: Tensor, end: Ending) -> float:
    wanted = plain_product(
        x.float(),
        weight.float(),
        None if end.bias is None else end.bias.float(),
        activation=end.activation,
        residual=None if end.residual is None else end.residual.float(),
    )
    found = launch(replace(cut, pdl=int(x.is_cuda)), x, weight, end)
    assert found.dtype == x.dtype
    assert end.residual is None or found is end.residual
    return float((found.float() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("ending", ENDINGS, ids="+".join)
@pytest.mark.parametrize("name", CUTS)
def test_a_product_is_its_float32_self(device: str, name: str, ending: tuple[str, ...]) -> None:
    """34 rows: two past the last whole tile; 40 columns and 40 of K: the last tiles are ragged."""
    rows, n, k = 34, 40, 40
    x, weight = drawn(device, rows, k), drawn(device, n, k, scale=0.3)
    end = Ending(
        bias=drawn(device, n) if "bias" in ending else None,
        activation="gelu" if "gelu" in ending else "gelu_tanh" if "gelu_tanh" in ending else None,
        residual=drawn(device, rows, n) if "residual" in ending else None,
    )
    for _ in range(2):  # counters are zero again
        assert wrong(CUTS[name], x, weight, end) < 2e-3


def test_what_tiles_are_not_made_for_is_refused() -> None:
    x, weight = torch.zeros(8, 16).half(), torch.zeros(8, 16).half()
    assert unfit(x, weight, Ending()) is None
    assert unfit(x.float(), weight.float(), Ending()) is not None
    assert unfit(x[:, 1:9], weight[:, 1:9], Ending()) is not None
    assert unfit(x, weight[:4], Ending()) is not None
    assert unfit(x, weight, Ending(residual=torch.zeros(8, 8).half().t())) is not None


def test_few_rows_past_the_last_tile_ride_with_it() -> None:
    assert tail_of(Cut(128, 128), 258) == 16
    assert tiles_of(Cut(128, 128), 258, 1024) == (2, 8)
    assert tiles_of(Cut(128, 128, tail=False), 258, 1024) == (3, 8)
    assert tiles_of(Cut(128, 128), 300, 1024) == (3, 8)
    assert tail_of(Cut(128, 128), 2) == tail_of(STAYS, 258) == 0


def test_what_was_measured_fits() -> None:
    for table in (TABLE, PLACED):
        for (n, k), cuts in table.items():
            for rows, cut in cuts.items():
                assert fits(cut, rows, n, k)
                assert choose(rows, n, k, table) == cut
    assert choose(258, 40, 24) is None


def test_alike_rows_are_cut_alike() -> None:
    assert {choose(rows, 1024, 1024, alike=True) for rows in (65, 258, 2064)} == {ALIKE}
