"""A layer of an encoder: as its operations one by one, with and without rotated heads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import BlockAttend
from walkgraph.layers.attention.encoder_attention import EncoderAttention
from walkgraph.layers.encoder import EncoderRows, EncoderWeights
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.rope import NeoxRope, Rotation

torch.set_num_threads(1)
WIDTH, HIDDEN, HEADS, LENGTHS = 24, 40, 3, [4, 3]


def weights(activation: str) -> tuple[EncoderWeights, EncoderAttention]:
    attention = EncoderAttention(WIDTH, HEADS)
    attention.pack()
    norms = [nn.LayerNorm(WIDTH) for _ in range(2)]
    for norm in norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    made = EncoderWeights(
        norm=norms[0],
        qkv=attention.qkv,
        heads=HEADS,
        out=attention.out_proj,
        mlp_norm=norms[1],
        fc1=nn.Linear(WIDTH, HIDDEN),
        fc2=nn.Linear(HIDDEN, WIDTH),
        activation=activation,  # type: ignore[arg-type]
    )
    return made, attention


def plainly(x: Tensor, of: EncoderWeights, attention: EncoderAttention, turns: Tensor | None, form: str) -> Tensor:
    """`turns`: complex `[R, D/2]`: every pair of dimensions i and i + D/2 as a complex number turns by it."""
    normed = of.norm(x)
    q, k, v = (getattr(attention, f"{name}_proj")(normed).unflatten(1, (HEADS, -1)) for name in "qkv")
    if turns is not None:
        q, k = (_turned(part, turns) for part in (q, k))
    blocks: list[Tensor] = []
    for a, b, c in zip(*(part.split(LENGTHS) for part in (q, k, v)), strict=True):
        scores = torch.einsum("qhd,khd->hqk", a, b) / (WIDTH // HEADS) ** 0.5
        blocks.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), c).flatten(1))
    x = x + attention.out_proj(torch.cat(blocks))
    return x + of.fc2(F.gelu(of.fc1(of.mlp_norm(x)), approximate=form))


def _turned(heads: Tensor, turns: Tensor) -> Tensor:
    real, imaginary = heads.chunk(2, -1)
    turned = torch.complex(real, imaginary) * turns[:, None]
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize(("activation", "form"), [("gelu", "none"), ("gelu_tanh", "tanh")])
@pytest.mark.parametrize("rotated", [False, True])
@torch.no_grad()
def test_two_layers_are_the_operations_one_by_one(activation: str, form: str, rotated: bool) -> None:
    torch.manual_seed(3)
    layers = [weights(activation) for _ in range(2)]
    x, positions = torch.randn(sum(LENGTHS), WIDTH), torch.tensor([0, 1, 2, 3, 7, 9, 8])
    rope = NeoxRope(WIDTH // HEADS, 100.0)
    rotation: Rotation | None = rope(positions) if rotated else None
    angles = positions[:, None] * rope.frequencies(x.device)
    turns = torch.polar(torch.ones_like(angles), angles) if rotated else None
    wanted = x
    for of, attention in layers:
        wanted = plainly(wanted, of, attention, turns, form)
    rows, attend = EncoderRows(x), BlockAttend(LENGTHS)
    for index, (of, _) in enumerate(layers):
        rows = rows.layer(index, of, attend, rotation)
    torch.testing.assert_close(rows.whole(), wanted, rtol=1e-5, atol=1e-5)
    norm = nn.LayerNorm(WIDTH)
    torch.testing.assert_close(rows.normed(norm), norm(wanted), rtol=1e-5, atol=1e-5)
    assert EncoderRows(x).whole() is x


def test_attention_that_is_not_packed_says_so() -> None:
    with pytest.raises(RuntimeError, match=UNPACKED[:20]):
        _ = EncoderAttention(WIDTH, HEADS).qkv
