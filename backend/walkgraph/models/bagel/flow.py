"""BAGEL's flow step: one velocity for every row of a batch of noised latents, with contexts that stay unchanged.

The latents of all rows are one tensor through all layers, for the gen set's products; their edges, BOI and EOI, are
another tensor of two tokens per row, for the und set's weights. Each set reads its half of the model: memory bounds the
edges and arithmetic the latents, so the edges may run beside the latents.

In a sequence-parallel group each shard has a part of every row's latents, and all edges. The keys and values of the
other parts are gathered in each layer, and the velocities at the end.

Shape letters: B rows, N latents of a row in h by w cells, M of them that this shard has, n = N + 2 tokens of its block,
C channels of a latent, W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from walkgraph.abi.step import Block, Row, StepBatch, StepOutputs, StepSpec
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import FlowLinears
from walkgraph.layers.linear.fp8 import flow_linears
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import GEN, UND
from walkgraph.models.bagel.rows import EDGES

OVERLAP = True
"""Run the edges on a side stream, beside the latents."""
PRIORITY = 0
"""Priority of that stream; -1 runs before the latents."""
_SIZES = ((256, (1, 2, 4, 8, 16)), (1024, (1, 2, 4, 8)))
"""Latents of a row -> captured batch sizes. Larger batches gain nothing, as a row's latents alone keep the products
busy."""
_LARGEST = (1, 2, 4)

Linears = Callable[[DecoderLayer, str], FlowLinears]


class Part(NamedTuple):
    """The part of each row's latents that a shard has: equally many on all of them, so that the last ones repeat the
    last latent where it can't be divided."""

    cells: int
    """N"""
    count: int
    """M"""
    first: int

    @classmethod
    def of(cls, cells: int, shard: Shard) -> "Part":
        count = -(-cells // shard.count)
        return cls(cells, count, shard.index * count)

    def index(self, device: torch.device) -> Tensor:
        """int64 `[M]`: its latents among those of a row."""
        return torch.arange(self.first, self.first + self.count, device=device).clamp(max=self.cells - 1)

    def gathered(self, mine: Tensor, shard: Shard) -> Tensor:
        """`[B * M, K]` -> those of all shards, `[B * N, K]`."""
        return shard.gather(mine.unflatten(0, (-1, self.count)), 1)[:, : self.cells].flatten(0, 1)


def flow_spec(model: Bagel, inputs: Mapping[str, Any], shard: Shard = WHOLE) -> StepSpec | None:
    """The spec of a call whose only input is latents `[h, w, C]` that fit the model; None for any other call. `shard`:
    of a sequence-parallel group."""
    if [port for port, value in inputs.items() if value is not None] != ["latents"]:
        return None
    shape, side = tuple(inputs["latents"].shape), model.config.latent_side
    if len(shape) != 3 or shape[2] != model.config.latent_channels or not 0 < min(shape[:2]) <= max(shape[:2]) <= side:
        return None
    row, cells = Row(shape, torch.float32), shape[0] * shape[1]
    return StepSpec(
        inputs={"latents": row},
        outputs={"velocity": row},
        params={"time": torch.float32},
        appends={"kv": 0},
        scratch={"kv": cells + EDGES},
        queries={"kv": Part.of(cells, shard).count + EDGES},
        sizes=next((sizes for most, sizes in _SIZES if cells <= most), _LARGEST),
        pure=True,
        together=True,
    )


class FlowStep:
    def __init__(
        self,
        model: Bagel,
        shard: Shard = WHOLE,
        *,
        linears: Linears = flow_linears,
        overlap: bool = OVERLAP,
        priority: int = PRIORITY,
    ) -> None:
        """`shard`: of a sequence-parallel group. `linears`: multiply the latents' rows by a layer's gen weights. Raises
        RuntimeError for a model that is not packed."""
        self._model, self._shard, self._language = model, shard, model.language_model.model
        layers = [cast(DecoderLayer, layer) for layer in self._language.layers]
        self._layers = [
            _Layer(_Edges(layer), HeadNorms.of(layer.self_attn, GEN), linears(layer, GEN)) for layer in layers
        ]
        self._heads, self._width = layers[0].self_attn.shape.heads, layers[0].self_attn.shape.head_dim
        device, tokens = model.vae2llm.weight.device, model.config.tokens
        self._beside = _Beside(device if overlap else torch.device("cpu"), priority)
        self._edges = torch.tensor([tokens.boi, tokens.eoi], device=device)

    def __call__(self, batch: StepBatch) -> StepOutputs:
        latents, block = batch.inputs["latents"], batch.paged["kv"].block
        if block is None:
            raise RuntimeError("a flow step's latents are attended in a block, and the batch has none")
        x = self._model.embed_block(latents, batch.params["time"])
        part = Part.of(x.shape[0] // latents.shape[0], self._shard)
        if self._shard.count > 1:
            x = x.unflatten(0, (-1, part.cells)).index_select(1, part.index(x.device)).flatten(0, 1)
        edges = self._model.embed_text(self._edges).repeat(latents.shape[0], 1)
        self._through(x, edges, block, part)
        norm = self._language.norm_moe_gen
        velocity = self._model.velocity(rms_norm(x, norm.weight, norm.eps))
        return StepOutputs({"velocity": part.gathered(velocity, self._shard).view(latents.shape)})

    def _through(self, x: Tensor, edges: Tensor, block: Block, part: Part) -> None:
        """All layers: x `[B * M, W]`, in place; edges `[B * 2, W]`, which leave after the last layer that reads them.

        Tensors that one stream reads from the other must live until the two have met, as their memory would otherwise
        be reused.
        """
        rows, mine = edges.shape[0] // EDGES, part.count
        turns = RotaryTable.at(block.positions, self._language.rope.frequencies(x.device))
        slots = self._own(block.slots.view(rows, -1), part)
        q = x.new_empty(slots.shape[0], self._heads, self._width)
        places = [HeadTargets(q, *layer, slots) for layer in zip(block.k, block.v, strict=True)]
        last = len(self._layers) - 1
        with self._beside.run():
            self._layers[0].und.place(edges, turns, places[0], mine, queries=last > 0)
        ends = edges
        for index, (_, norms, gen) in enumerate(self._layers):
            qkv = gen.qkv(x)
            others = self._others(qkv, part)
            # Attention follows the last launch and may start early, which is safe only after a single stream's work.
            self._beside.join()
            if others is not None:
                place_heads(others, turns, norms, places[index]._replace(slots=block.slots), 0)
            place_heads(qkv, turns, norms, places[index], 0)
            heads = block(index, q).view(rows, mine + EDGES, -1)
            if index < last:
                with self._beside.run():
                    ends = self._layers[index].und.attended(heads[:, mine:], ends)
                    self._layers[index + 1].und.place(ends, turns, places[index + 1], mine, queries=index + 1 < last)
            gen.o(heads[:, :mine], x)
            gen.mlp(x)

    def _own(self, slots: Tensor, part: Part) -> Tensor:
        """Slots of the blocks, `[B, n]` -> those of this shard's latents and of the edges, `[B * (M + 2)]`."""
        if self._shard.count == 1:
            return slots.flatten()
        return torch.cat([slots.index_select(1, part.index(slots.device)), slots[:, part.cells :]], 1).flatten()

    def _others(self, qkv: Tensor, part: Part) -> Tensor | None:
        """qkv `[B * M, (H + 2G) * D]` -> keys and values of the latents of all shards, `[B * N, 2G * D]`; None without
        other shards."""
        if self._shard.count == 1:
            return None
        return part.gathered(qkv[:, self._heads * self._width :], self._shard)


class _Edges:
    """One layer for the und rows of a step. They are few, so reading the weights dominates."""

    def __init__(self, layer: DecoderLayer) -> None:
        self._layer, self._norms = layer, HeadNorms.of(layer.self_attn, UND)
        self._norm = cast(RMSNorm, layer.get_submodule(f"input_layernorm{UND}"))

    def place(self, x: Tensor, turns: RotaryTable, to: HeadTargets, first: int, *, queries: bool) -> None:
        """x `[B * 2, W]`; `queries`: true if the attended values of these tokens are needed."""
        qkv = self._layer.self_attn.few_qkv(x, self._norm, UND, queries=queries)
        place_heads(qkv, turns, self._norms, to, first)

    def attended(self, heads: Tensor, x: Tensor) -> Tensor:
        """heads `[B, 2, H * D]` -> `[B * 2, W]`."""
        # A small copy, so that the following kernels, which start before their predecessor has ended, never depend on
        # two streams at once.
        own = heads.clone(memory_format=torch.contiguous_format)
        return self._layer.attended(own.flatten(0, 1), x, UND)


class _Layer(NamedTuple):
    und: _Edges
    norms: HeadNorms
    """The norms of the gen set."""
    gen: FlowLinears


class _Beside:
    """A stream that runs beside the current one between `run` and `join`. On a CPU, or switched off, work runs in
    order."""

    def __init__(self, device: torch.device, priority: int) -> None:
        self._stream = torch.cuda.Stream(device, priority=priority) if device.type == "cuda" else None

    @contextmanager
    def run(self) -> Iterator[None]:
        """Work launched inside starts after everything the current stream was given."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield

    def join(self) -> None:
        """Make the current stream wait for the work beside it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


def flow_examples(model: Bagel) -> Sequence[Mapping[str, Any]]:
    """Latents of the most requested square pictures, as far as the model draws them."""
    config = model.config
    sides = [side for side in (64, 32) if side <= config.latent_side] or [config.latent_side]
    return [{"latents": torch.zeros(side, side, config.latent_channels)} for side in sides]
