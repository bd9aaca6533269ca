"""BAGEL's flow step: one velocity for every row of a batch of noised latents, with contexts that stay unchanged.

The latents of all rows are one tensor through all layers, for the gen set's products; their edges, BOI and EOI, are
another tensor of two tokens per row, for the und set's weights. Each set reads its half of the model: memory bounds the
edges and arithmetic the latents, so the edges may run beside the latents.

Shape letters: B rows, N latents of a row in h by w cells, n = N + 2 tokens of its block, C channels of a latent,
W model width, H query heads, G key/value heads, D head dim.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Scalar
from walkgraph.abi.step import Block, Row, StepBatch, StepOutputs, StepSpec
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


def flow_spec(model: Bagel, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
    """The spec of a call whose only input is latents `[h, w, C]` that fit the model; None for any other call."""
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
        sizes=next((sizes for most, sizes in _SIZES if cells <= most), _LARGEST),
        pure=True,
        together=True,
    )


class FlowStep:
    def __init__(
        self,
        model: Bagel,
        *,
        linears: Linears = flow_linears,
        overlap: bool = OVERLAP,
        priority: int = PRIORITY,
    ) -> None:
        """`linears`: multiply the latents' rows by a layer's gen weights. Raises RuntimeError for a model that is not
        packed."""
        self._model, self._language = model, model.language_model.model
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
        edges = self._model.embed_text(self._edges).repeat(latents.shape[0], 1)
        self._through(x, edges, block)
        norm = self._language.norm_moe_gen
        velocity = self._model.velocity(rms_norm(x, norm.weight, norm.eps))
        return StepOutputs({"velocity": velocity.view(latents.shape)})

    def _through(self, x: Tensor, edges: Tensor, block: Block) -> None:
        """All layers: x `[B * N, W]`, in place; edges `[B * 2, W]`, which leave after the last layer that reads them.

        Tensors that one stream reads from the other must live until the two have met, as their memory would otherwise
        be reused.
        """
        rows = edges.shape[0] // EDGES
        cells = x.shape[0] // rows
        turns = RotaryTable.at(block.positions, self._language.rope.frequencies(x.device))
        q = x.new_empty(block.slots.shape[0], self._heads, self._width)
        places = [HeadTargets(q, *layer, block.slots) for layer in zip(block.k, block.v, strict=True)]
        last = len(self._layers) - 1
        with self._beside.run():
            self._layers[0].und.place(edges, turns, places[0], cells, queries=last > 0)
        ends = edges
        for index, (_, norms, gen) in enumerate(self._layers):
            qkv = gen.qkv(x)
            # Attention follows this launch and may start early, which is safe only after a single stream's work.
            self._beside.join()
            place_heads(qkv, turns, norms, places[index], 0)
            heads = block(index, q).view(rows, cells + EDGES, -1)
            if index < last:
                with self._beside.run():
                    ends = self._layers[index].und.attended(heads[:, cells:], ends)
                    self._layers[index + 1].und.place(ends, turns, places[index + 1], cells, queries=index + 1 < last)
            gen.o(heads[:, :cells], x)
            gen.mlp(x)


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
