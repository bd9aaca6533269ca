"""The decoder layer against one written out row by row, with the same weights."""

from typing import Any

import torch
from torch import Tensor

from walkgraph.layers.attention import PackedAttend, causal_mask
from walkgraph.layers.decoder import DecoderLayer, DecoderShape
from walkgraph.layers.rope import NeoxRope, rotate

torch.set_num_threads(1)
SHAPE: dict[str, Any] = {"width": 12, "heads": 4, "kv_heads": 2, "head_dim": 6, "hidden": 20, "norm_eps": 1e-6}


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def redrawn(layer: DecoderLayer) -> dict[str, Tensor]:
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return dict(layer.named_parameters())


def naive(p: dict[str, Tensor], x: Tensor, positions: Tensor, suffix: list[str], qk_norm: bool) -> Tensor:
    """Rows of one causal sequence, each with the weights of its own suffix."""
    rope, heads = NeoxRope(6, 1e4), []
    for row, s in enumerate(suffix):
        h = rms(x[row], p[f"input_layernorm{s}.weight"])
        parts = []
        for name in "qkv":
            bias = p.get(f"self_attn.{name}_proj{s}.bias", torch.zeros(()))
            part = (p[f"self_attn.{name}_proj{s}.weight"] @ h + bias).view(1, -1, 6)
            if qk_norm and name != "v":
                part = rms(part, p[f"self_attn.{name}_norm{s}.weight"])
            parts.append(rotate(part, rope(positions[row : row + 1])) if name != "v" else part)
        heads.append(parts)
    out = []
    for row, s in enumerate(suffix):
        mixed = []
        for head in range(4):
            keys = torch.stack([heads[j][1][0, head // 2] for j in range(row + 1)])
            values = torch.stack([heads[j][2][0, head // 2] for j in range(row + 1)])
            mixed.append((keys @ heads[row][0][0, head] / 6**0.5).softmax(0) @ values)
        y = x[row] + p[f"self_attn.o_proj{s}.weight"] @ torch.cat(mixed)
        h = rms(y, p[f"post_attention_layernorm{s}.weight"])
        gate, up = p[f"mlp{s}.gate_proj.weight"] @ h, p[f"mlp{s}.up_proj.weight"] @ h
        out.append(y + p[f"mlp{s}.down_proj.weight"] @ (gate * gate.sigmoid() * up))
    return torch.stack(out)


def test_one_set_of_weights_equals_the_written_out_layer() -> None:
    torch.manual_seed(0)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=False, qk_norm=False))
    weights, x, positions = redrawn(layer), torch.randn(5, 12), torch.tensor([0, 1, 2, 2, 9])
    out = layer(0, {"": x}, NeoxRope(6, 1e4)(positions), PackedAttend((5,), mask=causal_mask(5)))
    torch.testing.assert_close(out[""], naive(weights, x, positions, [""] * 5, qk_norm=False), rtol=1e-4, atol=1e-4)


def test_two_sets_meet_in_one_attention() -> None:
    torch.manual_seed(1)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=True, qk_norm=True), ("", "_b"))
    weights, x, positions = redrawn(layer), torch.randn(5, 12), torch.arange(5)
    attend = PackedAttend((5,), mask=causal_mask(5))
    out = layer(0, {"": x[:2], "_b": x[2:]}, NeoxRope(6, 1e4)(positions), attend)
    want = naive(weights, x, positions, ["", "", "_b", "_b", "_b"], qk_norm=True)
    torch.testing.assert_close(torch.cat([*out.values()]), want, rtol=1e-4, atol=1e-4)
    assert list(out) == ["", "_b"]


def test_a_bias_and_a_norm_exist_only_where_the_shape_says() -> None:
    bare = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=False, qk_norm=False)).state_dict()
    full = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=True, qk_norm=True)).state_dict()
    extra = {"self_attn.q_norm.weight", "self_attn.k_norm.weight", *(f"self_attn.{n}_proj.bias" for n in "qkv")}
    assert full.keys() - bare.keys() == extra
