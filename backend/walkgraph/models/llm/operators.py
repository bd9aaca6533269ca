"""The operators of plain language models: the tokens of a text that is to be continued, and the model itself."""

from collections.abc import Sequence
from typing import ClassVar, Self

import torch

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.language.backbone import LanguageBackbone, loaded_model
from walkgraph.architectures.precision import PRECISION
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.models.llm.config import LlmConfig, read_llm
from walkgraph.models.llm.precision import at_precision
from walkgraph.models.llm.presets import llm_config, text_edges


class Prompt(Operator):
    """The tokens of a text. Names of special tokens in it are text like any other."""

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
        text = call.inputs["text"]
        if not isinstance(text, str):
            raise CallFailed(f"`{call.node}` takes text", "text", code="invalid_input")
        # A lone surrogate is not a character and has no bytes.
        ids = self._vocabulary.prompt(text.encode(errors="replace").decode())
        if not ids:
            raise CallFailed(
                f"`{call.node}` got an empty text; give at least one character", "text", code="invalid_input"
            )
        return ids


class Backbone(LanguageBackbone):
    """Appends a text or one token, and answers with the next token."""

    options: ClassVar[tuple[str, ...]] = (PRECISION,)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config = context.once(LlmConfig, lambda name, seed: llm_config(name), read_llm)
        model = at_precision(loaded_model(context, config.llm), context)
        return cls(model, config.stops, context.device, context.dtype, context.capture)
