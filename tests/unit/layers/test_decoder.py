"""The decoder layer against one written out row by row, with the same weights."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.support.shards import Imagined, in_threads
from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.collectives.base import Shard
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.mlp import SwiGLU
from walkgraph.layers.norm.rms_norm import RMSNorm
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


class Rows(NamedTuple):
    rows: Tensor
    pages: Tensor
    lengths: Tensor
    positions: Tensor


class Slot(NamedTuple):
    k: list[Tensor]
    v: list[Tensor]
    rows: Rows


def stepped(layer: DecoderLayer, x: Tensor, rope: NeoxRope, suffix: str) -> Tensor:
    """Two sequences `[2, L, W]`, one token of each at a time, by a cache of one page a sequence; layer 1 of two."""
    pages = torch.tensor([[2], [1]], dtype=torch.int32)
    counts = torch.zeros(2, dtype=torch.int32)
    rows = Rows(torch.tensor([1, 0], dtype=torch.int32), pages, counts, counts.clone())
    k, v = ([torch.zeros(3 * 16, layer.self_attn.shape.kv_heads, 6) for _ in range(2)] for _ in "kv")
    out = []
    for at in range(x.shape[1]):
        out.append(layer.step(1, x[:, at], Slot(k, v, rows), rope.frequencies(x.device), suffix))
        rows.lengths.add_(1)
        rows.positions.add_(1)
    assert not k[0].any()
    return torch.stack(out, 1)


@pytest.mark.parametrize("suffix", ["", "_b"])
@pytest.mark.parametrize("full", [False, True])
def test_a_step_a_token_is_the_forward_of_all(full: bool, suffix: str) -> None:
    torch.manual_seed(2)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=full, qk_norm=full), ("", "_b"))
    redrawn(layer)
    rope, x = NeoxRope(6, 1e4), torch.randn(2, 7, 12)
    attend = PackedAttend((7,), mask=causal_mask(7))
    want = layer(0, {suffix: x.flatten(0, 1)}, rope(torch.arange(7).repeat(2)), attend)[suffix].view(2, 7, 12)
    with pytest.raises((RuntimeError, KeyError)):
        stepped(layer, x, rope, suffix)
    layer.pack()
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x, rope, suffix), want, rtol=1e-4, atol=1e-4)


class TwoExperts(nn.Module):
    """An MLP of another kind: the first number of a row says which of two serves it."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.experts = nn.ModuleList(SwiGLU(shape.width, shape.hidden) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        one, two = (expert(x) for expert in self.experts)
        return torch.where(x[:, :1] > 0, one, two)

    def step(self, x: Tensor, norm: RMSNorm, residual: Tensor | None) -> Tensor:
        found = self(norm(x))
        return found if residual is None else residual + found

    def pack(self) -> None:
        for expert in self.experts:
            expert.pack()  # type: ignore[operator]


def test_a_layer_takes_its_mlp() -> None:
    torch.manual_seed(6)
    shape = DecoderShape(**SHAPE, qkv_bias=False, qk_norm=True)
    layer = DecoderLayer(shape, ("", "_b"), mlp=TwoExperts)
    redrawn(layer)
    assert "mlp_b.experts.1.down_proj.weight" in layer.state_dict()
    rope, x = NeoxRope(6, 1e4), torch.randn(2, 7, 12)
    attend = PackedAttend((7,), mask=causal_mask(7))
    want = layer(0, {"_b": x.flatten(0, 1)}, rope(torch.arange(7).repeat(2)), attend)["_b"].view(2, 7, 12)
    layer.pack()
    with torch.no_grad():
        torch.testing.assert_close(stepped(layer, x, rope, "_b"), want, rtol=1e-4, atol=1e-4)
        layer.shard = Imagined()
        torch.testing.assert_close(stepped(layer, x, rope, "_b"), want, rtol=1e-4, atol=1e-4)


def test_packing_keeps_names_and_numbers_and_holds_no_weight_twice() -> None:
    torch.manual_seed(3)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=True, qk_norm=True), ("", "_b"))
    redrawn(layer)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    parts = {"": torch.randn(3, 12), "_b": torch.randn(2, 12)}
    rotation, mask = NeoxRope(6, 1e4)(torch.arange(5)), causal_mask(5)
    want = layer(0, parts, rotation, PackedAttend((5,), mask=mask))
    layer.pack()
    after = layer.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    attention, mlp = layer.self_attn, layer._modules["mlp_b"]
    assert isinstance(mlp, SwiGLU)
    assert mlp.gate_up is not None
    shared = [
        (attention.packed["_b"].weight, [attention.part(f"{name}_proj", "_b").weight for name in "qkv"]),
        (attention.packed["_b"].bias, [attention.part(f"{name}_proj", "_b").bias for name in "qkv"]),
        (mlp.gate_up.weight, [mlp.gate_proj.weight, mlp.up_proj.weight]),
    ]
    for whole, views in shared:
        assert whole is not None
        assert {view.untyped_storage().data_ptr() for view in views} == {whole.untyped_storage().data_ptr()}
        assert torch.equal(torch.cat(views), whole)
    got = layer(0, parts, rotation, PackedAttend((5,), mask=mask))
    for suffix, rows in want.items():
        torch.testing.assert_close(got[suffix], rows, rtol=1e-6, atol=1e-6)


def test_a_packed_layer_can_be_cast() -> None:
    torch.manual_seed(4)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=True, qk_norm=False))
    redrawn(layer)
    layer.pack()
    layer.double()
    x = torch.randn(4, 12, dtype=torch.float64)
    out = layer(0, {"": x}, NeoxRope(6, 1e4)(torch.arange(4)), PackedAttend((4,), mask=causal_mask(4)))[""]
    assert out.dtype == torch.float64
    assert layer.self_attn.packed[""].weight.data_ptr() == layer.self_attn.part("q_proj", "").weight.data_ptr()
    assert not layer.self_attn.part("k_proj", "").weight.requires_grad


def test_shards_of_a_layer_add_up_to_it(tmp_path: Path) -> None:
    """Two shards with a half of the heads and of the hidden width each, which meet in the middle of either half."""
    torch.manual_seed(5)
    layer = DecoderLayer(DecoderShape(**SHAPE, qkv_bias=False, qk_norm=False))
    weights, rope = redrawn(layer), NeoxRope(6, 1e4)
    x = torch.randn(2, 5, 12)
    layer.pack()
    half = {**SHAPE, "heads": 2, "kv_heads": 1, "hidden": 10}
    rotation, rows = rope(torch.arange(5).repeat(2)), x.flatten(0, 1)

    @torch.no_grad()
    def work(shard: Shard) -> list[Tensor]:
        mine = DecoderLayer(DecoderShape(**half, qkv_bias=False, qk_norm=False), shard=shard)
        state = {}
        for name, tensor in weights.items():
            across = "o_proj" in name or "down_proj" in name
            cut = "norm" not in name
            state[name] = tensor.detach().chunk(2, 1 if across else 0)[shard.index] if cut else tensor.detach()
        mine.load_state_dict(state)
        mine.pack()
        attend = PackedAttend((5,), mask=causal_mask(5))
        return [mine(0, {"": rows}, rotation, attend)[""], stepped(mine, x, rope, "").flatten(0, 1)]

    with torch.no_grad():
        want = layer(0, {"": rows}, rotation, PackedAttend((5,), mask=causal_mask(5)))[""]
    first, other = in_threads(tmp_path / "group", 2, work)
    assert all(torch.equal(one, same) for one, same in zip(first, other, strict=True))
    for found in first:
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
