"""Linears in eight-bit floats, on the CPU: against the numbers they stand for, and against the layer they replace."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch.nn import functional as F

from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import PlainFlowLinears
from walkgraph.layers.linear.fp8 import Fp8FlowLinears, Scaled, flow_linears, product, quantise, scaled_norm, supported
from walkgraph.layers.linear.fp8_format import FP8
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope, rotate

SHAPE = DecoderShape(width=64, heads=4, kv_heads=2, head_dim=16, hidden=96, norm_eps=1e-6, qkv_bias=True, qk_norm=True)
GEN = "_gen"


def layer() -> DecoderLayer:
    torch.manual_seed(3)
    made = DecoderLayer(SHAPE, ("", GEN)).requires_grad_(False)
    for name, value in made.named_parameters():
        value.normal_(std=0.3 if value.dim() == 1 else value.shape[-1] ** -0.5)
        if "norm" in name:
            value.add_(1)
    made.pack()
    return made


def off(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got.float() - wanted.float()).norm() / wanted.float().norm()).item()


def test_a_number_is_off_by_a_sixteenth_of_itself_at_most() -> None:
    x = torch.randn(7, 4096, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 6, 7)[:, None]
    given = Scaled.of(x)
    assert (given.numbers.dtype, given.scale.shape) == (FP8, (7, 1))
    least = given.scale * 2**-6  # below, numbers are evenly apart
    assert ((given.plain() - x).abs() <= torch.maximum(x.abs() / 16, least / 16)).all()
    assert given.plain().abs().amax(1).allclose(x.abs().amax(1))


def test_a_product_is_that_of_the_rounded_numbers() -> None:
    dice = torch.Generator().manual_seed(1)
    x, w, bias = (torch.randn(*shape, generator=dice) for shape in ((5, 64), (32, 64), (32,)))
    rows, weight = Scaled.of(x), Scaled.of(w)
    wanted = rows.plain().double() @ weight.plain().double().T + bias
    torch.testing.assert_close(product(rows, weight, torch.float32, bias).double(), wanted, rtol=1e-5, atol=1e-4)
    assert product(rows, weight, torch.bfloat16).dtype == torch.bfloat16
    assert 0.01 < off(product(rows, weight, torch.float32, bias), F.linear(x, w, bias)) < 0.05


def test_a_norm_is_not_rounded_before_it_is_scaled() -> None:
    x, norm = torch.randn(3, 64).bfloat16(), RMSNorm(64, 1e-2)
    wanted = Scaled.of(F.rms_norm(x.float(), (64,), norm.weight, 1e-2))
    assert torch.equal(scaled_norm(x, norm).plain(), wanted.plain())


def test_a_quantised_layers_linears_are_close_to_the_plain_ones() -> None:
    plain, kept = layer(), layer()
    quantise(kept, GEN)
    ours, theirs = flow_linears(kept, GEN), PlainFlowLinears(plain, GEN)
    assert isinstance(ours, Fp8FlowLinears)
    assert isinstance(flow_linears(kept, ""), PlainFlowLinears)
    x, heads = torch.randn(12, 64), torch.randn(3, 6, 64)[:, 1:5]
    assert 0.005 < off(ours.qkv(x), theirs.qkv(x)) < 0.05
    for name, given in (("o", (heads,)), ("mlp", ())):
        mine, other = x.clone(), x.clone()
        getattr(ours, name)(*given, mine)
        getattr(theirs, name)(*given, other)
        assert 0.005 < off(mine - x, other - x) < 0.06, name


def test_a_forward_reads_the_eight_bits_and_the_other_set_is_as_it_was() -> None:
    plain, kept = layer(), layer()
    quantise(kept, GEN)
    x, rotation = torch.randn(9, 64), NeoxRope(16, 1e4)(torch.arange(9))

    def attend(_layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)), enable_gqa=True)[
            0
        ].mT.mT.transpose(0, 1)

    both = {"": x[:4], GEN: x[4:]}
    got, wanted = kept(0, dict(both), rotation, attend), plain(0, dict(both), rotation, attend)
    assert 0.002 < off(got[GEN], wanted[GEN]) < 0.05
    alone = [one(0, {"": x}, rotation, attend)[""] for one in (kept, plain)]
    assert torch.equal(*alone)
    ours, stream = flow_linears(kept, GEN), x.clone()
    q, k, v = ours.qkv(stream).view(9, -1, 16).split([4, 2, 2], 1)
    norms = (cast(RMSNorm, kept.self_attn.get_submodule(f"{name}_norm{GEN}")) for name in "qk")
    q, k = (rotate(norm(t), rotation) for norm, t in zip(norms, (q, k), strict=True))
    ours.o(attend(0, q, k, v).reshape(1, 9, 64), stream)
    ours.mlp(stream)
    torch.testing.assert_close(stream, kept(0, {GEN: x}, rotation, attend)[GEN], rtol=1e-4, atol=1e-4)


def test_weights_are_held_once() -> None:
    kept = layer()
    before = sum(p.numel() for name, p in kept.named_parameters() if GEN in name and p.dim() == 2)
    quantise(kept, GEN)
    assert not [name for name, p in kept.named_parameters() if GEN in name and p.dim() == 2]
    parts = [m for name, m in kept.named_modules() if GEN in name and hasattr(m, "whole")]
    storages = {m.weight.numbers.untyped_storage().data_ptr(): m.weight.numbers.untyped_storage() for m in parts}
    assert sum(storage.nbytes() for storage in storages.values()) == before
    with pytest.raises(RuntimeError, match="packed"):
        PlainFlowLinears(kept, GEN)
    with pytest.raises(KeyError):
        quantise(kept, GEN)
    with pytest.raises(TypeError, match="eight bits"):
        Fp8FlowLinears(kept, "")


@pytest.mark.parametrize(
    ("capability", "dtype", "width", "wanted"),
    [
        ((9, 0), torch.bfloat16, 64, True),
        ((10, 0), torch.bfloat16, 64, True),
        ((8, 9), torch.bfloat16, 64, False),
        ((9, 0), torch.float16, 64, False),
        ((9, 0), torch.bfloat16, 72, False),
    ],
)
def test_where_products_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype, width: int, wanted: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert supported(torch.device("cuda"), dtype, 16, width) == wanted
    assert supported(torch.device("cpu"), torch.float32, 7)
