"""The operator of the audio encoder: sounds of any length, many in one forward."""

from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.sounds import waveform_of
from walkgraph.models.qwen3_omni.hearing.captured import CapturedChunks, CapturedWindows
from walkgraph.models.qwen3_omni.hearing.model import CHUNKS
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder as Model
from walkgraph.models.qwen3_omni.hearing.spectra import HOP, LEAST, RATE, Spectra, frames_of
from walkgraph.models.qwen3_omni.hearing.weights import audio_encoder_of

_PORT = "waveform"


class AudioEncoder(Operator):
    """Numbers that are not finite give embeddings that are not, which the engine reports for their call alone."""

    pure: ClassVar[bool] = True

    def __init__(self, model: Model, capture: Capture | None) -> None:
        self._model, self._spectra = model, Spectra(model.config.mels)
        self._short, self._few = CapturedWindows(model, capture), CapturedChunks(model, capture)
        self._none = model.proj2.weight.new_empty(0, model.config.out)
        """The embeddings of sound that is skipped."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        # In float32, attention by bounds on the device computes all pairs of rows: a plain forward is faster.
        return cls(audio_encoder_of(context), None if context.dtype == torch.float32 else context.capture)

    def rows(self, call: Call) -> int:
        wave = _sound(call)
        return 0 if wave is None else self._model.config.tokens(frames_of(len(wave)))

    def examples(self) -> Sequence[Example]:
        """One without a whole chunk, and one for each number of chunks that are convolved at once."""
        whole = [count * self._model.config.chunk * HOP for count in CHUNKS]
        return tuple(Example(inputs={_PORT: torch.zeros(samples)}) for samples in (RATE // 2, *whole))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        waves = [_sound(call) for call in calls]
        heard = [wave for wave in waves if wave is not None]
        embedded = iter(self._model(self._spectra(heard), self._short, self._few) if heard else ())
        return [{"embeddings": self._none if wave is None else next(embedded)} for wave in waves]


def _sound(call: Call) -> Tensor | None:
    """The sound of a call; None if it is too short, and the node says to skip such sound."""
    wave = waveform_of(call, _PORT)
    if len(wave) < LEAST:
        if call.params.get("short") == "skip":
            return None
        message = f"`{call.node}` takes sound of at least {LEAST} samples at {RATE} Hz, and this has {len(wave)}"
        raise CallFailed(f"{message}; record more of it", _PORT, code="invalid_input")
    return wave
