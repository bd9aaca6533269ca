"""Orpheus's operators: the prompt of a voice's turn, and the Llama that answers it with audio codes.

A run's `seen` state counts its tokens for the penalties (see `layers.sampling.count`): the prompt's when they are read,
a spoken one when it comes back as `token`. A token's noise depends on the call's seed and the number of tokens before
it, so `forward` and `step` speak the same. A prefix shared with earlier prompts is counted but not computed again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Segment, States, reused
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.captured_prompts import CapturedPrompts
from walkgraph.architectures.decoding import Sampling, step_sampling
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.layers.sampling import count, sample
from walkgraph.layers.sampling_params import SamplingParams
from walkgraph.models.orpheus.config import OrpheusConfig, SpeechTokens, read_orpheus
from walkgraph.models.orpheus.llama import Llama
from walkgraph.models.orpheus.presets import orpheus_config
from walkgraph.models.orpheus.prompts import SIZES, LlamaPrompts
from walkgraph.models.orpheus.weights import load_llama

_TOKEN = Row((1,), torch.int64)
_SAMPLING: Sampling = {
    "temperature": ("temperature", torch.float32),
    "top_k": ("top_k", torch.int64),
    "top_p": ("top_p", torch.float32),
    "min_p": ("min_p", torch.float32),
    "repetition_penalty": ("repetition", torch.float32),
    "presence_penalty": ("presence", torch.float32),
    "frequency_penalty": ("frequency", torch.float32),
}
_EXAMPLE: Mapping[str, Scalar] = {
    "temperature": 0.6,
    "top_k": 0,
    "top_p": 0.8,
    "min_p": 0.0,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class Prompt(Operator):
    """A human's turn `voice: text`, and the start of the answer's speech. `begin` also puts the text's begin token in
    front, as the published package does by tokenizing its own prompt again."""

    def __init__(self, vocabulary: Vocabulary, tokens: SpeechTokens) -> None:
        self._vocabulary, self._tokens = vocabulary, tokens

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        tokens = _config(context).tokens
        if context.random is not None:
            return cls(Bytes(tokens.bos, tokens.eos), tokens)
        return cls(trained(context, plain=True), tokens)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        text, t = call.inputs["text"], self._tokens
        if not isinstance(text, str):
            raise CallFailed(f"`{call.node}` takes text", "text", code="invalid_input")
        # A lone surrogate is not a character and has no bytes.
        said = self._vocabulary.encode(f"{call.params['voice']}: {text}".encode(errors="replace").decode())
        begin = [t.bos] if call.params["begin"] else []
        return [*begin, t.start_of_human, t.bos, *said, t.eos, t.end_of_human, t.start_of_ai, t.start_of_speech]


class Backbone(Operator):
    """Appends a prompt or one token, and answers with the next one."""

    def __init__(
        self,
        model: Llama,
        tokens: SpeechTokens,
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
    ) -> None:
        self._model, self._tokens, self._device, self._dtype = model, tokens, device, dtype
        self._vocab = model.config.vocab
        self._prompts = CapturedPrompts(LlamaPrompts(model), capture)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_llama(context), _config(context).tokens, context.device, context.dtype, context.capture)

    def caches(self) -> Mapping[str, CacheShape]:
        llm = self._model.config
        return {
            "kv": CacheShape(layers=llm.layers, kv_heads=llm.kv_heads, head_dim=llm.head_dim, dtype=self._dtype),
        }

    def rows(self, call: Call) -> int:
        return len(_fed(call)[1])

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        port, value = _fed(call)
        return [replace(call, inputs={port: part}) for part in value.split(rows)]

    def examples(self) -> Sequence[Example]:
        start = torch.tensor([self._tokens.bos, self._tokens.start_of_speech])
        return (
            Example(inputs={"ids": start}, params=_EXAMPLE),
            Example(inputs={"token": start[1:]}, params={**_EXAMPLE, "temperature": 0.0}),
        )

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        fed = [_fed(call) for call in calls]
        whole = [len(value) for _, value in fed]
        given = torch.cat([value for _, value in fed])
        known = (given >= 0) & (given < self._vocab)
        ids = given.where(known, 0).split(whole)
        # A captured forward reads a short prompt faster than a plain one computes what remains after the cached prefix.
        short = self._prompts.enabled and sum(whole) <= SIZES[-1]
        had = [(0, call.numbers("ids")) if short else reused(call, "ids", "kv", states) for call in calls]
        there, tokens = zip(*had, strict=True)
        lengths = [n - had for n, had in zip(whole, there, strict=True)]
        rows = torch.arange(sum(lengths), device=self._device).split(lengths)
        attend = states.attend([_segment(*one) for one in zip(calls, rows, tokens, strict=True)])
        first = [states.position(call.states["kv"]) for call in calls]
        at = [place for begin, n in zip(first, lengths, strict=True) for place in range(begin, begin + n)]
        new = torch.cat([mine[had:] for mine, had in zip(ids, there, strict=True)])
        found = self._prompts.read(new, at, attend.causal())
        if found is not None:
            (logits,) = found
        else:
            ends = self._on_device(torch.tensor(lengths).cumsum(0) - 1)
            logits = self._model(new, self._on_device(torch.tensor(at)), attend, ends)
        states.commit(attend)
        counts = self._counted(calls, [port for port, _ in fed], ids, states)
        answers = self._answers(sample(logits, self._sampling(calls, states), counts))
        answers[FINITE] &= torch.stack([mine.all() for mine in known.split(whole)])
        return [{port: values[i] for port, values in answers.items()} for i in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        if inputs.get("token") is None or inputs.get("ids") is not None:
            return None
        return StepSpec(
            inputs={"token": _TOKEN},
            outputs={"token": _TOKEN, "code": _TOKEN, "stop": Row((), torch.bool)},
            params={name: dtype for name, (_, dtype) in _SAMPLING.items()},
            tensors={"seen": Row((self._vocab,), torch.int16)},
            appends={"kv": 1},
            advances={"kv": 1},
            invariant=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"token": torch.zeros(1, dtype=torch.int64)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        token, slot, seen = batch.inputs["token"][:, 0].clamp(min=0), batch.paged["kv"], batch.tensors["seen"]
        count(seen, batch.rows, token)
        logits = self._model.step(token, slot)
        answers = self._answers(sample(logits, step_sampling(batch, slot, _SAMPLING), seen, batch.rows))
        return StepOutputs({port: answers[port] for port in ("token", "code", "stop")}, answers[FINITE])

    def _answers(self, token: Tensor) -> dict[str, Tensor]:
        """Sampled tokens int64 `[K]` -> ports, each `[K, ...]`. A token that is not an audio token gets a code by the
        same rule."""
        t, given = self._tokens, token.clamp(min=0)[:, None]
        code = (given - t.audio_base).remainder(t.codebook)
        return {"token": given, "code": code, "stop": token == t.end_of_speech, FINITE: token >= 0}

    def _counted(self, calls: Sequence[Call], ports: Sequence[str], ids: Sequence[Tensor], states: States) -> Tensor:
        """int16 `[K, V]`: the calls' counts, with what they feed."""
        kept = [states.tensor(call.states["seen"]) for call in calls]
        blank = torch.zeros(self._vocab, dtype=torch.int16, device=self._device)
        counts = torch.stack([blank if one is None else one for one in kept])
        spoken = [i for i, port in enumerate(ports) if port == "token"]
        if spoken:
            count(counts, self._on_device(torch.tensor(spoken)), torch.cat([ids[i] for i in spoken]))
        for index, (port, mine) in enumerate(zip(ports, ids, strict=True)):
            if port == "ids":
                counts[index, mine] = counts[index, mine] | 1
        for call, mine in zip(calls, counts, strict=True):
            # A copy: a view would keep the whole batch's counts alive.
            states.put(call.states["seen"], mine.clone() if len(calls) > 1 else mine)
        return counts

    def _sampling(self, calls: Sequence[Call], states: States) -> SamplingParams:
        whole = [[call.seed, states.length(call.states["kv"])] for call in calls]
        seed, position = self._on_device(torch.tensor(whole)).unbind(1)
        # float64 represents the integers among them exactly.
        given = torch.tensor([[float(call.params[name]) for name in _SAMPLING] for call in calls], dtype=torch.float64)
        values = zip(_SAMPLING.values(), self._on_device(given).unbind(1), strict=True)
        return SamplingParams(seed, position, **{name: value.to(dtype) for (name, dtype), value in values})

    def _on_device(self, value: Tensor) -> Tensor:
        """Move to the device without waiting for it."""
        return value.to(self._device, non_blocking=True)


