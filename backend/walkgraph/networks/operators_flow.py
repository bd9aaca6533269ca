"""Flow matching without weights: noise, and one step of guided Euler integration."""

from collections.abc import Hashable, Sequence
from typing import Self, cast

import torch
from torch import Tensor

from walkgraph.networks import flow
from walkgraph.networks.base import Call, CallFailed, Example, LoadContext, Operator, Outputs, States

_SEED_BITS = 63


class Noise(Operator):
    """Drawn on the CPU whatever the device: a seed means the same noise everywhere."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(context.device)

    def rows(self, call: Call) -> int:
        return int(call.params["height"]) * int(call.params["width"])

    def examples(self) -> Sequence[Example]:
        return (Example(params={"height": 2, "width": 2, "channels": 4, "seed": 0}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"latents": _noise(call).to(self._device)} for call in calls]


class GuidedEuler(Operator):
    """Calls of one shape and one set of velocities are one batch; every norm is of one picture."""

    def bucket(self, call: Call) -> Hashable:
        shape = tuple(call.inputs["latents"].shape)
        return shape, _there(call, "velocity_text"), _there(call, "velocity_img"), call.params["renorm"]

    def rows(self, call: Call) -> int:
        height, width, _ = call.inputs["latents"].shape
        return height * width

    def examples(self) -> Sequence[Example]:
        grid = torch.ones(2, 2, 4)
        params = {"time": 1.0, "next_time": 0.5, "text_scale": 2.0, "img_scale": 1.0, "renorm": "global"}
        inputs = {"latents": grid, "velocity": grid, "velocity_text": grid}
        return (Example(inputs=inputs, params={**params, "renorm_min": 0.0}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        shape = calls[0].inputs["latents"].shape
        x = _stacked(calls, "latents")
        guided = flow.guide(
            _stacked(calls, "velocity"),
            _stacked(calls, "velocity_text") if _there(calls[0], "velocity_text") else None,
            _stacked(calls, "velocity_img") if _there(calls[0], "velocity_img") else None,
            text_scale=_column(calls, "text_scale", x),
            image_scale=_column(calls, "img_scale", x),
            renorm=cast(flow.Renorm, calls[0].params["renorm"]),
            renorm_min=_column(calls, "renorm_min", x),
        )
        time = _column(calls, "time", x)
        stepped = flow.euler(x, guided, time, _column(calls, "next_time", x))
        ended = flow.euler(x, guided, time, torch.zeros_like(time))
        return [
            {"latents": one.view(shape), "estimate": end.view(shape)} for one, end in zip(stepped, ended, strict=True)
        ]


def _noise(call: Call) -> Tensor:
    """float32 `[h, w, c]`; the run's seed is always among the parameters."""
    seed = int(call.params["seed"]) & ((1 << _SEED_BITS) - 1)
    shape = [int(call.params[name]) for name in ("height", "width", "channels")]
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed))


def _there(call: Call, port: str) -> bool:
    return call.inputs.get(port) is not None


def _stacked(calls: Sequence[Call], port: str) -> Tensor:
    """float32 `[B, N, C]`."""
    for call in calls:
        if call.inputs[port].shape != call.inputs["latents"].shape:
            shapes = f"{list(call.inputs[port].shape)} and {list(call.inputs['latents'].shape)}"
            raise CallFailed(f"`{call.node}` takes a velocity of the latents' shape, and got {shapes}", port)
    return torch.stack([call.inputs[port] for call in calls]).float().flatten(1, 2)


def _column(calls: Sequence[Call], name: str, x: Tensor) -> Tensor:
    """float32 `[B, 1, 1]`."""
    return torch.tensor([float(call.params[name]) for call in calls], device=x.device)[:, None, None]
