"""Pictures and frames of videos at the sizes that the vision encoder reads, resized as its published processor does: on
whole levels, by torch's antialiased bicubic form."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.pictures import MAX_PIXELS, all_pixels_of, decode, levels_of, pixels_of
from walkgraph.layers.pictures.patches import normalise, to_levels
from walkgraph.models.qwen3_omni.seeing.components import MOST_FRAMES
from walkgraph.models.qwen3_omni.seeing.config import VISION, fitted


class PictureIn(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": pixels} for pixels in map(_decoded, calls)]


class PictureFit(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": pixels} for pixels in map(_refitted, calls)]


class FramesFit(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"frames": frames} for frames in map(_fitted_frames, calls)]


def _decoded(call: Call) -> Tensor:
    found = levels_of(call)
    levels = torch.from_numpy(np.array(decode(call)) if found is None else found)
    return _fit(levels, _size(call, "image", levels.shape[0], levels.shape[1]))


def _refitted(call: Call) -> Tensor:
    levels = to_levels(pixels_of(call, "pixels")).cpu()
    return _fit(levels, _size(call, "pixels", levels.shape[0], levels.shape[1]))


def _fitted_frames(call: Call) -> list[Tensor]:
    frames = all_pixels_of(call, "frames", MOST_FRAMES)
    if len({frame.shape for frame in frames}) > 1:
        message = f"the frames of `{call.node}` have different sizes; resize them to one size first"
        raise CallFailed(message, "frames", code="invalid_input")
    size = _size(call, "frames", frames[0].shape[1], frames[0].shape[2])
    if len(frames) * size[0] * size[1] > MAX_PIXELS:
        message = f"`{call.node}` would give {len(frames)} frames of {size[1]} by {size[0]} pixels, and in all"
        advice = f"{MAX_PIXELS // 10**6} million are the most; take fewer frames, or lower `max_pixels`"
        raise CallFailed(f"{message} {advice}", "frames", code="invalid_input")
    return [_fit(to_levels(frame).cpu(), size) for frame in frames]


def _size(call: Call, port: str, height: int, width: int) -> tuple[int, int]:
    least, most = int(call.params["min_pixels"]), int(call.params["max_pixels"])
    if least > most:
        raise CallFailed(f"`min_pixels` of `{call.node}` is above `max_pixels`", port, code="invalid_input")
    try:
        return fitted(height, width, VISION.cell, least, most)
    except ValueError as error:
        raise CallFailed(f"`{call.node}` can't read {error}", port, code="invalid_input") from None


def _fit(levels: Tensor, size: tuple[int, int]) -> Tensor:
    """uint8 `[h, w, 3]` -> float32 `[3, *size]` in [-1, 1]."""
    if levels.shape[:2] != size:
        planes = levels.permute(2, 0, 1)[None]
        levels = F.interpolate(planes, size=size, mode="bicubic", antialias=True)[0].permute(1, 2, 0)
    return normalise(levels).contiguous()
