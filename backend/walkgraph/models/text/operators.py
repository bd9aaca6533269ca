"""Text in and out, through the tokenizer in a weight set's folder.

Random weights have no tokenizer: there a token is a byte, and the configuration names the special ones.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from walkgraph import plugins
from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar, plain_text
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.checkpoints.chat_template import ChatTemplate, SpecialToken, render, text_of
from walkgraph.checkpoints.known_templates import template_of
from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import Conversation
from walkgraph.layers.sampling import scored
from walkgraph.models.text.components import MOST_SCORED

_CUT = "\ufffd"
_LONGEST_CHARACTER = 4
"""The most tokens of one character, as a token holds at least a byte."""


class TextOperator(Operator):
    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        if Vocabulary not in context.shared:
            context.shared[Vocabulary] = _vocabulary(context)
        return cls(context.shared[Vocabulary])


class Tokenizer(TextOperator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        ids = self.vocabulary.encode(call.text("text"))
        return [self.vocabulary.bos, *ids, self.vocabulary.eos] if call.params["wrap"] else ids


class CountTokens(TextOperator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"count": len(self.vocabulary.encode(call.text("text")))} for call in calls]


class ChatPrompt(TextOperator):
    pure: ClassVar[bool] = True

    def __init__(self, vocabulary: Vocabulary, folder: Path | None) -> None:
        super().__init__(vocabulary)
        self._folder = folder
        self._templates: dict[str, ChatTemplate] = {}

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        found = Tokenizer.load(context)
        return cls(found.vocabulary, context.folder if context.random is None else None)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._prompt(call) for call in calls]

    def _prompt(self, call: Call) -> Outputs:
        messages = call.inputs["messages"]
        if not isinstance(messages, Conversation):
            raise CallFailed(f"`{call.node}` takes a conversation", "messages", code="invalid_input")
        name = str(call.params["template"])
        try:
            if name not in self._templates:
                self._templates[name] = template_of(self._folder, name)
            pieces = render(self._templates[name], messages, thinking=bool(call.params["thinking"]))
        except InvalidInput as error:
            place = f" (`{error.pointer}` of the conversation)" if error.pointer else ""
            raise CallFailed(f"`{call.node}`: {error}{place}", "messages", code="invalid_input") from None
        plain = [piece if isinstance(piece, SpecialToken) else plain_text(piece) for piece in pieces]
        ids = self.vocabulary.encode_pieces(plain)
        return {"ids": torch.tensor(ids, dtype=torch.int64), "text": text_of(plain)}


class BeginAnswer(TextOperator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"token": torch.tensor([self.vocabulary.bos])} for _ in calls]


class EndAnswer(TextOperator):
    """The end token, preceded by the last token if that one doesn't end the text (it was cut at its length)."""

    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": self._ids(call.inputs["token"])} for call in calls]

    def _ids(self, token: torch.Tensor) -> torch.Tensor:
        last, eos = token.tolist(), self.vocabulary.eos
        return torch.tensor(last if last == [eos] else [*last, eos], dtype=torch.int64)


class Logprobs(Operator):
    """The chosen token, then the likeliest ones, each with its log-probability."""

    def rows(self, call: Call) -> int:
        return 1

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["logits"].shape, call.inputs["logits"].dtype

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"token": torch.zeros(1, dtype=torch.int64), "logits": torch.arange(64.0)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        logits = torch.stack([call.inputs["logits"] for call in calls])
        tokens = torch.cat([call.inputs["token"] for call in calls])
        return [{"scored": mine} for mine in scored(logits, tokens, _likeliest(logits))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        logits = inputs.get("logits")
        if not isinstance(logits, Tensor) or logits.dim() != 1:
            return None
        return StepSpec(
            inputs={"token": Row((1,), torch.int64), "logits": Row(tuple(logits.shape), logits.dtype)},
            outputs={"scored": Row((1 + _likeliest(logits), 2), torch.float32)},
            pure=True,
            invariant=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        logits = batch.inputs["logits"]
        return StepOutputs({"scored": scored(logits, batch.inputs["token"][:, 0], _likeliest(logits))})


def _likeliest(logits: Tensor) -> int:
    return min(MOST_SCORED, logits.shape[-1])


class Detokenizer(TextOperator):
    """Text as it comes: the text that a token adds to that of the tokens before it, once no character is incomplete.

    The state holds the number of its ids that are text already, then the ids: those last shown, which a decoder may
    need to place a space, and those waiting for the rest of a character.
    """

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._text(call, states), **self._logprobs(call)} for call in calls]

    def _logprobs(self, call: Call) -> Outputs:
        pairs = call.inputs.get("scored")
        if pairs is None:
            return {}
        (chosen, *likeliest) = pairs[: 1 + int(call.params["top_logprobs"])].tolist()
        line = {**self._entry(*chosen), "top_logprobs": [self._entry(*one) for one in likeliest]}
        return {"logprobs": json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"}

    def _entry(self, token: float, logprob: float) -> dict[str, Any]:
        data = self.vocabulary.token_bytes(int(token))
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

    def _text(self, call: Call, states: States) -> str:
        kept = states.tensor(call.states["tail"])
        shown, *before = kept.tolist() if kept is not None else [0]
        ids = [*before, *call.inputs["token"].tolist()]
        old, new = self.vocabulary.decode(ids[:shown]), self.vocabulary.decode(ids)
        if new.endswith(_CUT) and len(ids) - shown < _LONGEST_CHARACTER:
            states.put(call.states["tail"], _numbers([shown, *ids]))
            return ""
        states.put(call.states["tail"], _numbers([len(ids) - shown, *ids[shown:]]))
        return new[len(old) :]


def _numbers(values: Sequence[int]) -> Tensor:
    """`[n]`, by NumPy, whose calls are short."""
    return torch.from_numpy(np.array(values, np.int64))


def _vocabulary(context: LoadContext) -> Vocabulary:
    if context.random is not None:
        text_edges = plugins.load(plugins.MODELS, f"{context.family}.presets", "text_edges")
        return Bytes(*text_edges(context.random[0]))
    return trained(context)
