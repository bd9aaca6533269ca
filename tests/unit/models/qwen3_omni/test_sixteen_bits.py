"""The check of layers in bfloat16, on the tiny preset: `tests/gpu/test_omni_layers.py` makes it at full size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support import sixteen_bits
from tests.support.sixteen_bits import KINDS, distances, near

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_in_bfloat16_is_near_float32(kind: str) -> None:
    off = distances(kind, "qwen3-omni-tiny", CPU)
    assert off.min() > 0, "the formats differ"
    assert near(kind, off)


def test_a_layer_with_weights_that_are_off_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    made = sixteen_bits._made  # pyright: ignore[reportPrivateUsage]

    def spoiled(build: Any, device: torch.device, dtype: torch.dtype) -> Any:
        module = made(build, device, dtype)
        for weight in module.parameters() if dtype == torch.bfloat16 else ():
            weight.mul_(1.03)
        return module

    monkeypatch.setattr(sixteen_bits, "_made", spoiled)
    for kind in ("thinker", "audio"):
        assert not near(kind, distances(kind, "qwen3-omni-tiny", CPU))
