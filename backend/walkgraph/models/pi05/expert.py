"""pi0.5's flow step: the actions of every row of a batch, moved by one Euler step, with prefixes that stay unchanged.

A flow time's effect on the expert's norms depends only on the time, so a *table* of it is made before the loop
(`tables`): for each norm its scale, the bias that its shift adds to the next product, and its gate.

Shape letters: B rows, t actions of a row, a numbers of an action, R = B * t, W width, H query heads, G key/value heads,
D head dim, T numbers of a table.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from walkgraph.abi.states import Attention
from walkgraph.abi.step import Block
from walkgraph.layers.attention.block_attention import rotary_from_first
from walkgraph.layers.attention.heads import HeadTargets
from walkgraph.layers.flow.flow_end import end
from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead
from walkgraph.layers.kernels.flow_stack import Context, Entry, FlowLayer, FlowSizes, FlowStack, stack_of
from walkgraph.layers.linear.packed import UNPACKED
from walkgraph.layers.norm.modulated import Modulation, Rows, add, enter, gated, laid, lifted, place, product
from walkgraph.layers.rope import rotate
from walkgraph.models.pi05.layers import ExpertLayer
from walkgraph.models.pi05.model import Pi05


def _weights(layer: ExpertLayer) -> FlowLayer:
    if "" not in layer.self_attn.packed or layer.mlp.gate_up is None:
        raise RuntimeError(UNPACKED)
    o, down = layer.self_attn.part("o_proj", ""), layer.mlp.down_proj
    return FlowLayer(layer.self_attn.packed[""].weight, o.weight, layer.mlp.gate_up.weight, down.weight)


Attended = Callable[[int, Rows, Tensor, Tensor], Tensor]
"""Layer, rows, weights of all heads, what their norm's shift adds `[B, N]` -> attended heads `[R, H * D]`."""


class ExpertRows:
    """The flow step over rows. Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Pi05) -> None:
        self._model = model
        self._shape = model.config.shape(model.config.expert)
        self._out = model.action_out_proj
        self._layers = [_weights(cast(ExpertLayer, layer)) for layer in model.expert.layers]
        self._products = [weight.shape[0] for layer in self._layers for weight in (layer.qkv, layer.gate_up)]
        self._stack = self._in_one_launch()

    def _in_one_launch(self) -> FlowStack | None:
        """All layers for one row of a batch; None where there is no such launch."""
        shape, into = self._shape, self._model.action_in_proj
        sizes = FlowSizes(
            shape.width, shape.heads, shape.kv_heads, shape.head_dim, shape.hidden, len(self._layers), shape.norm_eps
        )
        frequencies = self._model.rope.frequencies(into.weight.device)
        return stack_of(sizes, self._layers, Entry(into.weight, into.bias), frequencies)

    @property
    def numbers(self) -> int:
        """T"""
        width = self._shape.width
        return sum(2 * width + columns for columns in self._products) + 2 * width

    def tables(self, times: Tensor) -> Tensor:
        """Flow times `[n]` -> float32 `[n, T]`."""
        found = self._model.modulations(times)
        weights = [weight for layer in self._layers for weight in (layer.qkv, layer.gate_up)]
        by = [found[:, index].unbind(1) for index in range(len(weights))]
        parts = [Modulation.of(scale, shift, gate, w) for (scale, shift, gate), w in zip(by, weights, strict=True)]
        scale, shift, _ = found[:, -1].unbind(1)
        return torch.cat([laid(parts), scale, shift], 1)

    def step(self, actions: Tensor, table: Tensor, way: FlowInterval, block: Block) -> Tensor:
        """Noised actions float32 `[B, t, a]`, table `[B, T]` at the interval's start -> actions at its end."""
        (rows, count, _), shape = actions.shape, self._shape
        context = Context(block.k, block.v, block.slots, block.positions)
        if self._stack is not None and self._stack.serves(actions, table, context):
            return end(self._stack(actions[0], table[0], context), self._head(table), actions, way)
        turns = rotary_from_first(block.positions, count, self._model.rope.frequencies(actions.device))
        q = self._layers[0].qkv.new_empty(rows * count, shape.heads, shape.head_dim)

        def attended(layer: int, x: Rows, weight: Tensor, bias: Tensor) -> Tensor:
            place(x, weight, bias, turns, HeadTargets(q, block.k[layer], block.v[layer], block.slots))
            return block(layer, q).flatten(1)

        return end(*self._through(actions, table, attended), actions, way)

    def forward(
        self, actions: Tensor, table: Tensor, way: FlowInterval, positions: Tensor, attend: Attention
    ) -> Tensor:
        """Like `step`; positions int64 `[R]`."""
        rotation, shape = self._model.rope(positions), self._shape

        def attended(layer: int, x: Rows, weight: Tensor, bias: Tensor) -> Tensor:
            heads = product(x, weight, bias).unflatten(1, (-1, shape.head_dim))
            q, k, v = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
            return attend(layer, rotate(q, rotation), rotate(k, rotation), v).flatten(1)

        return end(*self._through(actions, table, attended), actions, way)

    def _through(self, actions: Tensor, table: Tensor, attended: Attended) -> tuple[Tensor, VelocityHead]:
        """All layers -> rows `[R, W]` before the last norm, and the head with that norm."""
        width, eps = self._shape.width, self._shape.norm_eps
        by = lifted(table[:, : -2 * width], width, self._products)
        head = self._head(table)
        scales = [*(one.scale for one in by), head.scale]
        into, dtype = self._model.action_in_proj, self._layers[0].down.dtype
        rows = enter(actions.flatten(0, 1), into.weight, into.bias, scales[0], eps, dtype)
        for index, layer in enumerate(self._layers):
            first, second = by[2 * index], by[2 * index + 1]
            heads = attended(index, rows, layer.qkv, first.bias)
            rows = add(rows, heads, layer.out, first.gate, scales[2 * index + 1])
            inner = gated(rows, layer.gate_up, second.bias)
            rows = add(rows, inner, layer.down, second.gate, scales[2 * index + 2])
        return rows.x, head

    def _head(self, table: Tensor) -> VelocityHead:
        """The last norm and the map out of the model, table `[B, T]`."""
        scale, shift = table[:, -2 * self._shape.width :].chunk(2, 1)
        return VelocityHead(scale, shift, self._shape.norm_eps, self._out.weight, self._out.bias)
