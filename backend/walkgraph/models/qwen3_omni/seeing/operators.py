"""The operators of the vision encoder: pictures of any sizes, or videos, many in one forward."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.pictures import all_pixels_of, pixels_of
from walkgraph.models.qwen3_omni.seeing.components import MOST_FRAMES, MOST_PIXELS
from walkgraph.models.qwen3_omni.seeing.config import VisionConfig
from walkgraph.models.qwen3_omni.seeing.model import Seen
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder as Model
from walkgraph.models.qwen3_omni.seeing.weights import vision_encoder_of

_MOST_EMBEDDINGS = 1 << 16
"""Number of positions that the language model has."""
_SLOWEST, _FASTEST = 1e-3, 1e3
"""Frames a second."""


class _Seeing(Operator):
    """Numbers that are not finite give embeddings that are not, which the engine reports for their call alone."""

    pure: ClassVar[bool] = True

    def __init__(self, model: Model, device: torch.device) -> None:
        self._model, self._device = model, device

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(vision_encoder_of(context), context.device)

    @property
    def config(self) -> VisionConfig:
        return self._model.config

    def seen(self, clips: Sequence[Tensor]) -> list[Outputs]:
        return [_given(seen) for seen in self._model([clip.to(self._device) for clip in clips])]


class VisionEncoder(_Seeing):
    def rows(self, call: Call) -> int:
        _, height, width = _picture(call, self.config).shape
        return height * width // self.config.patch**2

    def examples(self) -> Sequence[Example]:
        """A square and a wide picture, alone and after each other."""
        cell = self.config.cell
        return tuple(
            Example(inputs={"pixels": torch.zeros(3, *size)}) for size in ((8 * cell, 8 * cell), (cell, 3 * cell))
        )

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return self.seen([_picture(call, self.config)[None, None] for call in calls])


class VideoEncoder(_Seeing):
    def rows(self, call: Call) -> int:
        frames = _frames(call, self.config)
        sheets = -(-len(frames) // self.config.frames)
        return sheets * frames[0].shape[1] * frames[0].shape[2] // self.config.patch**2

    def examples(self) -> Sequence[Example]:
        cell = self.config.cell
        return (Example(inputs={"frames": [torch.zeros(3, 2 * cell, cell)] * (self.config.frames + 1)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        seconds = [self.config.frames / _rate(call) for call in calls]
        made = self.seen([self._clip(call) for call in calls])
        return [{**outputs, "seconds": one} for outputs, one in zip(made, seconds, strict=True)]

    def _clip(self, call: Call) -> Tensor:
        """`[S, F, 3, h, w]`; the last frame is repeated until it fills a sheet."""
        frames, each = _frames(call, self.config), self.config.frames
        frames += [frames[-1]] * (-len(frames) % each)
        return torch.stack(frames).unflatten(0, (-1, each))


def _given(seen: Seen) -> Outputs:
    return {
        "embeddings": seen.embeddings,
        "deepstack": seen.deepstack,
        # A number of the host's own: its readers lay out positions by it, without waiting for the device.
        "grid": torch.tensor(seen.grid),
    }


def _picture(call: Call, config: VisionConfig) -> Tensor:
    pixels = pixels_of(call, "pixels")
    _allow(call, "pixels", pixels, config)
    _, height, width = pixels.shape
    if height * width > MOST_PIXELS:
        message = f"`{call.node}` reads pictures of at most {MOST_PIXELS:,} pixels, not {width} by {height}"
        raise CallFailed(f"{message}; resize it with `qwen3_omni.picture_fit`", "pixels", code="invalid_input")
    return pixels


def _frames(call: Call, config: VisionConfig) -> list[Tensor]:
    frames = all_pixels_of(call, "frames", MOST_FRAMES)
    if len({frame.shape for frame in frames}) > 1:
        message = f"the frames of `{call.node}` have different sizes; resize them to one size first"
        raise CallFailed(message, "frames", code="invalid_input")
    _allow(call, "frames", frames[0], config)
    count = -(-len(frames) // config.frames) * math.prod(frames[0].shape[1:]) // config.cell**2
    if count > _MOST_EMBEDDINGS:
        message = f"`{call.node}` would give {count:,} embeddings, and {_MOST_EMBEDDINGS:,} is the most"
        raise CallFailed(f"{message}; take fewer or smaller frames", "frames", code="invalid_input")
    return frames


def _allow(call: Call, port: str, pixels: Tensor, config: VisionConfig) -> None:
    _, height, width = pixels.shape
    if height % config.cell or width % config.cell:
        fit = "picture_fit" if port == "pixels" else "frames_fit"
        message = f"`{call.node}` reads pictures whose sides are multiples of {config.cell}, not {width} by {height}"
        raise CallFailed(f"{message}; resize them with `qwen3_omni.{fit}`", port, code="invalid_input")


def _rate(call: Call) -> float:
    value: Any = call.inputs.get("rate", 1.0)
    rate = float(cast("float | Tensor", value))
    if not _SLOWEST <= rate <= _FASTEST:
        message = f"`rate` of `{call.node}` is from {_SLOWEST:g} to {_FASTEST:g} frames a second, not {rate:g}"
        raise CallFailed(message, "rate", code="invalid_input")
    return rate
