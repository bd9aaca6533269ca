"""The talker's operators: the projection of the thinker's media rows, the talker, and the predictor of further codes.

A frame's first code is the talker's, the others follow from it and the talker's row. Noise depends on the call's seed,
the frame and the code, so `forward` and `step` generate the same.

Shape letters: K calls, B rows of a step, W width, V vocabulary of first codes.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import FINITE, Call, Outputs, Scalar
from walkgraph.abi.operator import Capture, Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.language.decoding import Sampling, sampling_of, step_sampling
from walkgraph.layers.sampling import count, sample
from walkgraph.layers.sampling_params import SamplingParams
from walkgraph.layers.sound.speech import bar_codes, spoken_rows, verdicts
from walkgraph.models.qwen3_omni.talker.config import RESERVED
from walkgraph.models.qwen3_omni.talker.model import Projection
from walkgraph.models.qwen3_omni.talker.model import Talker as Network
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor as Predictor
from walkgraph.models.qwen3_omni.talker.prompt import Prompts, is_prompt, opens
from walkgraph.models.qwen3_omni.talker.weights import (
    config_of,
    first_codes_of,
    predictor_of,
    projection_of,
    talker_of,
    words_of,
)

_CODE = Row((1,), torch.int64)
_FLAG = Row((), torch.bool)
_HEARD = Row((4,), torch.float32)
"""The words of the answer so far, and 1 once it has ended; the positions that are left out behind the first frame, and
again once they are."""
_AFTER = 64
"""Frames that may follow the end of any answer: five seconds."""
_DRAWN: Sampling = {
    "temperature": ("temperature", torch.float32),
    "top_k": ("top_k", torch.int64),
    "top_p": ("top_p", torch.float32),
}
_SPOKEN: Sampling = {**_DRAWN, "repetition_penalty": ("repetition", torch.float32)}
_GUARD = "frames_per_token"
_LEAST = "min_frames"
_LIKELY: Mapping[str, Scalar] = {"temperature": 0.9, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.05}


class TalkerProjection(Operator):
    """Projects the thinker's rows of sound and pictures to the talker's width."""

    pure: ClassVar[bool] = True

    def __init__(self, projection: Projection, width: int) -> None:
        self._projection, self._width = projection, width

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(projection_of(context), config_of(context).heard)

    def rows(self, call: Call) -> int:
        hidden = call.inputs.get("hidden")
        return 0 if hidden is None else len(hidden)

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"hidden": torch.zeros(2, self._width)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        given = {at: hidden for at, call in enumerate(calls) if (hidden := call.inputs.get("hidden")) is not None}
        outputs = [Outputs() for _ in calls]
        if given:
            dtype = self._projection.linear_fc1.weight.dtype
            with torch.inference_mode():
                made = self._projection(torch.cat([*given.values()]).to(dtype))
            for at, rows in zip(given, made.split([len(one) for one in given.values()]), strict=True):
                outputs[at]["rows"] = rows
        return outputs


class Talker(Operator):
    """Reads the user's turns, then generates the first code of one frame for each call, one word of the answer each."""

    def __init__(
        self,
        network: Network,
        words: Tensor,
        device: torch.device,
        dtype: torch.dtype,
        capture: Capture | None = None,
    ) -> None:
        self._network, self._config, self._words = network, network.config, words
        self._device, self._dtype = device, dtype
        begin = torch.tensor([self._config.codec.bos], device=device)
        self._begin = network.embed(begin)
        """`[1, W]`: takes the place of a last frame before the first one."""
        self._prompts = Prompts(network, words, device, capture)
        self._none = torch.full((), -1, dtype=torch.int64, device=device)
        """Stands for a word after the end of the answer."""

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        with torch.inference_mode():
            return cls(talker_of(context), words_of(context), context.device, context.dtype, context.capture)

    def caches(self) -> Mapping[str, CacheShape]:
        stack = self._config.stack
        heads, width = stack.kv_heads, stack.head_dim
        return {"kv": CacheShape(layers=stack.layers, kv_heads=heads, head_dim=width, dtype=self._dtype)}

    def bucket(self, call: Call) -> Hashable:
        return is_prompt(call)

    def rows(self, call: Call) -> int:
        return len(self._prompts.part(call)) if is_prompt(call) else 1

    def split(self, call: Call, rows: int) -> Sequence[Call]:
        return self._prompts.split(call, rows) if is_prompt(call) else (call,)

    def examples(self) -> Sequence[Example]:
        speaker = next(iter(self._config.speakers), "")
        params = {**_LIKELY, _GUARD: 0, _LEAST: 0, "speaker": speaker}
        return (
            Example(inputs={"ids": torch.arange(3)}, params=params),
            Example(inputs={"text": torch.arange(1), "frame": self._begin}, params=params),
        )

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        with torch.inference_mode():
            return (self._listen if is_prompt(calls[0]) else self._speak)(calls, states)

    # ── the prompt ──

    def _listen(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        self._prompts.read(calls, states)
        for call in calls:
            if self._prompts.ends(call):
                heard = call.states["heard"]
                states.put(heard, self._prompts.heard(call, states.tensor(heard)))
                row = self._tensors["seen"]
                states.put(call.states["seen"], torch.zeros(row.shape, dtype=row.dtype, device=self._device))
        return [{"begin": self._begin} if opens(call) else {} for call in calls]

    # ── frames ──

    def _speak(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        texts = [call.inputs.get("text") for call in calls]
        text = torch.stack([self._none if one is None else one.view(()) for one in texts])
        frames = torch.cat([self._begin if (one := call.inputs.get("frame")) is None else one for call in calls])
        heard, seen = (self._kept(calls, states, slot) for slot in self._tensors)
        rows = torch.arange(len(calls), device=self._device)
        places = self._on_device(torch.tensor([states.place(call.states["kv"]) for call in calls])) + heard[:, 3]
        x = self._said(text, frames, heard, rows)
        attend = states.attend(
            [Segment(state=call.states["kv"], rows=rows[at : at + 1], mode="causal") for at, call in enumerate(calls)]
        )
        logits, hidden = self._network.read(x, places, attend.placed())
        states.commit(attend)
        made = self._answers(logits, hidden, self._sampling(calls, states), self._bounds(calls), heard, seen, rows)
        for at, call in enumerate(calls):
            for slot, table in zip(self._tensors, (heard, seen), strict=True):
                states.put(call.states[slot], table[at].clone())
        return [{port: value[at] for port, value in made.items()} for at in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        if inputs.get("ids") is not None or inputs.get("frame") is None:
            return None
        row = Row((1, self._config.stack.width), self._dtype)
        return StepSpec(
            inputs={"frame": row, **({} if inputs.get("text") is None else {"text": _CODE})},
            outputs={"code": _CODE, "hidden": row, "stop": _FLAG, "derailed": _FLAG},
            params={**{name: dtype for name, (_, dtype) in _SPOKEN.items()}, _GUARD: torch.int64, _LEAST: torch.int64},
            tensors=self._tensors,
            appends={"kv": 1},
            advances={"kv": 1},
            fractions=frozenset({"kv"}),
            invariant=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"frame": self._begin, "text": torch.zeros(1, dtype=torch.int64)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        slot, rows, text = batch.paged["kv"], batch.rows, batch.inputs.get("text")
        text = self._none.expand(len(rows)) if text is None else text[:, 0]
        heard, seen = batch.tensors["heard"], batch.tensors["seen"]
        places = slot.rows._replace(positions=slot.rows.positions + heard[:, 3])
        slot = slot._replace(rows=places)
        x = self._said(text, batch.inputs["frame"][:, 0], heard, rows)
        logits, hidden = self._network.step(x, slot)
        bounds = batch.params[_GUARD], batch.params[_LEAST], batch.iteration
        made = self._answers(logits, hidden, step_sampling(batch, slot, _SPOKEN), bounds, heard, seen, rows)
        finite = made.pop(FINITE)
        return StepOutputs(made, finite)

    def _said(self, text: Tensor, frame: Tensor, heard: Tensor, rows: Tensor) -> Tensor:
        """Words int64 `[B]`, -1 for none, and last frames `[B, W]` -> the rows that read them, which are counted in
        `rows` of the table `heard`."""
        spoken = self._config.spoken
        return spoken_rows(text, frame, heard, rows, self._words, spoken.pad, spoken.eos)

    def _answers(
        self,
        logits: Tensor,
        hidden: Tensor,
        sampling: SamplingParams,
        bounds: tuple[Tensor, Tensor, Tensor],
        heard: Tensor,
        seen: Tensor,
        rows: Tensor,
    ) -> dict[str, Tensor]:
        """The ports' values, each `[B, ..]`. `bounds`: frames for each word that are allowed, the fewest frames of all,
        and the index of this one; `heard`, `seen`: tables, of whose `rows` these are."""
        allowed, least, frame = bounds
        eos = self._config.codec.eos
        bar_codes(logits, self._config.stack.vocab - RESERVED, eos, frame, least)
        token = sample(logits, sampling, seen, rows)
        count(seen, rows, token)
        made = verdicts(token, heard, rows, frame, allowed, eos, _AFTER)
        return {
            "code": made.code[:, None],
            "hidden": hidden[:, None],
            "stop": made.stop,
            "derailed": made.derailed,
            FINITE: made.finite,
        }

    @property
    def _tensors(self) -> Mapping[str, Row]:
        """The slots of tensor states: the words of the answer so far, and how often each code was generated."""
        return {"heard": _HEARD, "seen": Row((self._config.stack.vocab,), torch.int16)}

    def _kept(self, calls: Sequence[Call], states: States, slot: str) -> Tensor:
        row, kept = self._tensors[slot], [states.tensor(call.states[slot]) for call in calls]
        blank = torch.zeros(row.shape, dtype=row.dtype, device=self._device)
        return torch.stack([blank if one is None else one for one in kept])

    def _bounds(self, calls: Sequence[Call]) -> tuple[Tensor, Tensor, Tensor]:
        guards, leasts = ([int(call.params[name]) for call in calls] for name in (_GUARD, _LEAST))
        frames = [call.iteration[-1] if call.iteration else 0 for call in calls]
        allowed, least, frame = self._on_device(torch.tensor([guards, leasts, frames]))
        return allowed, least, frame

    def _sampling(self, calls: Sequence[Call], states: States) -> SamplingParams:
        position = [states.length(call.states["kv"]) for call in calls]
        return sampling_of(calls, position, _SPOKEN, self._device)

    def _on_device(self, value: Tensor) -> Tensor:
        """Move to the device without waiting for it."""
        return value.to(self._device, non_blocking=True)


class CodePredictor(Operator):
    """Generates the other codes of a frame, each from those before, and adds up the embeddings of all."""

    def __init__(self, network: Predictor, first: Tensor, device: torch.device, dtype: torch.dtype) -> None:
        self._network, self._first, self._device, self._dtype = network, first, device, dtype

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(predictor_of(context), first_codes_of(context), context.device, context.dtype)

    def examples(self) -> Sequence[Example]:
        params = {name: _LIKELY[name] for name in _DRAWN}
        return (Example(inputs=self._likely(), params=params),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        code = torch.stack([call.inputs["code"].view(()) for call in calls])
        hidden = torch.cat([call.inputs["hidden"].view(1, -1) for call in calls])
        frame = torch.tensor([call.iteration[-1] if call.iteration else 0 for call in calls])
        with torch.inference_mode():
            sampling = sampling_of(calls, frame.tolist(), _DRAWN, self._device)
            made = self._made(code, hidden, sampling)
        return [{port: value[at] for port, value in made.items()} for at in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        row = Row((1, self._network.config.width), self._dtype)
        return StepSpec(
            inputs={"code": _CODE, "hidden": row},
            outputs={"codes": Row((1, self._network.groups), torch.int64), "embedding": row},
            params={name: dtype for name, (_, dtype) in _DRAWN.items()},
            invariant=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return (self._likely(),)

    def step(self, batch: StepBatch) -> StepOutputs:
        given = {name: batch.params[param] for param, (name, _) in _DRAWN.items()}
        sampling = SamplingParams(batch.seed, batch.iteration, **given)
        made = self._made(batch.inputs["code"][:, 0], batch.inputs["hidden"][:, 0], sampling)
        finite = made.pop(FINITE)
        return StepOutputs(made, finite)

    def _made(self, code: Tensor, hidden: Tensor, sampling: SamplingParams) -> dict[str, Tensor]:
        """code int64 `[B]`, hidden `[B, W]` -> the ports' values. `sampling`: its positions are the frames'."""
        further = torch.arange(self._network.groups - 1, device=code.device)
        positions = sampling.position * self._network.groups + further[:, None]

        def choose(index: int, logits: Tensor) -> Tensor:
            return sample(logits, sampling._replace(position=positions[index]))

        hidden = hidden.to(self._dtype)
        frames = self._network.frames(hidden, self._first[code.clamp(0, len(self._first) - 1)], code, choose)
        return {
            "codes": frames.codes[:, None],
            "embedding": frames.embedding[:, None],
            FINITE: frames.finite,
        }

    def _likely(self) -> dict[str, Tensor]:
        return {
            "code": torch.zeros(1, dtype=torch.int64),
            "hidden": torch.zeros(1, self._network.config.width, dtype=self._dtype),
        }
