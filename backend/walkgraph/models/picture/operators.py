"""Pictures cut, turned and put beside each other. Shape letters: B pictures, H height, W width."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.pictures import all_pixels_of, allow, pixels_of
from walkgraph.models.picture.components import MOST_LISTED
from walkgraph.models.picture.stacked import Stacked, color_of, color_pixel

_FLIPPED = {"horizontal": (-1,), "vertical": (-2,), "both": (-2, -1)}


class Crop(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        pixels = given["pixels"]
        left, top, width, height = (int(params[name]) for name in ("left", "top", "width", "height"))
        part = pixels[..., top : top + height if height else None, left : left + width if width else None]
        if not part.numel():
            message = f"`{call.node}` crops beyond a picture of {pixels.shape[-1]} by {pixels.shape[-2]} pixels"
            raise CallFailed(f"{message}; lower `left` or `top`", "pixels", code="invalid_input")
        return {"pixels": part.contiguous()}


class Pad(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        pixels = given["pixels"]
        left, right, top, bottom = (int(params[name]) for name in ("left", "right", "top", "bottom"))
        *_, height, width = pixels.shape
        allow(call, left + width + right, top + height + bottom, "pixels")
        if params["fill"] == "edge":
            return {"pixels": F.pad(pixels, (left, right, top, bottom), mode="replicate")}
        made = (
            color_pixel(call, pixels).expand(len(pixels), 3, top + height + bottom, left + width + right).contiguous()
        )
        made[..., top : top + height, left : left + width] = pixels
        return {"pixels": made}


class Flip(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        return {"pixels": given["pixels"].flip(_FLIPPED[str(params["direction"])])}


class Rotate(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": pixels} for pixels in map(_rotated, calls)]


class Concat(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": _side_by_side(call)} for call in calls]


class Grid(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"pixels": _grid(call)} for call in calls]


def _rotated(call: Call) -> Tensor:
    pixels, degrees = pixels_of(call, "pixels"), float(call.params["degrees"])
    expand, angle = bool(call.params["expand"]), math.radians(degrees)
    _, height, width = pixels.shape
    if degrees % 90 == 0 and (expand or degrees % 180 == 0):
        return pixels.rot90(round(degrees / 90), (1, 2)).contiguous()
    if expand:
        sine, cosine = abs(math.sin(angle)), abs(math.cos(angle))
        allow(call, round(width * cosine + height * sine), round(width * sine + height * cosine), "pixels")
    # In floating point, one channel at a time: pixels aren't rounded to whole levels.
    channels = [
        Image.fromarray(channel).rotate(degrees, Image.Resampling.BILINEAR, expand=expand, fillcolor=level / 127.5 - 1)
        for channel, level in zip(pixels.numpy(), color_of(call), strict=True)
    ]
    return torch.from_numpy(np.stack([np.asarray(channel) for channel in channels]))


def _side_by_side(call: Call) -> Tensor:
    pictures = all_pixels_of(call, "pictures", MOST_LISTED)
    across, gap = call.params["direction"] == "across", int(call.params["gap"])
    if not across:
        pictures = [picture.transpose(1, 2) for picture in pictures]
    length = sum(picture.shape[2] for picture in pictures) + gap * (len(pictures) - 1)
    breadth = max(picture.shape[1] for picture in pictures)
    made = _empty(call, breadth, length, pictures[0])
    at, share = 0, {"start": 0, "middle": 1, "end": 2}[str(call.params["align"])]
    for picture in pictures:
        _, height, width = picture.shape
        top = (breadth - height) * share // 2
        made[:, top : top + height, at : at + width] = picture
        at += width + gap
    return made if across else made.transpose(1, 2).contiguous()


def _grid(call: Call) -> Tensor:
    pictures = all_pixels_of(call, "pictures", MOST_LISTED)
    columns = int(call.params["columns"]) or math.ceil(math.sqrt(len(pictures)))
    columns, gap = min(columns, len(pictures)), int(call.params["gap"])
    rows = -(-len(pictures) // columns)
    cell = max(picture.shape[1] for picture in pictures), max(picture.shape[2] for picture in pictures)
    made = _empty(call, rows * cell[0] + gap * (rows - 1), columns * cell[1] + gap * (columns - 1), pictures[0])
    for index, picture in enumerate(pictures):
        place = divmod(index, columns)
        top, left = (
            at * (side + gap) + (side - mine) // 2
            for at, side, mine in zip(place, cell, picture.shape[1:], strict=True)
        )
        made[:, top : top + picture.shape[1], left : left + picture.shape[2]] = picture
    return made


def _empty(call: Call, height: int, width: int, like: Tensor) -> Tensor:
    """A picture of the call's `color`."""
    allow(call, width, height, "pictures")
    return color_pixel(call, like).expand(3, height, width).contiguous()
