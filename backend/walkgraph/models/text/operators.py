"""Text in and out, through the tokenizer in a weight set's folder.

Random weights have no tokenizer: there a token is a byte, and the configuration names the special ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from walkgraph import plugins
from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.checkpoints.chat_template import ChatTemplate, SpecialToken, render, text_of
from walkgraph.checkpoints.known_templates import template_of
from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import Conversation

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
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": torch.tensor(self._ids(call), dtype=torch.int64)} for call in calls]

    def _ids(self, call: Call) -> list[int]:
        text = call.inputs["text"]
        if not isinstance(text, str):
            raise CallFailed(f"`{call.node}` takes text", "text", code="invalid_input")
        # A lone surrogate is not a character and has no bytes.
        ids = self.vocabulary.encode(text.encode(errors="replace").decode())
        return [self.vocabulary.bos, *ids, self.vocabulary.eos] if call.params["wrap"] else ids


class ChatPrompt(TextOperator):
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
        # A lone surrogate is not a character and has no bytes.
        plain = [p if isinstance(p, SpecialToken) else p.encode(errors="replace").decode() for p in pieces]
        ids = self.vocabulary.encode_pieces(plain)
        return {"ids": torch.tensor(ids, dtype=torch.int64), "text": text_of(plain)}


class BeginAnswer(TextOperator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"token": torch.tensor([self.vocabulary.bos])} for _ in calls]


class EndAnswer(TextOperator):
    """The end token, preceded by the last token if that one doesn't end the text (it was cut at its length)."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": self._ids(call.inputs["token"])} for call in calls]

    def _ids(self, token: torch.Tensor) -> torch.Tensor:
        last, eos = token.tolist(), self.vocabulary.eos
        return torch.tensor(last if last == [eos] else [*last, eos], dtype=torch.int64)


class Detokenizer(TextOperator):
    """Text as it comes: the text that a token adds to that of the tokens before it, once no character is incomplete.

    The state holds the number of its ids that are text already, then the ids: those last shown, which a decoder may
    need to place a space, and those waiting for the rest of a character.
    """

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._text(call, states)} for call in calls]

    def _text(self, call: Call, states: States) -> str:
        kept = states.tensor(call.states["tail"])
        shown, *before = kept.tolist() if kept is not None else [0]
        ids = [*before, *call.inputs["token"].tolist()]
        old, new = self.vocabulary.decode(ids[:shown]), self.vocabulary.decode(ids)
        if new.endswith(_CUT) and len(ids) - shown < _LONGEST_CHARACTER:
            states.put(call.states["tail"], torch.tensor([shown, *ids]))
            return ""
        states.put(call.states["tail"], torch.tensor([len(ids) - shown, *ids[shown:]]))
        return new[len(old) :]


def _vocabulary(context: LoadContext) -> Vocabulary:
    if context.random is not None:
        text_edges = plugins.load(plugins.MODELS, f"{context.family}.presets", "text_edges")
        return Bytes(*text_edges(context.random[0]))
    return trained(context)
