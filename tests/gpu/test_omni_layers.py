"""On a GPU, one layer of each kind of Qwen3-Omni at full size: bfloat16 is near float32 on the same weights."""

from __future__ import annotations

import pytest
import torch

from tests.support.sixteen_bits import KINDS, distances, near

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_in_bfloat16_is_near_float32(kind: str) -> None:
    off = distances(kind, "qwen3-omni-30b-a3b", torch.device("cuda"))
    print(f"{kind}: median {float(off.median()):.4f}, largest {float(off.max()):.4f} of {len(off)} rows")
    assert near(kind, off)
    torch.cuda.empty_cache()
