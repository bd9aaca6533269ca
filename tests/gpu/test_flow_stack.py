"""The layers of a flow step in one launch on a GPU: near the same layers in float64, whatever is in memory that they
don't read, and with the same bits whenever they run."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.kernels.flow_stack import Context, Entry, FlowLayer, FlowSizes, FlowStack
from walkgraph.layers.norm.modulated import Modulation, laid
from walkgraph.layers.rope import neox_frequencies
from walkgraph.memory.cuda_source import is_available

SIZES = FlowSizes(width=1024, heads=8, kv_heads=1, head_dim=256, hidden=4096, layers=4, eps=1e-6)
QKV, NUMBERS, SLOTS = (SIZES.heads + 2) * SIZES.head_dim, 32, 4096
ERROR = 4e-3
"""Of bfloat16 weights, rows and heads behind four layers; `layers.norm.modulated` gives 5e-3."""
CUDA = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]


def drawn(seed: int, *size: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator(CUDA).manual_seed(seed)
    return torch.randn(size, generator=generator, device=CUDA) * scale


@dataclass
class Network:
    layers: list[FlowLayer]
    modulations: list[Modulation]
    entry: Entry
    frequencies: Tensor
    stack: FlowStack

    @classmethod
    def made(cls) -> Network:
        width, shapes = SIZES.width, ((QKV, 1024), (1024, 2048), (8192, 1024), (1024, 4096))
        layers = [
            FlowLayer(*(drawn(10 * i + j, n, k, scale=k**-0.5).bfloat16() for j, (n, k) in enumerate(shapes)))
            for i in range(SIZES.layers)
        ]
        modulations = [
            Modulation(*(drawn(100 + 10 * i + j, 1, size, scale=0.3) for j, size in enumerate((width, columns, width))))
            for i, columns in enumerate([QKV, 2 * SIZES.hidden] * SIZES.layers)
        ]
        entry = Entry(drawn(7, width, NUMBERS, scale=NUMBERS**-0.5), drawn(8, width))
        frequencies = neox_frequencies(SIZES.head_dim, 1e4).to(CUDA)
        return cls(layers, modulations, entry, frequencies, FlowStack(SIZES, layers, entry, frequencies))

    def plain(self, actions: Tensor, context: Context, tokens: int) -> Tensor:
        """Computes it in float64."""
        rows, half = len(actions), SIZES.head_dim // 2
        places = context.position + torch.arange(rows, device=CUDA)
        angles = (places[:, None].float() * self.frequencies).double()[:, None]
        cos, sin = angles.cos(), angles.sin()

        def turned(heads: Tensor) -> Tensor:
            low, high = heads.split(half, 2)
            return torch.cat([low * cos - high * sin, high * cos + low * sin], 2)

        def normed(x: Tensor, by: Modulation) -> Tensor:
            return F.rms_norm(x, (SIZES.width,), None, SIZES.eps) * (1 + by.scale.double())

        x = F.linear(actions.double(), self.entry.weight.double(), self.entry.bias.double())
        for index, weights in enumerate(self.layers):
            layer = FlowLayer(*(one.double() for one in weights))
            first, second = self.modulations[2 * index : 2 * index + 2]
            heads = (F.linear(normed(x, first), layer.qkv) + first.bias.double()).unflatten(1, (-1, SIZES.head_dim))
            q, k, v = heads.split([SIZES.heads, 1, 1], 1)
            keys = torch.cat([context.k[index][:tokens].double(), turned(k)])[:, 0]
            values = torch.cat([context.v[index][:tokens].double(), v])[:, 0]
            weighed = (turned(q).flatten(0, 1) @ keys.T * SIZES.head_dim**-0.5).softmax(-1) @ values
            x = x + first.gate.double() * F.linear(weighed.view(rows, -1), layer.out)
            gate, up = (F.linear(normed(x, second), layer.gate_up) + second.bias.double()).chunk(2, 1)
            x = x + second.gate.double() * F.linear(F.gelu(gate, approximate="tanh") * up, layer.down)
        return x

    def table(self) -> Tensor:
        return laid(self.modulations)[0]


@pytest.fixture(scope="module")
def network() -> Network:
    return Network.made()


def context_of(tokens: int, seed: int = 3) -> Context:
    """Behind the context, memory holds NaN."""
    k, v = (drawn(seed + i, SIZES.layers, SLOTS, 1, SIZES.head_dim).bfloat16() for i in range(2))
    for cache in (k, v):
        cache[:, tokens:] = torch.nan
    numbers = (torch.tensor([one], device=CUDA) for one in (tokens, 2 * tokens + 5))
    return Context(k.unbind(), v.unbind(), *numbers)


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("rows", [1, 16, 17, 50, 64])
@pytest.mark.parametrize("tokens", [0, 14, 64, 968, 1061, 2500])
@torch.inference_mode()
def test_a_launch_is_near_float64(network: Network, rows: int, tokens: int) -> None:
    context, actions = context_of(tokens), drawn(5, rows, NUMBERS)
    assert network.stack.serves(actions[None], network.table()[None], context)
    found = network.stack(actions, network.table(), context)
    wanted = network.plain(actions, context, tokens)
    print(f"{rows} rows, {tokens} tokens: {off(found, wanted):.5f}")
    assert off(found, wanted) < ERROR


@torch.inference_mode()
def test_launches_of_other_sizes_between_leave_the_bits_as_they_are(network: Network) -> None:
    table, first = network.table(), {}
    for _ in range(6):
        for rows, tokens in ((50, 968), (64, 100), (3, 2000), (50, 970)):
            found = network.stack(drawn(rows, rows, NUMBERS), table, context_of(tokens))
            assert torch.equal(first.setdefault((rows, tokens), found), found)


@torch.inference_mode()
def test_numbers_that_are_none_pass_through_and_stop_nobody(network: Network) -> None:
    """Memory that waits for a number holds one that arithmetic doesn't give, not even from itself."""
    table, context, actions = network.table(), context_of(968), drawn(5, 50, NUMBERS)
    wanted = network.stack(actions, table, context)
    for bits in (-1, 0x7FC00000, 0x7F800000):
        none = actions.clone()
        none.view(torch.int32)[7] = bits
        assert network.stack(none, table, context).isnan().all()
    assert torch.equal(network.stack(actions, table, context), wanted)