def _fed(call: Call) -> tuple[str, Tensor]:
    """The one port that has a value. Raises CallFailed for none or several."""
    fed = [(port, call.inputs[port]) for port in ("ids", "token") if call.inputs.get(port) is not None]
    if len(fed) != 1:
        raise CallFailed(f"`{call.node}` takes a value at exactly one of `ids` and `token`")
    port, value = fed[0]
    if value.dim() != 1 or not len(value) or (port == "token" and len(value) > 1):
        wanted = "one token `[1]`" if port == "token" else "token ids `[n]`, at least one"
        raise CallFailed(f"`{call.node}.{port}` takes {wanted}, and got {list(value.shape)}", port)
    return port, value


def _segment(call: Call, rows: Tensor, tokens: Sequence[int] | None) -> Segment:
    return Segment(state=call.states["kv"], rows=rows, mode="causal", advance=len(rows), tokens=tokens)


def _config(context: LoadContext) -> OrpheusConfig:
    return context.once(OrpheusConfig, lambda name, seed: orpheus_config(name), read_orpheus)


def _llama(context: LoadContext) -> Llama:
    config = _config(context).llm
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        Llama,
        lambda name, seed: drawn(lambda: Llama(config), seed, **on).pack(),
        lambda folder: load_llama(folder, config, **on, progress=context.progress),
    )
