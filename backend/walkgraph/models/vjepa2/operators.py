"""V-JEPA 2-AC's operators: frames are encoded one by one, and predicted from a cache of the frames before them.

Features travel in the weights' type: their readers round to it anyway, and 400 samples of a plan take half the memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.models.vjepa2.config import Vjepa2Config
from walkgraph.models.vjepa2.model import ACTION
from walkgraph.models.vjepa2.steps import EncoderSteps, PredictorSteps
from walkgraph.models.vjepa2.weights import encoder_of, predictor_of

_SIZES = (1, 2, 4, 8, 16)
_MOST_ROWS = 1 << 17
"""The most tokens of a step; the activations of each take about 24 KiB."""


class Encoder(Operator):
    def __init__(self, steps: EncoderSteps, config: Vjepa2Config, device: torch.device, dtype: torch.dtype) -> None:
        self._steps, self._device = steps, device
        self._shape = (3, config.pixels, config.pixels)
        self._patches = config.patches
        self._features = Row((config.patches, config.encoder.width), dtype)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        encoder = encoder_of(context)
        return cls(EncoderSteps(encoder), encoder.config, context.device, context.dtype)

    def rows(self, call: Call) -> int:
        return self._patches

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"pixels": torch.zeros(self._shape)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        pixels = torch.stack([self._pixels(call) for call in calls])
        return [{"features": features} for features in self._steps(pixels)]

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return {"pixels": self._pixels(call)}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        pixels = inputs.get("pixels")
        if not isinstance(pixels, Tensor) or pixels.shape != self._shape:
            return None
        row = Row(self._shape, torch.float32)
        return StepSpec(inputs={"pixels": row}, outputs={"features": self._features}, sizes=_SIZES, pure=True)

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"pixels": torch.zeros(self._shape)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        features = self._steps(batch.inputs["pixels"])
        return StepOutputs({"features": features}, finite(features))

    def _pixels(self, call: Call) -> Tensor:
        pixels = call.inputs["pixels"]
        if pixels.shape != self._shape:
            raise CallFailed(
                f"`{call.node}` takes pictures {list(self._shape)}, and got {list(pixels.shape)}; set `size` of the "
                f"node that reads the picture to {self._shape[1]}",
                "pixels",
            )
        return pixels.float()


class Predictor(Operator):
    """A call appends one frame to each of its sequences, and predicts the next one."""

    def __init__(self, steps: PredictorSteps, config: Vjepa2Config, device: torch.device, dtype: torch.dtype) -> None:
        self._steps, self._config, self._device, self._dtype = steps, config, device, dtype
        self._frame = (config.patches, config.encoder.width)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        predictor = predictor_of(context)
        return cls(PredictorSteps(predictor), predictor.config, context.device, context.dtype)

    def caches(self) -> Mapping[str, CacheShape]:
        sizes = self._config.predictor
        shape = CacheShape(layers=sizes.layers, kv_heads=sizes.heads, head_dim=sizes.head_dim, dtype=self._dtype)
        return {"kv": shape}

    def rows(self, call: Call) -> int:
        action = call.inputs["action"]
        return self._config.tokens * (action.shape[0] if action.dim() > 1 else 1)

    def examples(self) -> Sequence[Example]:
        return (Example(inputs=self._example()),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        given = [self._given(call, states) for call in calls]
        leads = [action.shape[:-1] for _, action, _ in given]
        widths = [lead.numel() for lead in leads]
        features, action, pose = (
            torch.cat([_each(part, width, inner) for part, width in zip(parts, widths, strict=True)])
            for parts, inner in zip(zip(*given, strict=True), (2, 1, 1), strict=True)
        )
        keys = [(call.states["kv"], at) for call, width in zip(calls, widths, strict=True) for at in range(width)]
        rows = torch.arange(len(keys) * self._config.tokens, device=self._device).split(self._config.tokens)
        frames = torch.tensor([states.position(*key) for key in keys]).to(self._device, non_blocking=True)
        attend = states.attend([_segment(*one) for one in zip(keys, rows, strict=True)])
        predicted = self._steps.forward(features, action, pose, frames, attend.placed())
        states.commit(attend)
        outputs: list[Outputs] = []
        for call, lead, mine in zip(calls, leads, predicted.split(widths), strict=True):
            answer = mine.view(*lead, *self._frame)
            if "last" in call.states:
                # A copy: a view would keep the whole batch's frames alive.
                states.put(call.states["last"], answer.clone())
            outputs.append({"features": answer})
        return outputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        action, pose, features = (inputs.get(name) for name in ("action", "pose", "features"))
        if not isinstance(action, Tensor) or not isinstance(pose, Tensor):
            return None
        lead = tuple(action.shape[:-1])
        parts = [(action, (ACTION,)), (pose, (ACTION,))] + ([(features, self._frame)] if features is not None else [])
        if len(lead) > 1 or any(not _fits(part, lead, inner) for part, inner in parts):
            return None
        given = {"action": Row(tuple(action.shape), torch.float32), "pose": Row(tuple(pose.shape), torch.float32)}
        if features is not None:
            given["features"] = Row(tuple(features.shape), self._dtype)
        answer = Row((*lead, *self._frame), self._dtype)
        tokens = self._config.tokens * (lead[0] if lead else 1)
        return StepSpec(
            inputs=given,
            outputs={"features": answer},
            tensors={"last": answer},
            appends={"kv": self._config.tokens},
            advances={"kv": 1},
            sizes=tuple(size for size in _SIZES if size == 1 or size * tokens <= _MOST_ROWS),
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return (self._example(),)

    def step(self, batch: StepBatch) -> StepOutputs:
        """A row without features and without any earlier frame is not finite."""
        last, rows = batch.tensors.get("last"), batch.rows.long()
        features, known = batch.inputs.get("features"), None
        if features is None:
            if last is None:
                raise CallFailed("a predictor without `features` needs a state at `last`", "features")
            features = last.index_select(0, rows)
            known = features[..., 0, :].flatten(1).any(1)
        predicted = self._steps.step(features, batch.inputs["action"], batch.inputs["pose"], batch.paged["kv"])
        if last is not None:
            last.index_copy_(0, rows, predicted.view(len(rows), *last.shape[1:]))
        sound = finite(predicted)
        return StepOutputs({"features": predicted}, sound if known is None else sound & known)

    def _example(self) -> dict[str, Tensor]:
        return {"features": torch.zeros(self._frame), "action": torch.zeros(ACTION), "pose": torch.zeros(ACTION)}

    def _given(self, call: Call, states: States) -> tuple[Tensor, Tensor, Tensor]:
        """Features, action and pose of a call, each with a sample axis unless it holds for all samples."""
        action, pose = call.inputs["action"].float(), call.inputs["pose"].float()
        features = call.inputs.get("features")
        if features is None and "last" in call.states:
            features = states.tensor(call.states["last"])
        if features is None:
            raise CallFailed(
                f"`{call.node}` has no frame to continue from; feed "
                "its `features`, or begin the session with a picture",
                "features",
                code="invalid_input",
            )
        lead = action.shape[:-1]
        for port, part, inner in (("action", action, (ACTION,)), ("pose", pose, (ACTION,)),
                                  ("features", features, self._frame)):  # fmt: skip
            if len(lead) > 1 or not _fits(part, lead, inner):
                samples = f", for each of {lead[0]} samples or for all" if lead else ""
                raise CallFailed(
                    f"`{call.node}.{port}` takes {list(inner)}{samples}, and got {list(part.shape)}",
                    port,
                    code="invalid_input",
                )
        return features, action, pose


def finite(features: Tensor) -> Tensor:
    """`[B, ..., n, d]`, normed -> bool `[B]`: one number per token suffices, as norming spreads NaN to the whole
    token."""
    return features[..., 0].isfinite().flatten(1).all(1)


def _fits(part: Any, lead: Sequence[int], inner: Sequence[int]) -> bool:
    return isinstance(part, Tensor) and tuple(part.shape) in ((*lead, *inner), tuple(inner))


def _each(part: Tensor, width: int, inner: int) -> Tensor:
    """`[w, *inner]`, repeated if it holds for all samples."""
    return part.expand(width, *part.shape[-inner:]) if part.dim() == inner else part


def _segment(key: tuple[Any, int], rows: Tensor) -> Segment:
    state, sequence = key
    return Segment(state=state, rows=rows, mode="block", sequence=sequence)
