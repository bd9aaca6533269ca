"""The vocoder's operator: each chunk of a stream of frames gives the sound that it settles."""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, CallFailed, ChunkInfo, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.layers.rows import table_rows
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav, StreamState
from walkgraph.models.qwen3_omni.vocoder.weights import vocoder_of

_SLOTS = StreamState._fields
_FIRST, _FRAMES = 5, 10
"""Frames of the first chunk and of the others in the bundled graph."""
_SIZES = (1, 2, 4, 8, 16)


class _Chunk(NamedTuple):
    start: int
    """Frames of the stream before its new ones."""
    codes: Tensor
    """`[n, K]`: the new frames."""


class Code2wav(Operator):
    """Turns chunks of frames into sound, each sample once. Frames that a chunk repeats as context are not read again:
    what the sound needs of them is in the states.

    A stream's sound ends `ahead` samples before its last frame does, as in the published decoding of a whole stream.
    """

    def __init__(self, model: Code2Wav) -> None:
        self._model = model
        self._config = model.config
        weight = model.code_embedding.weight
        self._device, self._dtype = weight.device, weight.dtype
        self._specs = lru_cache(maxsize=64)(self._spec)
        """They are asked for with every chunk, and take long to make."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(vocoder_of(context))

    def bucket(self, call: Call) -> Hashable:
        chunk = self._chunk(call)
        return len(chunk.codes), chunk.start == 0

    def rows(self, call: Call) -> int:
        return len(call.inputs["codes"])

    def examples(self) -> Sequence[Example]:
        return tuple(Example(inputs={"codes": self._silent(frames)}) for frames in (_FIRST, _FRAMES))

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        chunk = self._chunk(call)
        return {"codes": chunk.codes, "start": chunk.start}

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        begun = {"codes": self._silent(_FIRST), "start": 0}
        return begun, {"codes": self._silent(_FRAMES), "start": _FIRST}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        """The spec of a chunk: its number of frames, and whether it begins a stream."""
        if inputs.keys() != {"codes", "start"} or not len(inputs["codes"]):
            return None
        return self._specs(len(inputs["codes"]), inputs["start"] == 0)

    def _spec(self, frames: int, first: bool) -> StepSpec:
        shapes = self._model.state_shapes
        return StepSpec(
            inputs={"codes": Row((frames, self._config.groups), torch.int64), "start": Row((), torch.int64)},
            outputs={"waveform": Row((self._samples(frames, first=first),), torch.float32)},
            tensors={slot: Row(shape, self._dtype) for slot, shape in zip(_SLOTS, shapes, strict=True)},
            variant=first,
            sizes=_SIZES,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        codes, rows, first = batch.inputs["codes"], batch.rows.long(), bool(batch.variant)
        state = StreamState(**{slot: batch.tensors[slot] for slot in _SLOTS})
        tails = state.tails.new_zeros(len(rows), state.tails.shape[1]) if first else table_rows(state.tails, rows)
        before, known = StreamState(state.window, tails), self._known(codes)
        sound, after = self._model.decode(known, batch.inputs["start"], before, first=first, rows=rows)
        state.tails.index_copy_(0, rows, after.tails)
        return StepOutputs({"waveform": sound}, _sound(codes, known, sound))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        chunks = [self._chunk(call) for call in calls]
        first = chunks[0].start == 0
        if not len(chunks[0].codes):
            return [{"waveform": torch.zeros(0, device=self._device)} for _ in calls]
        codes = torch.stack([chunk.codes for chunk in chunks])
        start = torch.tensor([chunk.start for chunk in chunks], device=self._device)
        before = self._model.fresh(len(calls)) if first else self._before(calls, states)
        known = self._known(codes)
        sound, after = self._model.decode(known, start, before, first=first)
        for call, *rest in zip(calls, *after, strict=True):
            for slot, value in zip(_SLOTS, rest, strict=True):
                # A copy: a view would keep the states of the whole batch alive.
                states.put(call.states[slot], value.clone())
        good = _sound(codes, known, sound)
        return [{"waveform": mine, FINITE: fine} for mine, fine in zip(sound, good, strict=True)]

    def _before(self, calls: Sequence[Call], states: States) -> StreamState:
        return StreamState(*(torch.stack([self._kept(call, slot, states) for call in calls]) for slot in _SLOTS))

    def _kept(self, call: Call, slot: str, states: States) -> Tensor:
        kept = states.tensor(call.states[slot])
        if kept is None:
            message = (
                f"`{call.node}` got a later chunk of a stream, and its state `{slot}` holds nothing of the ones before"
            )
            raise CallFailed(f"{message}; give the state the scope of the run", "codes")
        return kept

    def _chunk(self, call: Call) -> _Chunk:
        codes = call.inputs["codes"]
        groups, most = self._config.groups, self._config.codebook
        if codes.dim() != 2 or codes.shape[1] != groups or codes.dtype != torch.int64:
            got = f"{str(codes.dtype).removeprefix('torch.')} {list(codes.shape)}"
            message = f"`{call.node}.codes` takes int64 codes `[n, {groups}]`, and got {got}"
            raise CallFailed(message, "codes", code="invalid_input")
        if codes.device.type == "cpu" and codes.numel() and not _within(codes, most):
            message = f"`{call.node}.codes` takes codes from 0 to {most - 1}, and got others"
            raise CallFailed(message, "codes", code="invalid_input")
        # A value that is not a chunk is a whole stream.
        info = call.chunks.get("codes") or ChunkInfo(0, first=True, last=True, valid=len(codes))
        return _Chunk(info.start + info.context, codes[info.context :])

    def _known(self, codes: Tensor) -> Tensor:
        """Codes within the table; on a device others are found only afterwards."""
        return codes.clamp(0, self._config.codebook - 1)

    def _samples(self, frames: int, *, first: bool) -> int:
        return frames * self._config.frame_samples - (self._config.ahead if first else 0)

    def _silent(self, frames: int) -> Tensor:
        return torch.zeros(frames, self._config.groups, dtype=torch.int64)


def _within(codes: Tensor, most: int) -> bool:
    least, largest = codes.aminmax()
    return int(least) >= 0 and int(largest) < most


def _sound(codes: Tensor, known: Tensor, sound: Tensor) -> Tensor:
    """bool `[B]`: codes that exist, and samples that are numbers; they are cut to [-1, 1], so their sum is one too."""
    return codes.eq(known).flatten(1).all(1) & sound.sum(1).isnan().logical_not()
