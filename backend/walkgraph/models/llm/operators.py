"""The operators of plain language models: the tokens of a text that is to be continued, and the model itself."""

from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import PRECISION, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.language.backbone import LanguageBackbone, loaded_model
from walkgraph.architectures.language.precision import at_precision
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.models.llm.config import MOST_BIAS, MOST_BIASES, LlmConfig, read_llm
from walkgraph.models.llm.presets import llm_config, text_edges


class Prompt(Operator):
    """The tokens of a text. Names of special tokens in it are text like any other."""

    pure: ClassVar[bool] = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        if Vocabulary not in context.shared:
            drawn = context.random
            context.shared[Vocabulary] = trained(context) if drawn is None else Bytes(*text_edges(drawn[0]))
        return cls(context.shared[Vocabulary])

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        ids = self._vocabulary.prompt(call.text("text"))
        if not ids:
            raise CallFailed(
                f"`{call.node}` got an empty text; give at least one character", "text", code="invalid_input"
            )
        return ids


class Backbone(LanguageBackbone):
    """Appends a text or one token, and answers with the next token."""

    options: ClassVar[tuple[str, ...]] = (PRECISION,)
    tells_logits: ClassVar[bool] = True

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config = context.once(LlmConfig, lambda name, seed: llm_config(name), read_llm)
        model = at_precision(loaded_model(context, config.llm), context)
        return cls(model, config.stops, context.device, context.dtype, context.capture)


class LogitBias(Operator):
    """Pairs of a token and a number -> as many pairs as any request may have, so that all share one batch. Those that
    were not given have the token -1."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(context.once(LlmConfig, lambda name, seed: llm_config(name), read_llm).llm.vocab)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._whole(call) for call in calls]

    def _whole(self, call: Call) -> Outputs:
        pairs = call.inputs.get("pairs")
        if pairs is None:
            return {}
        fault = self._fault(pairs)
        if fault is not None:
            raise CallFailed(f"`{call.node}` {fault}", "pairs", code="invalid_input")
        whole = torch.full((MOST_BIASES, 2), -1.0)
        whole[: len(pairs)] = pairs
        return {"bias": whole}

    def _fault(self, pairs: torch.Tensor) -> str | None:
        if pairs.dim() != 2 or pairs.shape[1] != 2:
            return f"takes pairs of a token and a number, and got numbers of shape {list(pairs.shape)}"
        if len(pairs) > MOST_BIASES:
            return f"takes at most {MOST_BIASES} tokens, and got {len(pairs)}"
        tokens, values = pairs.float().unbind(1)
        if not ((tokens >= 0) & (tokens < self._vocab) & (tokens == tokens.round())).all():
            return f"takes tokens from 0 to {self._vocab - 1}"
        if len(tokens.unique()) < len(tokens):
            return "takes each token once"
        if not (values.abs() <= MOST_BIAS).all():
            return f"takes numbers from -{MOST_BIAS} to {MOST_BIAS}"
        return None
