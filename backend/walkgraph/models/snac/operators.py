"""SNAC's operator: each window of a stream of codes gives the sound of the frames that it settles."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, ChunkInfo, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.models.snac.model import Snac, counter_noise, load_snac, precision, random_snac

_AHEAD = 2
"""Frames after a frame that should be known before its sound is final, as in the published streaming."""
_WINDOW = 4
"""Frames of the published window."""
_EVERY, _ENDS = (1, 2, 4, 8, 16, 32), (1, 4)
_READY = {
    (4, (1, 2)): _EVERY,
    (2, (0, 1)): _EVERY,
    (4, (0, 2)): _ENDS,
    (3, (1, 3)): _ENDS,
    (4, (2, 4)): _ENDS,
}
"""(frames, kept frames) -> batch sizes: windows inside a stream; the first window with and without a ramp; the last
one, with the rest of a stride or closing."""


class _Window(NamedTuple):
    first: int
    """Items before the window's first whole frame."""
    frame: int
    """Frames of the stream before the window."""
    frames: int
    keep: tuple[int, int]
    """Frames of the window that it settles; empty if start and stop are equal."""


class Decoder(Operator):
    """Turns windows of codes into sound, each frame once. A chunk settles all frames that have come but the last two
    (at least one, of two or more); the last chunk settles the rest. Without `flush` the first frame and the last two
    give no sound. Codes after the last whole frame are dropped.

    Its noise depends on the run's seed and the place in the stream, so overlapping windows get the same noise.
    """

    options: ClassVar[tuple[str, ...]] = ("tf32",)

    def __init__(self, model: Snac, device: torch.device, *, tf32: bool) -> None:
        self._model, self._device, self._tf32 = model, device, tf32
        self._codes = model.config.frame_codes

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        on: dict[str, Any] = {"device": context.device}
        model = context.once(
            Snac,
            lambda name, seed: random_snac(name, seed, **on),
            lambda folder: load_snac(folder, **on, progress=context.progress),
        )
        return cls(model, context.device, tf32=bool(context.options.get("tf32", False)))

    def bucket(self, call: Call) -> Hashable:
        window = self._window(call)
        return window.frames, window.keep

    def rows(self, call: Call) -> int:
        return len(call.inputs["codes"])

    def examples(self) -> Sequence[Example]:
        return tuple(
            Example(inputs={"codes": torch.zeros(frames * self._codes, dtype=torch.int64)}, params={"flush": True})
            for frames in range(1, _WINDOW + 1)
        )

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        window = self._window(call)
        codes = call.inputs["codes"][window.first : window.first + window.frames * self._codes]
        return {"codes": codes, "frame": window.frame, "window": (window.frames, window.keep)}

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return tuple(
            {"codes": torch.zeros(window[0] * self._codes, dtype=torch.int64), "frame": 0, "window": window}
            for window in _READY
        )

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        """The spec of a window: its number of frames, and which of them it keeps."""
        if inputs.keys() != {"codes", "frame", "window"}:
            return None
        frames, keep = window = inputs["window"]
        samples = (keep[1] - keep[0]) * self._model.config.frame_samples
        return StepSpec(
            inputs={"codes": Row((frames * self._codes,), torch.int64), "frame": Row((), torch.int64)},
            outputs={"waveform": Row((samples,), torch.float32)},
            variant=keep,
            sizes=_READY.get(window, _ENDS),
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        keep = cast("tuple[int, int]", batch.variant)
        sound = self._decode(batch.inputs["codes"], keep, batch.seed, batch.inputs["frame"])
        return StepOutputs({"waveform": sound})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        windows = [self._window(call) for call in calls]
        start, stop = windows[0].keep
        if start == stop:
            return [{"waveform": torch.zeros(0, device=self._device)} for _ in calls]
        length = windows[0].frames * self._codes
        codes = [c.inputs["codes"][w.first : w.first + length] for c, w in zip(calls, windows, strict=True)]
        seed = torch.tensor([call.seed for call in calls], device=self._device)
        frame = torch.tensor([window.frame for window in windows], device=self._device)
        return [{"waveform": sound} for sound in self._decode(torch.stack(codes), (start, stop), seed, frame)]

    def _decode(self, codes: Tensor, keep: tuple[int, int], seed: Tensor, frame: Tensor) -> Tensor:
        """`[B, samples kept]`"""
        with precision(tf32=self._tf32):
            return self._model.decode(codes, keep, counter_noise(self._model.config, seed, frame))

    def _window(self, call: Call) -> _Window:
        codes = call.inputs["codes"]
        if codes.dim() != 1 or codes.dtype != torch.int64:
            raise CallFailed(f"`{call.node}.codes` takes int64 codes `[n]`, and got {list(codes.shape)}", "codes")
        # A value that is not a chunk is a whole stream.
        info = call.chunks.get("codes") or ChunkInfo(0, first=True, last=True, valid=len(codes))
        first = -info.start % self._codes
        frame = (info.start + first) // self._codes
        frames = max(0, len(codes) - first) // self._codes
        flush = bool(call.params["flush"])
        before = _settled((info.start + info.context) // self._codes, last=False, flush=flush)
        after = _settled(frame + frames, last=info.last, flush=flush)
        if before >= after:
            return _Window(first, frame, frames, (0, 0))
        if before < frame:
            message = f"`{call.node}` needs windows that hold the {_AHEAD + 1} frames before their new ones"
            raise CallFailed(f"{message}; widen the stream's `window` or shorten its `stride`", "codes")
        return _Window(first, frame, frames, (before - frame, after - frame))


def _settled(frames: int, *, last: bool, flush: bool) -> int:
    """The number of frames that are settled (or will never be) once `frames` have come."""
    if not flush:
        return max(1, frames - _AHEAD)
    return frames if last else max(frames - _AHEAD, min(frames - 1, 1), 0)
