"""Copies to a peer, as a kernel makes them; flags themselves need a GPU (tests/gpu/test_ipc.py)."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from walkgraph.layers.kernels.flags import copy


@pytest.mark.parametrize("count", [0, 1, 3, 4, 4095 * 4, 4096 * 4 + 4, 40_001])
@pytest.mark.parametrize("start", [0, 1])
def test_bytes_are_copied_and_no_more(device: str, count: int, start: int) -> None:
    source = torch.arange(count + start, device=device).to(torch.uint8)[start:]
    room = torch.full((count + 64,), 255, dtype=torch.uint8, device=device)
    copy(source, room[:count])
    assert torch.equal(room[:count], source)
    assert (room[count:] == 255).all()


def test_what_has_gaps_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        copy(torch.zeros(4, 4, device=device).mT, torch.zeros(4, 4, device=device))
