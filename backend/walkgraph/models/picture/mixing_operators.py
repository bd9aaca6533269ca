"""Pictures mixed, masked, blurred, changed and compared. Shape letters: B pictures, H height, W width."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.abi.calls import Call, CallFailed, Scalar
from walkgraph.architectures.pictures import allow
from walkgraph.models.picture.stacked import Stacked

_BRIGHTNESS = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in the brightness that is seen (ITU-R BT.601)."""
_MOST_BLURRED = 2 * 10**9
"""The most values of a picture, times the pixels on each side that are read for one: some ten seconds of a slow CPU."""
_EQUAL = 100.0
"""Decibels of equal pictures, whose ratio has no bound."""


class Compose(Stacked):
    pictures: ClassVar[tuple[str, ...]] = ("over", "onto")

    def read(self, call: Call) -> dict[str, Tensor]:
        read, mask = super().read(call), call.inputs.get("mask")
        if mask is not None:
            height, width = read["over"].shape[1:]
            if not isinstance(mask, Tensor) or mask.shape != (height, width):
                message = f"the mask of `{call.node}` has the size of `over`, {height} rows of {width}"
                raise CallFailed(message, "mask", code="invalid_input")
            read["mask"] = mask.float()
        return read

    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        over, made, mask = given["over"], given["onto"].clone(), given.get("mask")
        left, top, opacity = int(params["left"]), int(params["top"]), float(params["opacity"])
        # Of both pictures, the part where they overlap.
        first, last = max(top, 0), min(top + over.shape[-2], made.shape[-2])
        start, stop = max(left, 0), min(left + over.shape[-1], made.shape[-1])
        if first < last and start < stop:
            rows, columns = slice(first - top, last - top), slice(start - left, stop - left)
            share = opacity if mask is None else mask[:, None, rows, columns].clamp(0, 1) * opacity
            made[..., first:last, start:stop].lerp_(over[..., rows, columns], share)
        return {"pixels": made}


