"""The kernels between a flow step's products: norms, rotations into rooms, and gates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.layers.block_attention import Norms, Places, Turns, place_heads
from walkgraph.layers.mlp import gated
from walkgraph.layers.norm import rms_norm
from walkgraph.layers.rope import neox_frequencies


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(found: Tensor, wanted: Tensor) -> None:
    """Rounded once, from sums in another order: the last bit may differ."""
    tolerance = 1e-2 if wanted.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.cpu(), wanted, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize(("rows", "width"), [(3, 3584), (1, 64), (5, 100)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_wide_rows_are_normed_as_plainly(rows: int, width: int, dtype: torch.dtype, device: str) -> None:
    from walkgraph.layers.kernels.norm import wide_rms_norm

    x, weight = 3 * drawn(1, rows, width, dtype=dtype), 1 + drawn(2, width, dtype=dtype) / 4
    near(wide_rms_norm(x.to(device), weight.to(device), 1e-2), rms_norm(x, weight, 1e-2))
    with pytest.raises(ValueError, match="contiguous"):
        wide_rms_norm(x.to(device)[:, ::2], weight.to(device)[::2], 1e-2)


@pytest.mark.parametrize(("rows", "width"), [(2, 18944), (3, 48), (1, 2048)])
def test_rows_are_gated_as_plainly(rows: int, width: int, device: str) -> None:
    from walkgraph.layers.kernels.gated import gated_rows

    packed = 2 * drawn(3, rows, 2 * width)
    near(gated_rows(packed.to(device)), gated(packed))
    with pytest.raises(ValueError, match="contiguous"):
        gated_rows(packed.to(device)[:, ::2])


SHAPES = [(28, 4, 128), (4, 2, 8), (3, 3, 16)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queries", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_heads_are_placed_as_plainly(
    shape: tuple[int, int, int], queries: bool, dtype: torch.dtype, device: str
) -> None:
    """Two rows' blocks, the middle tokens of each; what is not theirs stays as it was."""
    from walkgraph.layers.kernels.block_heads import place

    (heads, groups, width), rows, block, tokens, first = shape, 2, 7, 4, 2
    mine = heads if queries else 0
    qkv = drawn(4, rows * tokens, (mine + 2 * groups) * width, dtype=dtype)
    turns = Turns.at(torch.tensor([3, 1021]), neox_frequencies(width, 1e6))
    norms = Norms(1 + drawn(5, width, dtype=dtype) / 4, 1 + drawn(6, width, dtype=dtype) / 4, 1e-6)
    slots = torch.randperm(40, generator=torch.Generator().manual_seed(7))[: rows * block]

    def places(device: str) -> Places:
        room = [drawn(8 + i, 40, groups, width, dtype=dtype).to(device) for i in range(2)]
        return Places(drawn(10, rows * block, heads, width, dtype=dtype).to(device), *room, slots.to(device))

    wanted, found = places("cpu"), places(device)
    place_heads(qkv, turns, norms, wanted, first)
    moved = Norms(norms.q.to(device), norms.k.to(device), norms.eps)
    place(qkv.to(device), Turns(*(part.to(device) for part in turns)), moved, found, first)
    for name in ("q", "k", "v"):
        near(getattr(found, name), getattr(wanted, name))
        changed = (getattr(wanted, name) != getattr(places("cpu"), name)).flatten(1).any(1)
        assert changed.sum() == (rows * tokens if queries or name != "q" else 0)


def test_what_cannot_be_placed_is_refused(device: str) -> None:
    from walkgraph.layers.kernels.block_heads import place

    norms = Norms(torch.ones(8, device=device), torch.ones(8, device=device), 1e-6)
    turns = Turns(torch.ones(1, 4, device=device), torch.ones(1, 4, device=device))
    room, slots = torch.zeros(4, 8, 2, device=device), torch.arange(3, device=device)
    q, qkv = torch.zeros(3, 4, 8, device=device), torch.zeros(3, 64, device=device)
    for to, rows in (
        (Places(q, room.transpose(1, 2), room.transpose(1, 2), slots), qkv),
        (Places(q, room.view(4, 2, 8), room.view(4, 2, 8), slots), qkv.repeat(1, 2)[:, ::2]),
        (Places(q[..., :6], room.view(4, 2, 8)[..., :6], room.view(4, 2, 8)[..., :6], slots), qkv),
    ):
        with pytest.raises(ValueError, match=r"contiguous|side by side"):
            place(rows, turns, norms, to, 0)
