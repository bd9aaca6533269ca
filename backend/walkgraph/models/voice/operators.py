"""The speaker's operators: the units of a text, their frames, and the sound of these.

Noise depends on the call's seed and the number of frames before, so `forward` and `step` speak the same.

Shape letters: K calls, B rows of a step.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, CallFailed, ChunkInfo, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.language.decoding import Sampling, sampling_of, step_sampling
from walkgraph.layers.sampling import sample
from walkgraph.layers.sampling_params import SamplingParams
from walkgraph.models.voice.codec import Codec, Past
from walkgraph.models.voice.config import PAUSE
from walkgraph.models.voice.model import Speaker as Network
from walkgraph.models.voice.weights import codec_of, config_of, speaker_of
from walkgraph.models.voice.words import units_of

_MOST = 1024
"""The most units of a text."""
_PLACE, _AGE, _COUNT, _UNITS = range(4)
"""A row of `heard`: the index of the unit that is spoken, the frames of it so far, the number of units, and these."""
_HEARD = Row((_UNITS + _MOST,), torch.int64)
_TOKEN = Row((1,), torch.int64)
_SAMPLING: Sampling = {
    "temperature": ("temperature", torch.float32),
    "top_k": ("top_k", torch.int64),
    "top_p": ("top_p", torch.float32),
}
_EXAMPLE: Mapping[str, Scalar] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}


class Tokenizer(Operator):
    pure: ClassVar[bool] = True

    def __init__(self, units: Sequence[str]) -> None:
        self._ids = {unit: at for at, unit in enumerate(units)}

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(config_of(context).units)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"ids": self._units(call)} for call in calls]

    def _units(self, call: Call) -> Tensor:
        """int64 `[n]`. Raises CallFailed for a text with nothing to be spoken, and for one that is too long."""
        units = units_of(call.text("text"), self._ids)
        if not units:
            message = "the text has no words, letters or digits that can be spoken; write some of them"
            raise CallFailed(message, "text", code="invalid_input")
        if len(units) > _MOST:
            message = f"the text has {len(units)} words, letters of other words and pauses, and at most {_MOST} are "
            raise CallFailed(f"{message}spoken at once; say it in parts", "text", code="invalid_input")
        return torch.tensor([self._ids[unit] for unit in units], dtype=torch.int64)


class Speaker(Operator):
    """Speaks the units in turn. What is spoken is in the state `heard`, so that a step needs only the frame before."""

    def __init__(self, network: Network, device: torch.device, dtype: torch.dtype) -> None:
        self._network, self._config, self._device, self._dtype = network, network.config, device, dtype
        self._pause = self._config.units.index(PAUSE)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(speaker_of(context), context.device, context.dtype)

    def caches(self) -> Mapping[str, CacheShape]:
        sizes = self._config
        shape = CacheShape(layers=sizes.layers, kv_heads=sizes.kv_heads, head_dim=sizes.head_dim, dtype=self._dtype)
        return {"kv": shape}

    def bucket(self, call: Call) -> Hashable:
        return call.inputs.get("ids") is not None

    def examples(self) -> Sequence[Example]:
        begin = torch.tensor([self._config.vocab])
        return (Example(inputs={"ids": torch.arange(2)}), Example(inputs={"token": begin}, params=_EXAMPLE))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        with torch.inference_mode():
            return (self._hear if self.bucket(calls[0]) else self._speak)(calls, states)

    def _hear(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            ids = call.inputs["ids"]
            if ids.dim() != 1 or not 0 < len(ids) <= _MOST:
                message = f"`{call.node}.ids` takes 1 to {_MOST} units `[n]`, and got {list(ids.shape)}"
                raise CallFailed(message, "ids")
            heard = torch.zeros(_HEARD.shape, dtype=_HEARD.dtype, device=self._device)
            heard[_COUNT] = len(ids)
            heard[_UNITS : _UNITS + len(ids)] = ids.clamp(0, len(self._config.units) - 1)
            states.put(call.states["heard"], heard)
        begin = torch.tensor([self._config.vocab], device=self._device)
        return [{"token": begin} for _ in calls]

    def _speak(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        token = torch.cat([_frame(call) for call in calls])
        blank = torch.zeros(_HEARD.shape, dtype=_HEARD.dtype, device=self._device)
        kept = [states.tensor(call.states["heard"]) for call in calls]
        heard = torch.stack([blank if one is None else one for one in kept])
        rows = torch.arange(len(calls), device=self._device)
        places = torch.tensor([states.position(call.states["kv"]) for call in calls]).to(self._device)
        attend = states.attend(
            [Segment(state=call.states["kv"], rows=rows[at : at + 1], mode="causal") for at, call in enumerate(calls)]
        )
        logits = self._network.read(self._row(token, heard), places, attend.placed())
        states.commit(attend)
        positions = [states.length(call.states["kv"]) for call in calls]
        made = self._answers(logits, sampling_of(calls, positions, _SAMPLING, self._device), heard, rows)
        for at, call in enumerate(calls):
            states.put(call.states["heard"], heard[at].clone())
        return [{port: value[at] for port, value in made.items()} for at in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        if inputs.get("token") is None or inputs.get("ids") is not None:
            return None
        return StepSpec(
            inputs={"token": _TOKEN},
            outputs={"token": _TOKEN, "code": _TOKEN, "stop": Row((), torch.bool)},
            params={name: dtype for name, (_, dtype) in _SAMPLING.items()},
            tensors={"heard": _HEARD},
            appends={"kv": 1},
            advances={"kv": 1},
            invariant=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"token": torch.zeros(1, dtype=torch.int64)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        slot, rows, heard = batch.paged["kv"], batch.rows.long(), batch.tensors["heard"]
        logits = self._network.step(self._row(batch.inputs["token"][:, 0], heard[rows]), slot)
        made = self._answers(logits, step_sampling(batch, slot, _SAMPLING), heard, rows)
        finite = made.pop(FINITE)
        return StepOutputs(made, finite)

    def _row(self, token: Tensor, heard: Tensor) -> Tensor:
        """The frames before int64 `[B]`, and the rows of `heard` `[B, n]` -> the network's rows `[B, W]`."""
        place, count = heard[:, _PLACE], heard[:, _COUNT]
        unit, following = (heard.gather(1, _UNITS + at.clamp(0, _MOST - 1)[:, None])[:, 0] for at in (place, place + 1))
        following = torch.where(place + 1 < count, following, self._pause)
        return self._network.embed(token.clamp(0, self._config.vocab), unit, following, heard[:, _AGE])

    def _answers(self, logits: Tensor, sampling: SamplingParams, heard: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """The ports' values, each `[B, ..]`. `heard`: a table, whose `rows` go on by a frame."""
        codes, kept = self._config.codec.codes, heard[rows, :_UNITS]
        token = sample(logits, sampling)
        # A unit has an end, whatever the network says.
        last = (token >= codes) | (kept[:, _AGE] >= self._config.ages - 1)
        place, age = kept[:, _PLACE] + last, (kept[:, _AGE] + 1).masked_fill(last, 0)
        heard[rows, :_COUNT] = torch.stack([place, age], 1)
        known = token.clamp(min=0)
        return {
            "token": known[:, None],
            "code": known.remainder(codes)[:, None],
            "stop": place >= kept[:, _COUNT],
            FINITE: token >= 0,
        }


class Vocoder(Operator):
    """Decodes each stream by itself: its frames are few, and its sound is the same in any company."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(codec_of(context))

    def rows(self, call: Call) -> int:
        return len(call.inputs["codes"])

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"codes": torch.zeros(2, dtype=torch.int64)}, params={"shift": 0.0}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        with torch.inference_mode():
            return [{"waveform": self._sound(call, states)} for call in calls]

    def _sound(self, call: Call, states: States) -> Tensor:
        codes, most = call.inputs["codes"], self._codec.sizes.codes
        if codes.dim() != 1 or codes.dtype != torch.int64:
            raise CallFailed(f"`{call.node}.codes` takes int64 codes `[n]`, and got {list(codes.shape)}", "codes")
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < most:
            message = f"`{call.node}.codes` takes codes from 0 to {most - 1}, and got others"
            raise CallFailed(message, "codes", code="invalid_input")
        # A value that is not a chunk is a whole stream.
        info = call.chunks.get("codes") or ChunkInfo(0, first=True, last=True, valid=len(codes))
        fresh = codes[info.context :]
        if not len(fresh):
            return torch.zeros(0)
        past = self._past(call, states) if info.start + info.context else Past.fresh()
        sound, after = self._codec.decode(fresh, past, float(call.params["shift"]))
        states.put(call.states["past"], torch.tensor(after))
        return sound

    def _past(self, call: Call, states: States) -> Past:
        kept = states.tensor(call.states["past"])
        if kept is None:
            message = f"`{call.node}` got a later chunk of a stream, and its state `past` holds nothing of the ones"
            raise CallFailed(f"{message} before; give the state the scope of the run", "codes")
        return Past(*kept.tolist())


def _frame(call: Call) -> Tensor:
    """The frame before, int64 `[1]`."""
    token = call.inputs.get("token")
    if token is None or token.shape != (1,):
        raise CallFailed(f"`{call.node}` takes units at `ids`, or one token `[1]` at `token`", "token")
    return token