class MaskThreshold(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        bright = _brightness(given["pixels"] * 0.5 + 0.5) >= float(params["threshold"])
        return {"mask": (bright ^ bool(params["invert"])).float()}


class MaskDraw(Stacked):
    def read(self, call: Call) -> dict[str, Tensor]:
        if call.inputs.get("pixels") is not None:
            return super().read(call)
        allow(call, int(call.params["width"]), int(call.params["height"]))
        return {"pixels": torch.empty(3, 1, 1).expand(3, int(call.params["height"]), int(call.params["width"]))}

    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        count, _, height, width = given["pixels"].shape
        device = given["pixels"].device
        rows = _across(height, float(params["top"]), float(params["bottom"]), device)[:, None]
        columns = _across(width, float(params["left"]), float(params["right"]), device)
        if params["shape"] == "rectangle":
            inside = (rows.abs() <= 1) & (columns.abs() <= 1)
        else:
            inside = rows**2 + columns**2 <= 1
        _allow_blur(call, height * width, float(params["soften"]))
        mask = _blurred((inside ^ bool(params["invert"])).float()[None, None], float(params["soften"]))
        return {"mask": mask[0].expand(count, height, width)}


class Blur(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        pixels = given["pixels"]
        _allow_blur(call, pixels[0].numel(), float(params["radius"]))
        made = _blurred(pixels.reshape(-1, 1, *pixels.shape[2:]), float(params["radius"]))
        return {"pixels": made.view(pixels.shape)}


class Levels(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        light = given["pixels"] * 0.5 + 0.5
        saturation, contrast, brightness, gamma = (
            float(params[name]) for name in ("saturation", "contrast", "brightness", "gamma")
        )
        if saturation != 1:
            grey = _brightness(light)[:, None]
            light = grey + (light - grey) * saturation
        light = ((light - 0.5) * contrast + (0.5 + brightness)).clamp_(0, 1)
        if gamma != 1:
            light = light.pow_(1 / gamma)
        return {"pixels": light.mul_(2).sub_(1)}


class ToTensor(Stacked):
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        low, high = float(params["low"]), float(params["high"])
        return {"tensor": (given["pixels"] * 0.5 + 0.5) * (high - low) + low}


class FromTensor(Stacked):
    def read(self, call: Call) -> dict[str, Tensor]:
        value = call.inputs.get("tensor")
        grey = isinstance(value, Tensor) and (value.dim() == 2 or (value.dim() == 3 and value.shape[0] == 1))
        if not isinstance(value, Tensor) or not value.numel() or not (grey or (value.dim() == 3 and len(value) == 3)):
            message = f"`{call.node}` takes a tensor of shape [h, w], [1, h, w] or [3, h, w]"
            raise CallFailed(message, "tensor", code="invalid_input")
        allow(call, value.shape[-1], value.shape[-2], "tensor")
        return {"tensor": value.float().view(1, *value.shape[-2:]).expand(3, -1, -1) if grey else value.float()}

    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        low, high = float(params["low"]), float(params["high"])
        if low == high:
            raise CallFailed(f"`low` and `high` of `{call.node}` must differ", code="invalid_input")
        return {"pixels": ((given["tensor"] - low) / (high - low)).clamp_(0, 1).mul_(2).sub_(1)}


class Compare(Stacked):
    pictures: ClassVar[tuple[str, ...]] = ("pixels", "other")

    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        one, other = given["pixels"], given["other"]
        if one.shape != other.shape:
            sizes = " and ".join(f"{picture.shape[-1]} by {picture.shape[-2]}" for picture in (one, other))
            message = f"`{call.node}` compares pictures of one size, not {sizes} pixels; resize one"
            raise CallFailed(message, "other", code="invalid_input")
        # Of the range of 2, so that the largest difference is 1.
        apart = (one - other).abs_().mul_(0.5)
        errors = apart.square().mean((1, 2, 3))
        psnr = (-10 * errors.log10()).clamp(max=_EQUAL)
        return {"difference": (apart * float(params["gain"])).clamp_(0, 1).mul_(2).sub_(1), "psnr": psnr}


def _brightness(light: Tensor) -> Tensor:
    """`[B, 3, H, W]` -> `[B, H, W]`."""
    red, green, blue = light.unbind(1)
    return red * _BRIGHTNESS[0] + green * _BRIGHTNESS[1] + blue * _BRIGHTNESS[2]


def _across(count: int, start: float, stop: float, device: torch.device) -> Tensor:
    """For the centre of each of `count` pixels, its place between two shares of the side: -1 and 1 are at the ends."""
    start, stop = sorted((start * count, stop * count))
    centres = torch.arange(count, device=device, dtype=torch.float32) + 0.5
    return (centres - (start + stop) / 2) / max((stop - start) / 2, 1e-6)


def _allow_blur(call: Call, values: int, radius: float) -> None:
    if values * _reach(radius) > _MOST_BLURRED:
        message = f"`{call.node}` blurs so large a picture only by less; make it smaller first, or blur it by less"
        raise CallFailed(message, code="invalid_input")


def _reach(radius: float) -> int:
    """Pixels on each side that a blur reads."""
    return math.ceil(3 * radius)


def _blurred(planes: Tensor, radius: float) -> Tensor:
    """planes `[N, 1, H, W]`, blurred with a Gaussian of this standard deviation, cut at three of them."""
    reach = _reach(radius)
    if not reach:
        return planes
    weights = torch.arange(-reach, reach + 1, device=planes.device, dtype=torch.float32)
    weights = torch.softmax(weights.square() / (-2 * radius * radius), 0)
    for axis, pad in ((2, (0, 0, reach, reach)), (3, (reach, reach, 0, 0))):
        kernel = weights.view(1, 1, *(-1 if at == axis else 1 for at in (2, 3)))
        planes = F.conv2d(F.pad(planes, pad, mode="replicate"), kernel)
    return planes
