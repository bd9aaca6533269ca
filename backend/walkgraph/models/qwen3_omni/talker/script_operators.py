"""The words of a text that is said as it is given: one for each frame of the speech.

The talker reads a word of an answer with each frame, and padding once the answer has ended. Here the whole answer is
there before the first frame.
"""

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.vocabulary import Vocabulary
from walkgraph.models.qwen3_omni.thinker.turn_operators import vocabulary_of


class Script(Operator):
    pure: ClassVar[bool] = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(vocabulary_of(context))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": self._ids(call)} for call in calls]

    def _ids(self, call: Call) -> Tensor:
        """int64 `[frames, 1]`, -1 after the last word. Raises CallFailed for a text with more words than frames."""
        words, frames = self._vocabulary.encode(call.text("text")), int(call.params["frames"])
        if len(words) > frames:
            raise CallFailed(
                f"the text has {len(words)} tokens, and its speech at most {frames} frames, each of which says one; "
                "raise `max_frames`, or say it in parts",
                "text",
                code="invalid_input",
            )
        ids = torch.full((frames, 1), -1, dtype=torch.int64)
        ids[: len(words), 0] = torch.tensor(words, dtype=torch.int64)
        return ids
