"""Orpheus's operators: the prompt of a voice's turn, and the Llama that answers it with audio codes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import PRECISION, Capture, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row
from walkgraph.architectures.language.backbone import LanguageBackbone, loaded_model
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.models.orpheus.config import OrpheusConfig, SpeechTokens, read_orpheus
from walkgraph.models.orpheus.presets import orpheus_config


class Prompt(Operator):
    """A human's turn `voice: text`, and the start of the answer's speech. `begin` also puts the text's begin token in
    front, as the published package does by tokenizing its own prompt again."""

    pure: ClassVar[bool] = True

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
        t = self._tokens
        said = self._vocabulary.encode(f"{call.params['voice']}: {call.text('text')}")
        begin = [t.bos] if call.params["begin"] else []
        return [*begin, t.start_of_human, t.bos, *said, t.eos, t.end_of_human, t.start_of_ai, t.start_of_speech]


class Backbone(LanguageBackbone):
    """Appends a prompt or one token, and answers with the next one and its audio code."""

    options: ClassVar[tuple[str, ...]] = (PRECISION,)
    outputs: ClassVar[Mapping[str, Row]] = {**LanguageBackbone.outputs, "code": Row((1,), torch.int64)}

    def __init__(
        self,
        model: LanguageModel,
        tokens: SpeechTokens,
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
    ) -> None:
        super().__init__(model, (tokens.end_of_speech,), device, dtype, capture)
        self._tokens = tokens

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config = _config(context)
        model = loaded_model(context, config.llm)
        return cls(model, config.tokens, context.device, context.dtype, context.capture)

    def ends(self, token: Tensor, fed: Tensor) -> Tensor:
        return token == self._tokens.end_of_speech

    def answers(self, token: Tensor, fed: Tensor) -> dict[str, Tensor]:
        """A token that is not an audio token gets a code by the same rule."""
        made, t = super().answers(token, fed), self._tokens
        return {**made, "code": (made["token"] - t.audio_base).remainder(t.codebook)}


def _config(context: LoadContext) -> OrpheusConfig:
    return context.once(OrpheusConfig, lambda name, seed: orpheus_config(name), read_orpheus)
