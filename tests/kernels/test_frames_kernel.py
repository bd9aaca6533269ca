"""The rows of frames with their conditions, against their plain form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.layers.kernels.frames import enter
from walkgraph.layers.pictures.frames import ConditionMaps, FrameAngles, FrameRows, plain_frame_rows


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("frames", "patches", "width", "dim"), [(1, 6, 64, 16), (3, 5, 192, 64)])
def test_conditions_come_before_patches(
    frames: int, patches: int, width: int, dim: int, dtype: torch.dtype, device: str
) -> None:
    generator = torch.Generator().manual_seed(width)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    maps = ConditionMaps(random(2, 7, width), random(2, width))
    angles = FrameAngles(random(dim), random(2 + patches, dim))
    rows, positions = torch.tensor([3, 0, 1])[:frames].int().to(device), torch.tensor([2, 5, 9, 30]).int().to(device)
    seen, conditions = random(frames * patches, width).to(dtype), random(2, frames, 7).unbind()
    found = FrameRows(*enter(seen, conditions, maps, angles, rows, positions))
    on = [tuple(part.cpu() for part in one) for one in (maps, angles)]
    wanted = plain_frame_rows(
        seen.cpu(),
        [one.cpu() for one in conditions],
        ConditionMaps(*on[0]),
        FrameAngles(*on[1]),
        rows.cpu(),
        positions.cpu(),
    )
    # The interpreter cuts off where a GPU rounds.
    torch.testing.assert_close(found.x.cpu(), wanted.x, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    assert torch.equal(found.x.view(frames, -1, width)[:, 2:].flatten(0, 1), seen)
    assert found.sums is not None
    assert wanted.sums is not None
    torch.testing.assert_close(found.sums.cpu(), wanted.sums, rtol=1e-2, atol=0.5 if dtype == torch.bfloat16 else 1e-3)
    torch.testing.assert_close(found.cos.cpu(), wanted.cos, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.sin.cpu(), wanted.sin, rtol=0, atol=1e-5)