@torch.inference_mode()
def test_a_captured_launch_serves_other_contexts_and_tables(network: Network) -> None:
    table, actions, context = network.table(), drawn(5, 50, NUMBERS), context_of(968)
    network.stack(actions, table, context)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = network.stack(actions, table, context)
    for tokens in (968, 3, 1500, 0):
        other = context_of(tokens, seed=tokens)
        for mine, its in zip((*context.k, *context.v), (*other.k, *other.v), strict=True):
            mine.copy_(its)
        context.tokens.copy_(other.tokens)
        context.position.copy_(other.position)
        table.copy_(network.table() * (1 + tokens / 5000))
        graph.replay()
        assert torch.equal(held, network.stack(actions, table, other))
        assert held.isfinite().all()


@torch.inference_mode()
def test_others_go_layer_after_layer(network: Network) -> None:
    context, table = context_of(100), network.table()[None]
    assert network.stack.serves(drawn(1, 1, 50, NUMBERS), table, context)
    assert not network.stack.serves(drawn(1, 2, 50, NUMBERS), table, context)
    assert not network.stack.serves(drawn(1, 1, 65, NUMBERS), table, context)
    assert not network.stack.serves(drawn(1, 1, 50, NUMBERS).bfloat16(), table, context)
    wide = Context([*context.k[:3], context.k[0]], context.v, context.tokens, context.position)
    assert not network.stack.serves(drawn(1, 1, 50, NUMBERS), table, wide)
    with batch_invariant():
        assert not network.stack.serves(drawn(1, 1, 50, NUMBERS), table, context)
