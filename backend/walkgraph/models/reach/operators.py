"""The arm's world as operators: a scene, its picture, and the effect of actions."""

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Example, Operator
from walkgraph.abi.states import States
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.pictures import picture
from walkgraph.models.reach.words import colour

_SEED_BITS = 63


class RandomScene(Operator):
    """A seed gives the same scene everywhere; an instruction moves nothing in it, but may change a colour."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        scenes = [_scene(call) for call in calls]
        return [{"scene": scene, "joints": scene[:2]} for scene in scenes]


class Render(Operator):
    """One batch holds calls of one picture size."""

    pure: ClassVar[bool] = True

    def bucket(self, call: Call) -> Hashable:
        return call.params["side"]

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"scene": world.scene(0)}, params={"side": 64}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        pictures = picture(_scenes(calls), int(calls[0].params["side"]))
        return [{"pixels": pixels} for pixels in pictures]


class MoveArm(Operator):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [_driven(call, scene) for call, scene in zip(calls, _scenes(calls), strict=True)]


def _scene(call: Call) -> Tensor:
    """The scene from the run's seed, which is always among the parameters."""
    named = colour(call.inputs["instruction"])
    if named is None:
        message = (
            "an instruction names one target by its colour: `reach "
            f"the red ball`; the colours are {', '.join(world.COLOURS)}"
        )
        raise CallFailed(message, "instruction", code="invalid_input")
    return world.scene(int(call.params["seed"]) & ((1 << _SEED_BITS) - 1), named)


def _scenes(calls: Sequence[Call]) -> Tensor:
    """float32 `[B, WIDTH]`."""
    for call in calls:
        shape = list(call.inputs["scene"].shape)
        if shape != [world.WIDTH]:
            raise CallFailed(f"`{call.node}` takes a scene of {world.WIDTH} numbers, and got {shape}", "scene")
    return torch.stack([call.inputs["scene"] for call in calls]).float()


def _driven(call: Call, scene: Tensor) -> Outputs:
    actions: Any = call.inputs["actions"]
    if actions.dim() != 2 or actions.shape[1] != 2:
        message = f"`{call.node}` takes actions of two joints, and got {list(actions.shape)}"
        raise CallFailed(message, "actions")
    chosen = actions[None, : int(call.params["apply"])].to(scene.device, scene.dtype)
    after, taken = world.driven(scene[None], chosen)
    reached = bool(world.reached(after)[0])
    return {
        "scene": after[0],
        "joints": after[0, :2],
        "reached": reached,
        "taken": int(call.inputs.get("before") or 0) + int(taken[0]),
    }
