"""BAGEL's operators: the encoder of what it sees, and the backbone that serves any mix of calls in one forward."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import PRECISION, Capture, Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Placed, Reused, Segment, States, reused, reused_block
from walkgraph.abi.step import StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.prompts.captured_prompts import CapturedPrompts, PromptAnswers
from walkgraph.architectures.prompts.paged_prompts import PagedPrompts
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.layers.attention.few_attention import supported
from walkgraph.layers.pictures.patches import grid_ids, patchify
from walkgraph.layers.sampling import sample
from walkgraph.layers.sampling_params import SamplingParams
from walkgraph.models.bagel.flow import FlowStep, flow_examples, flow_spec
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.precision import at_precision
from walkgraph.models.bagel.rows import Kind, Piece, Rows, lay_out, picture_cells
from walkgraph.models.bagel.tokens import token_spec, token_step
from walkgraph.models.bagel.und import UndRows
from walkgraph.models.bagel.weights import load_bagel, shared_config

TEXT_SIZES = (16, 32, 64, 128)
"""Tokens of a captured forward, summed over its texts."""
TEXTS = 8
"""The most texts of a captured forward."""
_KINDS: dict[str, Kind] = {"ids": "text", "token": "text", "image": "seen", "clean": "clean", "latents": "noised"}


class Backbone(Operator):
    """Text is appended causally and answered with the next token. A seen picture, or clean latents, are appended as one
    block. Noised latents are attended as one block, not kept, and answered with a velocity."""

    options: ClassVar[tuple[str, ...]] = (PRECISION,)

    def __init__(
        self,
        model: Bagel,
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
        sequence: Shard = WHOLE,
    ) -> None:
        """`capture`, `sequence`: as in `LoadContext`."""
        self._model, self._device, self._dtype, self._sequence = model, device, dtype, sequence
        tokens, llm = model.config.tokens, model.config.llm
        self._edges = torch.tensor([tokens.boi, tokens.eoi], device=device)
        self._flow: FlowStep | None = None
        self._und: UndRows | None = None
        served = supported(device, dtype, llm.heads, llm.kv_heads, llm.head_dim)
        form = PagedPrompts(self._read, group=llm.heads // llm.kv_heads, sizes=TEXT_SIZES, most=TEXTS, what="a text")
        self._texts = CapturedPrompts(form, capture if served else None)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        model = at_precision(_bagel(context), context)
        return cls(model, context.device, context.dtype, context.capture, context.sequence)

    def caches(self) -> Mapping[str, CacheShape]:
        llm = self._model.config.llm
        shape = CacheShape(layers=llm.layers, kv_heads=llm.kv_heads, head_dim=llm.head_dim, dtype=self._dtype)
        return {"kv": shape}

    def rows(self, call: Call) -> int:
        return self._piece(call, *_fed(call)).rows

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        port, value = _fed(call)
        if port != "ids":
            return (call,)
        return [replace(call, inputs={port: part}) for part in value.split(rows)]

    def examples(self) -> Sequence[Example]:
        config = self._model.config
        greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
        grid = torch.zeros(2, 2, config.latent_channels)
        return (
            Example(inputs={"ids": torch.tensor([config.tokens.bos, config.tokens.eos])}, params=greedy),
            # The number of rows whose keys are copied side by side for them.
            Example(inputs={"image": torch.zeros(190, config.llm.width)}),
            Example(inputs={"clean": grid}),
            Example(inputs={"latents": grid}, params={"time": 0.5}),
            Example(inputs={"token": torch.tensor([config.tokens.bos])}, params={**greedy, "temperature": 1.0}),
        )

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        whole = [(call, *_fed(call)) for call in calls]
        had = [_had(call, port, self._piece(call, port, value), states) for call, port, value in whole]
        asked = [i for i, one in enumerate(had) if one is not None]
        outputs = [Outputs() for _ in calls]
        if asked:
            fed = [(port, value[one.found :]) for (_, port, value), one in zip(whole, had, strict=True) if one]
            tokens = [one.tokens for one in had if one is not None]
            for i, given in zip(asked, self._forward([calls[i] for i in asked], fed, tokens, states), strict=True):
                outputs[i] = given
        return outputs

    def _forward(
        self,
        calls: Sequence[Call],
        fed: Sequence[tuple[str, Tensor]],
        tokens: Sequence[Sequence[int] | None],
        states: States,
    ) -> list[Outputs]:
        """Compute calls, whose values are those that were not found."""
        pieces = tuple(self._piece(call, *one) for call, one in zip(calls, fed, strict=True))
        if len({piece.kind for piece in pieces}) == 1 and pieces[0].kind in ("text", "seen"):
            return self._by_und(calls, [value for _, value in fed], pieces, tokens, states)
        rows = lay_out(pieces, self._model.config.latent_side, self._device)
        attend = states.attend([_segment(*one) for one in zip(calls, pieces, rows.of, tokens, strict=True)])
        first = torch.tensor([states.position(call.states["kv"]) for call in calls], device=self._device)
        positions = first[rows.piece] + rows.place
        x = self._embed(calls, [value for _, value in fed], pieces, rows)
        h = self._model.backbone(x, positions, rows.und, attend)
        states.commit(attend)
        outputs: list[Outputs] = [{} for _ in calls]
        asked = [i for i, piece in enumerate(pieces) if piece.kind == "text"]
        if asked:
            self._answer_text(h[rows.last], [calls[i] for i in asked], states, [outputs[i] for i in asked])
        self._answer_latents(h, rows, pieces, outputs)
        return outputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return flow_spec(self._model, inputs, self._sequence) or token_spec(self._model, inputs, params)

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return (*flow_examples(self._model), {"token": torch.tensor([self._model.config.tokens.bos])})

    def step(self, batch: StepBatch) -> StepOutputs:
        if "token" in batch.inputs:
            return token_step(self._model, batch)
        if self._flow is None:
            self._flow = FlowStep(self._model, self._sequence)
        return self._flow(batch)

    def _by_und(
        self,
        calls: Sequence[Call],
        fed: Sequence[Tensor],
        pieces: Sequence[Piece],
        tokens: Sequence[Sequence[int] | None],
        states: States,
    ) -> list[Outputs]:
        """Run calls of text alone, or of seen pictures alone."""
        counts, outputs = [piece.rows for piece in pieces], [Outputs() for _ in calls]
        rows = torch.arange(sum(counts), device=self._device).split(counts)
        attend = states.attend([_segment(*one) for one in zip(calls, pieces, rows, tokens, strict=True)])
        first = [states.position(call.states["kv"]) for call in calls]
        if pieces[0].kind == "seen":
            self._by_rows().see(fed, self._edges, self._sent(first), attend.placed())
            states.commit(attend)
            return outputs
        self._refuse_outside(calls)
        at = [position for begin, count in zip(first, counts, strict=True) for position in range(begin, begin + count)]
        ids = torch.cat([*fed])
        found = self._texts.read(ids, at, attend.causal())
        if found is not None:
            (h,) = found.prompts
        else:
            last = self._sent([count - 1 for count in accumulate(counts)])
            [h] = self._read(ids, self._sent(at), last, attend.placed()).prompts
        states.commit(attend)
        self._answer_text(h, calls, states, outputs)
        return outputs

    def _read(self, ids: Tensor, positions: Tensor, asked: Tensor, to: Placed) -> PromptAnswers:
        return PromptAnswers([self._by_rows().read(ids, positions, asked, to)])

    def _by_rows(self) -> UndRows:
        if self._und is None:
            self._und = UndRows(self._model)
        return self._und

    def _sent(self, numbers: Sequence[int]) -> Tensor:
        """int64, on the device. From pinned memory, the copy doesn't wait for the work before it."""
        pinned = self._device.type == "cuda"
        return torch.tensor(numbers, dtype=torch.int64, pin_memory=pinned).to(self._device, non_blocking=True)

    def _embed(self, calls: Sequence[Call], fed: Sequence[Tensor], pieces: Sequence[Piece], rows: Rows) -> Tensor:
        """`[R, W]` in the order of `rows`."""
        text = torch.cat([v if p.kind == "text" else self._edges for v, p in zip(fed, pieces, strict=True)])
        self._refuse_outside([call for call, p in zip(calls, pieces, strict=True) if p.kind == "text"])
        by_kind: dict[Kind, list[int]] = {"text": [], "seen": [], "noised": [], "clean": []}
        for index, piece in enumerate(pieces):
            by_kind[piece.kind].append(index)
        x = [self._model.embed_text(text)]
        x += [fed[i].to(x[0].dtype) for i in by_kind["seen"]]
        gen = [*by_kind["noised"], *by_kind["clean"]]
        if gen:
            latents = torch.cat([fed[i].flatten(0, 1) for i in gen])
            x.append(self._model.embed_latents(latents, _times(calls, pieces, rows, self._device), rows.grid))
        return torch.cat(x)

    def _refuse_outside(self, calls: Sequence[Call]) -> None:
        """Raise CallFailed for text tokens outside the vocabulary. Waits for the device only if the host doesn't know
        them."""
        vocab = self._model.config.llm.vocab
        known = [(call, call.numbers(_fed(call)[0])) for call in calls]
        made = [_fed(call)[1] for call, numbers in known if numbers is None]
        outside = any(not 0 <= number < vocab for _, numbers in known for number in numbers or ())
        if outside or (made and bool(torch.cat([(ids < 0) | (ids >= vocab) for ids in made]).any())):
            raise CallFailed(f"`{calls[0].node}` got a token outside its vocabulary of {vocab}")

    def _answer_text(self, h: Tensor, calls: Sequence[Call], states: States, outputs: Sequence[Outputs]) -> None:
        """h: the states of every call's last row."""
        tokens = _sampled(self._model.logits(h), calls, states)
        stops = (tokens == self._model.config.tokens.eos).tolist()
        for given, token, stop in zip(outputs, tokens.split(1), stops, strict=True):
            given.update(token=token, stop=stop)

    def _answer_latents(self, h: Tensor, rows: Rows, pieces: Sequence[Piece], outputs: list[Outputs]) -> None:
        asked = [i for i, piece in enumerate(pieces) if piece.kind == "noised"]
        if not asked:
            return
        velocities = self._model.velocity(h[rows.und : rows.und + rows.noised])
        for index, v in zip(asked, velocities.split([pieces[i].tokens for i in asked]), strict=True):
            outputs[index]["velocity"] = v.view(pieces[index].height, pieces[index].width, -1)

    def _piece(self, call: Call, port: str, value: Tensor) -> Piece:
        kind, config = _KINDS[port], self._model.config
        if kind == "text" and value.dim() == 1 and len(value):
            return Piece(kind, 1, len(value))
        if kind == "seen" and value.dim() == 2 and value.shape[1] == config.llm.width and len(value):
            return Piece(kind, 1, len(value))
        side = config.latent_side
        if value.dim() == 3 and value.shape[2] == config.latent_channels and 0 < max(value.shape[:2]) <= side:
            return Piece(kind, value.shape[0], value.shape[1])
        wanted = {
            "text": "token ids `[n]`, at least one",
            "seen": f"embeddings `[n, {config.llm.width}]`, at least one",
        }.get(kind, f"latents `[h, w, {config.latent_channels}]` of at most {side} by {side} cells")
        raise CallFailed(f"`{call.node}.{port}` takes {wanted}, and got {list(value.shape)}", port)


