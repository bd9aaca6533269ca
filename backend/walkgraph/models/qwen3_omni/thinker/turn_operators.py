"""The marks of a conversation's turns, which a client's text can't contain."""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import torch

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.vocabulary import Bytes, Vocabulary, trained
from walkgraph.checkpoints.chat_template import Thinking
from walkgraph.models.qwen3_omni.config import OmniConfig, read_omni
from walkgraph.models.qwen3_omni.presets import omni_config, text_edges
from walkgraph.models.qwen3_omni.thinker.config import Marks

_THINKING = Thinking("<think>", "</think>", ("<tool_response>", "</tool_response>"))
"""As in the published template, which leaves out what was thought before a later question."""


class TurnMarker(Operator):
    """The beginning of a turn, its end, or with a text the whole turn."""

    pure: ClassVar[bool] = True

    def __init__(self, marks: Marks, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._begin = {
            "system": [marks.im_start, marks.system, marks.newline],
            "user": [marks.im_start, marks.user, marks.newline],
            "assistant": [marks.im_start, marks.assistant, marks.newline],
        }
        self._end = [marks.im_end, marks.newline]

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config = context.once(OmniConfig, lambda name, seed: omni_config(name), read_omni)
        return cls(config.thinker.marks, vocabulary_of(context))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        # By NumPy, whose calls are short.
        return [{"ids": torch.from_numpy(np.array(self._fitting(call), np.int64))} for call in calls]

    def _fitting(self, call: Call) -> list[int]:
        """Raises CallFailed for more tokens than may be."""
        ids, most = self._ids(call), int(call.params.get("context", 0))
        if 0 < most < len(ids):
            raise CallFailed(
                f"`{call.node}` takes at most {most} tokens, and these are {len(ids)}; send less, or raise `context`",
                "text",
                code="invalid_input",
            )
        return ids

    def _ids(self, call: Call) -> list[int]:
        mark, given = str(call.params["mark"]), call.inputs.get("text")
        if mark == "end":
            return self._ended(call)
        if given is None:
            return self._begin[mark]
        text = call.text("text")
        if mark == "assistant":
            _, text = _THINKING.apart(text)
        return [*self._begin[mark], *self._vocabulary.encode(text), *self._end]

    def _ended(self, call: Call) -> list[int]:
        """An answer that was cut short ends with a token that nobody has appended yet."""
        token, said = (call.inputs.get(port) for port in ("token", "said"))
        if said is not None and int(said) < 0:
            return self._end[1:]
        last = [] if token is None else [int(token)]
        return [*(one for one in last if one != self._end[0]), *self._end]


def vocabulary_of(context: LoadContext) -> Vocabulary:
    """The vocabulary of a weight set, read once for all of its nodes."""
    if Vocabulary not in context.shared:
        drawn = context.random
        context.shared[Vocabulary] = trained(context) if drawn is None else Bytes(*text_edges(drawn[0]))
    return context.shared[Vocabulary]
