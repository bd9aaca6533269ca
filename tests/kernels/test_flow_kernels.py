"""The kernels between a flow step's products: norms, rotations into rooms, and gates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.block_attention import place_heads, rotary_from_first
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.linear.mlp import Gate, gated
from walkgraph.layers.norm.rms_norm import rms_norm
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


@pytest.mark.parametrize(
    ("rows", "width", "gate"), [(2, 18944, "silu"), (3, 48, "silu"), (1, 2048, "gelu_tanh"), (3, 4100, "gelu_tanh")]
)
def test_rows_are_gated_as_plainly(rows: int, width: int, gate: Gate, device: str) -> None:
    from walkgraph.layers.kernels.gated import gated_rows

    packed = 2 * drawn(3, rows, 2 * width)
    near(gated_rows(packed.to(device), gelu=gate == "gelu_tanh"), gated(packed, gate))
    with pytest.raises(ValueError, match="contiguous"):
        gated_rows(packed.to(device)[:, ::2])


@pytest.fixture
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


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    ("rows", "width", "hidden", "programs", "gate"),
    [
        (130, 72, 136, 2, "silu"),
        (2100, 64, 136, 3, "silu"),
        (1, 64, 8, 4, "silu"),
        (256, 128, 128, 1, "silu"),
        (130, 72, 136, 2, "gelu_tanh"),
    ],
)
def test_rows_are_multiplied_and_gated_as_plainly(
    rows: int, width: int, hidden: int, programs: int, gate: Gate, device: str
) -> None:
    """Whole tiles and parts of them, more and fewer than programs, in one group of rows and in two. In float16: the
    interpreter has no products of bfloat16."""
    from walkgraph.layers.kernels.gate_up import gate_up

    x, weight = drawn(11, rows, width, dtype=torch.float16), drawn(12, 2 * hidden, width, dtype=torch.float16) / 8
    wanted = gated(F.linear(x.float(), weight.float()), gate)
    found = gate_up(x.to(device), weight.to(device), programs, gelu=gate == "gelu_tanh").cpu().float()
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-3)


def test_what_tiles_are_not_made_for_is_refused() -> None:
    from walkgraph.layers.kernels.gate_up import gate_up

    x, weight = drawn(13, 4, 16), drawn(14, 32, 16)
    for rows, weights, why in (
        (x.float(), weight.float(), "two-byte numbers"),
        (x, weight.half(), "two-byte numbers"),
        (x[:, ::2], weight[:, :8], "contiguous"),
        (x[:, :12].clone(), weight[:, :12].clone(), "16 bytes"),
        (x, weight[:24], "16 bytes"),
    ):
        with pytest.raises(ValueError, match=why):
            gate_up(rows, weights, 1)


SHAPES = [(28, 4, 128), (4, 2, 8), (3, 3, 16)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queries", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("normed", [True, False])
def test_heads_are_placed_as_plainly(
    shape: tuple[int, int, int], queries: bool, dtype: torch.dtype, normed: bool, device: str
) -> None:
    """Two rows' blocks, the middle tokens of each; what is not theirs stays as it was."""
    from walkgraph.layers.kernels.block_heads import place

    (heads, groups, width), rows, block, tokens, first = shape, 2, 7, 4, 2
    mine = heads if queries else 0
    qkv = drawn(4, rows * tokens, (mine + 2 * groups) * width, dtype=dtype)
    positions = torch.tensor([3, 1021])
    each = positions[:, None] + torch.arange(tokens)
    turns = RotaryTable.at(positions if normed else each, neox_frequencies(width, 1e6))
    norms = HeadNorms(1 + drawn(5, width, dtype=dtype) / 4, 1 + drawn(6, width, dtype=dtype) / 4, 1e-6)
    slots = torch.randperm(40, generator=torch.Generator().manual_seed(7))[: rows * block]

    def places(device: str) -> HeadTargets:
        room = [drawn(8 + i, 40, groups, width, dtype=dtype).to(device) for i in range(2)]
        return HeadTargets(drawn(10, rows * block, heads, width, dtype=dtype).to(device), *room, slots.to(device))

    wanted, found = places("cpu"), places(device)
    place_heads(qkv, turns, norms if normed else None, wanted, first)
    moved = HeadNorms(norms.q.to(device), norms.k.to(device), norms.eps) if normed else None
    place(qkv.to(device), RotaryTable(*(part.to(device) for part in turns)), moved, found, first)
    for name in ("q", "k", "v"):
        near(getattr(found, name), getattr(wanted, name))
        changed = (getattr(wanted, name) != getattr(places("cpu"), name)).flatten(1).any(1)
        assert changed.sum() == (rows * tokens if queries or name != "q" else 0)


def test_tokens_one_after_the_other_turn_as_plainly(device: str) -> None:
    from walkgraph.layers.kernels.block_heads import turns

    positions, frequencies = torch.tensor([3, 1021]), neox_frequencies(24, 1e4)
    found = turns(positions.to(device), 5, frequencies.to(device))
    for part, wanted in zip(found, rotary_from_first(positions, 5, frequencies), strict=True):
        torch.testing.assert_close(part.cpu(), wanted, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_placed_is_refused(device: str) -> None:
    from walkgraph.layers.kernels.block_heads import place

    norms = HeadNorms(torch.ones(8, device=device), torch.ones(8, device=device), 1e-6)
    turns = RotaryTable(torch.ones(1, 4, device=device), torch.ones(1, 4, device=device))
    room, slots = torch.zeros(4, 8, 2, device=device), torch.arange(3, device=device)
    q, qkv = torch.zeros(3, 4, 8, device=device), torch.zeros(3, 64, device=device)
    for to, rows in (
        (HeadTargets(q, room.transpose(1, 2), room.transpose(1, 2), slots), qkv),
        (HeadTargets(q, room.view(4, 2, 8), room.view(4, 2, 8), slots), qkv.repeat(1, 2)[:, ::2]),
        (HeadTargets(q[..., :6], room.view(4, 2, 8)[..., :6], room.view(4, 2, 8)[..., :6], slots), qkv),
    ):
        with pytest.raises(ValueError, match=r"contiguous"):
            place(rows, turns, norms, to, 0)