class Vit(Operator):
    """Packs pictures of any sizes into one forward."""

    pure: ClassVar[bool] = True

    def __init__(self, model: Bagel) -> None:
        self._model = model

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_bagel(context))

    def rows(self, call: Call) -> int:
        return picture_cells(call, self._model.config.vit.patch, self._model.config.vit.side)[2]

    def examples(self) -> Sequence[Example]:
        side = 2 * self._model.config.vit.patch
        return (Example(inputs={"pixels": torch.zeros(3, side, side)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        vit = self._model.config.vit
        cells = [picture_cells(call, vit.patch, vit.side) for call in calls]
        patches = torch.cat([patchify(call.inputs["pixels"][None], vit.patch)[0] for call in calls])
        ids = torch.cat([grid_ids(h, w, vit.side, device=patches.device) for h, w, _ in cells])
        counts = [n for _, _, n in cells]
        tokens = self._model.vit_tokens(patches, ids, counts)
        return [{"embeddings": mine} for mine in tokens.split(counts)]


def _fed(call: Call) -> tuple[str, Tensor]:
    """The one port of the backbone that has a value. Raises CallFailed for none or several."""
    fed = [(port, call.inputs[port]) for port in _KINDS if call.inputs.get(port) is not None]
    if len(fed) != 1:
        raise CallFailed(f"`{call.node}` takes a value at exactly one of {list(_KINDS)}, and got {[p for p, _ in fed]}")
    return fed[0]


def _had(call: Call, port: str, piece: Piece, states: States) -> Reused | None:
    """The rows of a call that others have computed; None for all of them."""
    match piece.kind:
        case "noised":
            return Reused(0, None)
        case "text":
            had = Reused(0, call.numbers(port)) if port == "token" else reused(call, port, "kv", states)
        case _:
            had = reused_block(call, port, "kv", piece.rows, states)
    return had if had.found < piece.rows else None


def _segment(call: Call, piece: Piece, rows: Tensor, tokens: Sequence[int] | None) -> Segment:
    text = piece.kind == "text"
    return Segment(
        state=call.states["kv"],
        rows=rows,
        mode="causal" if text else "block",
        keep=piece.kind != "noised",
        advance=piece.tokens if text else 1,
        tokens=tokens,
    )


def _times(calls: Sequence[Call], pieces: Sequence[Piece], rows: Rows, device: torch.device) -> Tensor:
    """The time of every gen row, or a single one if all are equal; a clean picture's time is 0."""
    times = [float(c.params["time"]) if p.kind == "noised" else 0.0 for c, p in zip(calls, pieces, strict=True)]
    among = {t for t, p in zip(times, pieces, strict=True) if p.kind in ("noised", "clean")}
    if len(among) == 1:
        return torch.tensor([*among], dtype=torch.float32, device=device)
    return torch.tensor(times, dtype=torch.float32, device=device)[rows.latents]


def _sampled(logits: Tensor, calls: Sequence[Call], states: States) -> Tensor:
    """int64 `[K]`. A token's noise is determined by the call's seed and the length of the sequence before it."""
    temperatures = [float(call.params["temperature"]) for call in calls]
    if not any(temperatures):
        return logits.argmax(-1)
    on: dict[str, Any] = {"device": logits.device}
    params = SamplingParams(
        seed=torch.tensor([call.seed for call in calls], **on),
        position=torch.tensor([states.length(call.states["kv"]) for call in calls], **on),
        temperature=torch.tensor(temperatures, **on),
        top_k=torch.tensor([int(call.params["top_k"]) for call in calls], **on),
        top_p=torch.tensor([float(call.params["top_p"]) for call in calls], **on),
    )
    return sample(logits, params)


def _bagel(context: LoadContext) -> Bagel:
    config = shared_config(context)
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype, "precision": context.precision}
    return context.once(
        Bagel,
        lambda name, seed: drawn(lambda: Bagel(config), seed, **on).pack(),
        lambda folder: load_bagel(folder, config, **on, progress=context.progress).pack(),
    )
