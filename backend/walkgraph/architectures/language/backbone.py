"""The operator that serves a language model: it appends a prompt or one token, and answers with the next token.

A run's `seen` state counts its tokens for the penalties (see `layers.sampling.count`): the prompt's when they are read,
a generated one when it comes back as `token`. A token's noise depends on the call's seed and the number of tokens
before it, so `forward` and `step` generate the same. A prefix shared with earlier prompts is counted but not computed
again.

Shape letters: K calls, V vocabulary.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Placed, Reused, Reuses, States, reused
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.language.decoding import Sampling, step_sampling
from walkgraph.architectures.language.joined import (
    Unread,
    all_good,
    begins,
    counted,
    joined,
    known_rows,
    owners,
    segments,
    sequence_ends,
)
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import draw_language_model, load_language_model
from walkgraph.architectures.prompts.captured_prompts import CapturedPrompts, PromptAnswers, PromptForm
from walkgraph.architectures.prompts.paged_prompts import PagedPrompts
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.language import shardable
from walkgraph.errors import Refused
from walkgraph.layers.attention.few_attention import supported
from walkgraph.layers.sampling import biased, count, sample
from walkgraph.layers.sampling_params import SamplingParams

_TOKEN = Row((1,), torch.int64)
_SHORT = 64
"""Equal prompts of up to this many tokens are computed together: waiting would take longer."""
_AGAIN = 2048
"""Up to so many where a captured forward reads them."""
_LATER = 256
"""The most tokens of a call that may wait for the next one. Longer texts are better read early."""
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


class LanguageBackbone(Operator):
    """Families derive from it; their components may have outputs beside `token` and `stop`, and inputs that stand for
    tokens."""

    outputs: ClassVar[Mapping[str, Row]] = {"token": _TOKEN, "stop": Row((), torch.bool)}
    """The ports of a step, other than `logits`."""
    beside: ClassVar[frozenset[str]] = frozenset()
    """Outputs that follow from a call's inputs, without a forward."""
    fractions: ClassVar[bool] = False
    """True if positions may be fractions."""
    tells_logits: ClassVar[bool] = False
    """True if the component has the port `logits`, and the parameter of that name, by which a forward has it too."""

    def __init__(
        self,
        model: LanguageModel,
        stops: Collection[int],
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
    ) -> None:
        """`stops`: tokens that end a text."""
        self._model, self._device, self._dtype = model, device, dtype
        self._vocab = model.config.vocab
        logits = {"logits": Row((self._vocab,), dtype)} if self.tells_logits else {}
        self._ports: Mapping[str, Row] = {**self.outputs, **logits}
        """The ports of a step."""
        self._stops = torch.tensor(sorted(stops), dtype=torch.int64, device=device)
        llm = model.config
        served = supported(device, dtype, llm.heads, llm.kv_heads, llm.head_dim)
        self._prompts = CapturedPrompts(self.prompt_form(), capture if served else None)

    def prompt_form(self) -> PromptForm:
        """The form of captured prompts: answers with the logits of each, `[P, V]`."""

        def read(ids: Tensor, positions: Tensor, ends: Tensor, to: Placed) -> PromptAnswers:
            return PromptAnswers([self._model.read(ids, positions, ends, to)])

        return PagedPrompts(read, group=self._model.config.heads // self._model.config.kv_heads)

    def caches(self) -> Mapping[str, CacheShape]:
        llm = self._model.config
        return {
            "kv": CacheShape(layers=llm.layers, kv_heads=llm.kv_heads, head_dim=llm.head_dim, dtype=self._dtype),
        }

    def figures(self) -> Mapping[str, Tensor]:
        experts = self._model.distinct_experts
        return {} if experts is None else {"distinct_experts": experts}

    def fed(self, call: Call) -> tuple[str, Tensor]:
        """The port that has a value, `token` or another, and the ids int64 `[n]` that it appends. Raises CallFailed for
        none or several."""
        return fed_ids(call)

    def rows(self, call: Call) -> int:
        return len(self.fed(call)[1])

    def had(self, call: Call, port: str, states: Reuses) -> Reused:
        """The part of a call's tokens that is known."""
        if port == "token":
            return Reused(0, call.numbers(port))
        return reused(call, port, "kv", states, self.beside)

    def alike(self, call: Call) -> Hashable:
        """Equal prompts, so that one is computed for all, unless a captured forward reads it again at once."""
        ids = call.inputs.get("ids")
        if ids is None or len(ids) <= (_AGAIN if self._prompts.enabled else _SHORT):
            return None
        tokens = call.numbers("ids")
        return None if tokens is None else tuple(tokens)

    def defers(self, call: Call) -> bool:
        # Of several texts in a row, only the last one is answered.
        short = call.inputs.get("ids") is not None and self.rows(call) <= _LATER and not call.gives(self.beside)
        return short and self.alike(call) is None

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        port, value = self.fed(call)
        return [replace(call, inputs={**call.inputs, port: part}) for part in value.split(rows)]

    def examples(self) -> Sequence[Example]:
        start = torch.arange(2)
        return (
            Example(inputs={"ids": start}, params=_EXAMPLE),
            Example(inputs={"token": start[1:]}, params={**_EXAMPLE, "temperature": 0.0}),
        )

    def answers(self, token: Tensor, fed: Tensor) -> dict[str, Tensor]:
        """Sampled tokens int64 `[K]`, -1 for none, and the tokens that they follow, -1 after a prompt -> the ports'
        values, each `[K, ...]`."""
        return {"token": token.clamp(min=0)[:, None], "stop": self.ends(token, fed), FINITE: token >= 0}

    def ends(self, token: Tensor, fed: Tensor) -> Tensor:
        """bool `[K]`: true for a token that ends the text, and for one that follows such a token."""
        return self.is_end(token) | self.is_end(fed)

    def is_end(self, token: Tensor) -> Tensor:
        """int64 `[K]` -> bool `[K]`"""
        return (token[:, None] == self._stops).any(1)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        groups = joined(calls, "kv", "ids")
        made = [call for group in groups for call in group.calls]
        fed = [self.fed(call) for call in made]
        whole = [len(value) for _, value in fed]
        given = torch.cat([value for _, value in fed])
        known = (given >= 0) & (given < self._vocab)
        good_ids = given.where(known, 0)
        ids, owner = good_ids.split(whole), owners(groups, whole)
        had = known_rows(self.had, groups, [port for port, _ in fed], whole, states)
        outputs = [Outputs() for _ in calls]
        unread = [
            Unread(call, mine[one.found :] if one.found else mine, one.tokens)
            for call, mine, one in zip(made, ids, had, strict=True)
            if one.found < len(mine)
        ]
        logits = self.logits(unread, states) if unread else None
        counts = counted(groups, [port for port, _ in fed], ids, owner, states, self._vocab)
        if logits is None:
            return outputs
        ends = list(accumulate(len(group.calls) for group in groups))
        asked = [i for i, end in enumerate(ends) if had[end - 1].found < whole[end - 1]]
        last = [ends[i] - 1 for i in asked]
        sampled = [made[i] for i in last]
        good = all_good(known, owner, len(groups))
        if len(asked) < len(groups):
            # Not by a list: its copy to the device would wait for the work launched there.
            rows = self._on_device(torch.tensor(asked))
            counts, good = counts.index_select(0, rows), good.index_select(0, rows)
        # Rows are given so that the kernels are those of loops, which are compiled for few and many of them.
        rows = torch.arange(len(asked), dtype=torch.int32, device=self._device)
        tokens = sample(_with_bias(logits, sampled), _sampling_of(sampled, states, self._device), counts, rows)
        behind = list(accumulate(whole))
        follow = good_ids.index_select(0, self._on_device(torch.tensor([behind[i] - 1 for i in last])))
        answers = self.answers(tokens, _of_tokens(follow, [fed[i][0] for i in last]))
        answers[FINITE] &= good
        each = {port: values.unbind() for port, values in answers.items()}
        for row, i in enumerate(asked):
            outputs[groups[i].last].update({port: values[row] for port, values in each.items()})
            if sampled[row].params.get("logits"):
                # A copy: a captured forward writes the same logits again.
                outputs[groups[i].last]["logits"] = logits[row].clone()
        return outputs

    def logits(self, unread: Sequence[Unread], states: States) -> Tensor:
        """Append the calls' tokens -> `[S, V]` behind the last one of each sequence."""
        attend = states.attend(segments(unread, self._device))
        at = [
            int(place)
            for place, one in zip(begins(unread, states.place), unread, strict=True)
            for place in range(int(place), int(place) + len(one.ids))
        ]
        new = torch.cat([one.ids for one in unread])
        found = self._prompts.read(new, at, attend.causal())
        if found is not None:
            (logits,) = found.prompts
        else:
            ends = self._on_device(torch.tensor(sequence_ends(unread)))
            logits = self._model.read(new, self._on_device(torch.tensor(at)), ends, attend.placed())
        states.commit(attend)
        return logits

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        if inputs.get("token") is None or inputs.get("ids") is not None:
            return None
        bias = inputs.get("bias")
        return StepSpec(
            inputs={"token": _TOKEN, **({} if bias is None else {"bias": Row(tuple(bias.shape), torch.float32)})},
            outputs=self._ports,
            params={name: dtype for name, (_, dtype) in _SAMPLING.items()},
            tensors={"seen": Row((self._vocab,), torch.int16)},
            appends={"kv": 1},
            advances={"kv": 1},
            fractions=frozenset({"kv"} if self.fractions else ()),
            names={"kv": "token"},
            invariant=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"token": torch.zeros(1, dtype=torch.int64)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        token, slot, seen = batch.inputs["token"][:, 0].clamp(min=0), batch.paged["kv"], batch.tensors["seen"]
        count(seen, batch.rows, token)
        logits, bias = self._model.step(token, slot), batch.inputs.get("bias")
        wanted = logits if bias is None else biased(logits, bias)
        answers = self.answers(sample(wanted, step_sampling(batch, slot, _SAMPLING), seen, batch.rows), token)
        answers["logits"] = logits
        return StepOutputs({port: answers[port] for port in self._ports}, answers[FINITE])

    def _on_device(self, value: Tensor) -> Tensor:
        """Move to the device without waiting for it."""
        return value.to(self._device, non_blocking=True)


def _sampling_of(calls: Sequence[Call], states: States, device: torch.device) -> SamplingParams:
    # Of their own, as kernels are compiled anew for tensors that aren't aligned.
    seed = torch.tensor([call.seed for call in calls]).to(device, non_blocking=True)
    position = torch.tensor([states.length(call.states["kv"]) for call in calls]).to(device, non_blocking=True)
    # float64 represents the integers among them exactly.
    given = torch.tensor([[float(call.params[name]) for name in _SAMPLING] for call in calls], dtype=torch.float64)
    values = zip(_SAMPLING.values(), given.to(device, non_blocking=True).unbind(1), strict=True)
    return SamplingParams(seed, position, **{name: value.to(dtype) for (name, dtype), value in values})


def loaded_model(context: LoadContext, config: LanguageConfig) -> LanguageModel:
    """The model of a weight set, or the rank's shard of it, packed, shared by its operators. Raises `Refused` for one
    that can't be divided over so many shards."""
    shard, how = context.shard, context.expert_parallel
    if why := shardable(config, shard.count, how):
        raise Refused(f"the model can't be divided over {shard.count} ranks: {why}; choose another `tensor_parallel`")
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype, "precision": context.precision}
    return context.once(
        LanguageModel,
        lambda name, seed: draw_language_model(config, seed, shard, how, **on),
        lambda folder: load_language_model(folder, config, shard, how, **on, progress=context.progress),
    )


def fed_ids(call: Call) -> tuple[str, Tensor]:
    """The one of `ids` and `token` that has a value. Raises CallFailed for none or several."""
    fed = [(port, call.inputs[port]) for port in ("ids", "token") if call.inputs.get(port) is not None]
    if len(fed) != 1:
        raise CallFailed(f"`{call.node}` takes a value at exactly one of `ids` and `token`")
    port, value = fed[0]
    if value.dim() != 1 or not len(value) or (port == "token" and len(value) > 1):
        wanted = "one token `[1]`" if port == "token" else "token ids `[n]`, at least one"
        raise CallFailed(f"`{call.node}.{port}` takes {wanted}, and got {list(value.shape)}", port)
    return port, value


def _with_bias(logits: Tensor, calls: Sequence[Call]) -> Tensor:
    """The logits of a batch `[K, V]`, with what some of its calls add to theirs."""
    given = [call.inputs.get("bias") for call in calls]
    if not any(bias is not None for bias in given):
        return logits
    rows = zip(logits[: len(calls)].float(), given, strict=True)
    return torch.stack([row if bias is None else biased(row[None], bias[None])[0] for row, bias in rows])


def _of_tokens(last: Tensor, ports: Sequence[str]) -> Tensor:
    """The last number of each call, -1 for a prompt's."""
    if "ids" not in ports:
        return last
    return last.where(torch.tensor([port == "token" for port in ports]).to(last.device, non_blocking=True), -1)
