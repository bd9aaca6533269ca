"""Flow matching without weights: noise, and one step of guided Euler integration."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.on_device import OnDevice
from walkgraph.models.flow import sampler

_SEED_BITS = 63
_NUMBERS = ("time", "next_time", "text_scale", "img_scale", "renorm_min")
_VELOCITIES = ("velocity", "velocity_text", "velocity_img")


class Noise(OnDevice):
    """Drawn on the CPU for every device, so a seed gives the same noise everywhere."""

    def rows(self, call: Call) -> int:
        height, width = _grid(call)
        return height * width

    def examples(self) -> Sequence[Example]:
        return (Example(params={"height": 2, "width": 2, "channels": 4, "seed": 0}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"latents": _noise(call).to(self._device)} for call in calls]


class GuidedEuler(Operator):
    """One batch holds calls of one shape and one set of velocities; every norm is taken over one picture."""

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
        there = [port for port in ("latents", *_VELOCITIES) if _there(calls[0], port)]
        values = {port: _stacked(calls, port) for port in there}
        on = values["latents"].device
        numbers = {name: torch.tensor([float(c.params[name]) for c in calls], device=on) for name in _NUMBERS}
        stepped, ended = _stepped(values, numbers, str(calls[0].params["renorm"]))
        return [
            {"latents": one.view(shape), "estimate": end.view(shape)} for one, end in zip(stepped, ended, strict=True)
        ]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        """Latents enter the loop; velocities come from inside it, some possibly only in some iterations."""
        latents, renorm = inputs.get("latents"), params.get("renorm")
        if not isinstance(latents, Tensor) or latents.dim() != 3 or not isinstance(renorm, str):
            return None
        row = Row(tuple(latents.shape), torch.float32)
        return StepSpec(
            inputs=dict.fromkeys(("latents", *_VELOCITIES), row),
            outputs={"latents": row, "estimate": row},
            params=dict.fromkeys(_NUMBERS, torch.float32),
            variant=renorm,
            pure=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        latents = batch.inputs["latents"]
        values = {port: value.flatten(1, 2) for port, value in batch.inputs.items()}
        stepped, ended = _stepped(values, batch.params, str(batch.variant))
        return StepOutputs({"latents": stepped.view(latents.shape), "estimate": ended.view(latents.shape)})


def _stepped(values: Mapping[str, Tensor], numbers: Mapping[str, Tensor], renorm: str) -> tuple[Tensor, Tensor]:
    """Latents and the velocities present, float32 `[B, N, C]`; numbers `[B]` -> latents at the next time and estimates
    at time 0, of the same shape."""
    x, at = values["latents"], {name: number[:, None, None] for name, number in numbers.items()}
    guided = sampler.guide(
        values["velocity"],
        values.get("velocity_text"),
        values.get("velocity_img"),
        text_scale=at["text_scale"],
        image_scale=at["img_scale"],
        renorm=cast(sampler.Renorm, renorm),
        renorm_min=at["renorm_min"],
    )
    stepped = sampler.euler(x, guided, at["time"], at["next_time"])
    return stepped, sampler.euler(x, guided, at["time"], torch.zeros_like(at["time"]))


def _noise(call: Call) -> Tensor:
    """float32 `[h, w, c]`; the run's seed is always among the parameters."""
    seed = int(call.params["seed"]) & ((1 << _SEED_BITS) - 1)
    shape = (*_grid(call), int(call.params["channels"]))
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed))


def _grid(call: Call) -> tuple[int, int]:
    """Rows and columns; a side that isn't set is taken from the latents at `like`."""
    like: Tensor | None = call.inputs.get("like")
    sides = [int(call.params[name]) for name in ("height", "width")]
    height, width = (side or (0 if like is None else like.shape[axis]) for axis, side in enumerate(sides))
    if not height or not width:
        raise CallFailed(f"`{call.node}` has no size; set its `height` and `width`, or give it latents to be like")
    return height, width


def _there(call: Call, port: str) -> bool:
    return call.inputs.get(port) is not None


def _stacked(calls: Sequence[Call], port: str) -> Tensor:
    """The calls' values at one port, float32 `[B, N, C]`."""
    for call in calls:
        if call.inputs[port].shape != call.inputs["latents"].shape:
            shapes = f"{list(call.inputs[port].shape)} and {list(call.inputs['latents'].shape)}"
            raise CallFailed(f"`{call.node}` takes a velocity of the latents' shape, and got {shapes}", port)
    return torch.stack([call.inputs[port] for call in calls]).float().flatten(1, 2)
