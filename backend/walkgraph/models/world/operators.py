"""The shape's world as operators: a scene, its picture, the effect of an action, and a model's imagination of it."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, Unpack

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.on_device import OnDevice
from walkgraph.architectures.weights import Loading, load
from walkgraph.checkpoints.fields import read_object
from walkgraph.errors import InvalidInput
from walkgraph.models.world import scene as world
from walkgraph.models.world.drives import cut, drive
from walkgraph.models.world.painter import GRID, Painter, PainterConfig
from walkgraph.models.world.picture import picture

_SEED_BITS = 63
_ACTION = 7
_GAP = 2
"""Pixels between two pictures, before enlarging."""
_GREY = 0.35
_PIXELS = Row((3, world.SIDE, world.SIDE), torch.float32)
_SCENE = Row((world.NUMBERS,), torch.float32)
_POSE = Row((_ACTION,), torch.float32)


class RandomScene(OnDevice):
    """A seed gives the same scene everywhere."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        scene = world.drawn([_seed(call) for call in calls]).numbers()
        goal = picture(world.at_goal(world.Scene.of(scene)))
        scene, goal = scene.to(self._device), goal.to(self._device)
        return [{"scene": one, "goal": seen} for one, seen in zip(scene, goal, strict=True)]


class StoreScene(Operator):
    """Keeps the scene given, and outputs the one kept."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"scene": self._kept(call, states)} for call in calls]

    def _kept(self, call: Call, states: States) -> Tensor:
        scene = call.inputs.get("scene")
        if scene is not None:
            # A copy: a view would keep the whole batch alive.
            states.put(call.states["scene"], scene.clone())
            return scene
        kept = states.tensor(call.states["scene"])
        if kept is None:
            message = f"`{call.node}` has no scene yet; begin it first, by a task that draws one, in the same `session`"
            raise CallFailed(message, "scene", code="invalid_input")
        return kept


class ScriptedActions(OnDevice):
    """The client's actions, or else those of the named drive."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"actions": self._driven(call).to(self._device)} for call in calls]

    def _driven(self, call: Call) -> Tensor:
        length, actions = int(call.params["horizon"]), call.inputs.get("actions")
        if actions is None:
            return drive(str(call.params["drive"]), length, _seed(call))
        actions = actions[None] if actions.dim() == 1 else actions  # a single row, as a person types it
        if actions.dim() != 2 or actions.shape[1] != _ACTION:
            message = f"`{call.node}` takes rows of {_ACTION} numbers, one an action, and got {list(actions.shape)}"
            raise CallFailed(message, "actions", code="invalid_input")
        return cut(actions, length)


class Rows(Operator, Protocol):
    """An operator on rows of fixed shapes: `forward` stacks them, `step` gets them stacked."""

    def takes(self) -> Mapping[str, Row]:
        """Port -> its row, for ports that always have a value."""
        ...

    def gives(self, params: Mapping[str, Scalar], given: Mapping[str, Any]) -> Mapping[str, Row]:
        """Port -> its row."""
        ...

    def work(self, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> dict[str, Tensor]:
        """The inputs stacked -> port -> `[B, *row]`."""
        ...

    def optional(self) -> Mapping[str, Row]:
        return {}

    def bucket(self, call: Call) -> Hashable:
        return tuple(sorted(call.inputs)), tuple(sorted(call.params.items())) if self._sized() else None

    def examples(self) -> Sequence[Example]:
        inputs = {port: torch.zeros(row.shape) for port, row in self.takes().items()}
        return (Example(inputs=inputs, params=self._sized()),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            wrong = _misfit(call.inputs, {**self.optional(), **self.takes()})
            if wrong is not None:
                shape, wanted = list(call.inputs[wrong[0]].shape), list(wrong[1].shape)
                raise CallFailed(f"`{call.node}.{wrong[0]}` takes {wanted}, and got {shape}", wrong[0])
        given = {port: torch.stack([call.inputs[port] for call in calls]) for port in calls[0].inputs}
        made = self.work(given, calls[0].params)
        return [{port: rows[at] for port, rows in made.items()} for at in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        rows = {**self.takes(), **{p: row for p, row in self.optional().items() if isinstance(inputs.get(p), Tensor)}}
        if any(not isinstance(inputs.get(port), Tensor) for port in rows) or _misfit(inputs, rows) is not None:
            return None
        sized = tuple(sorted((name, params[name]) for name in self._sized()))
        return StepSpec(inputs=rows, outputs=self.gives(params, inputs), variant=sized, pure=True)

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({port: torch.zeros(row.shape) for port, row in self.takes().items()},)

    def step(self, batch: StepBatch) -> StepOutputs:
        sized: Any = batch.variant
        return StepOutputs(self.work(batch.inputs, dict(sized)))

    def _sized(self) -> Mapping[str, Scalar]:
        """Parameters that decide the shape of inputs, with example values."""
        return {}


class SimulateAction(Rows):
    """Computes the effect of an action."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        """Like `Rows.forward`, with `reached` as a Python bool, as a caller outside of loops always reads it."""
        return [{**one, "reached": bool(one["reached"])} for one in super().forward(calls, states)]

    def takes(self) -> Mapping[str, Row]:
        return {"scene": _SCENE, "action": _POSE}

    def gives(self, params: Mapping[str, Scalar], given: Mapping[str, Any]) -> Mapping[str, Row]:
        return {"scene": _SCENE, "off": Row((1,), torch.float32), "reached": Row((), torch.bool)}

    def work(self, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> dict[str, Tensor]:
        scene = world.moved(world.Scene.of(given["scene"].float()), given["action"].float())
        off, reached = world.apart(scene)
        return {"scene": scene.numbers(), "off": off[:, None] * world.SIDE, "reached": reached}


class Render(Rows):
    """Draws the picture of a scene."""

    pure: ClassVar[bool] = True

    def takes(self) -> Mapping[str, Row]:
        return {"scene": _SCENE}

    def gives(self, params: Mapping[str, Scalar], given: Mapping[str, Any]) -> Mapping[str, Row]:
        return {"pixels": _PIXELS, "pose": _POSE}

    def work(self, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> dict[str, Tensor]:
        scene = world.Scene.of(given["scene"].float())
        return {"pixels": picture(scene), "pose": scene.pose()}


class PaintFeatures(Rows):
    """Paints the picture that features stand for."""

    pure: ClassVar[bool] = True

    def __init__(self, painter: Painter, dtype: torch.dtype) -> None:
        self._painter, self._dtype = painter, dtype
        self._features = Row((GRID**2, painter.config.features), dtype)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(painter_of(context), context.dtype)

    def takes(self) -> Mapping[str, Row]:
        return {"features": self._features}

    def gives(self, params: Mapping[str, Scalar], given: Mapping[str, Any]) -> Mapping[str, Row]:
        return {"pixels": _PIXELS, "pose": _POSE}

    def work(self, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> dict[str, Tensor]:
        features = given["features"].to(self._dtype)
        read = self._painter.reading(features)
        nothing = torch.zeros_like(read.place)
        pose = torch.cat([read.place, nothing, nothing, read.grip[:, None]], -1)
        return {"pixels": self._painter(features).float().clamp(-1, 1), "pose": pose}


class ComparePictures(Rows):
    """Two pictures side by side, enlarged."""

    pure: ClassVar[bool] = True

    def takes(self) -> Mapping[str, Row]:
        return {"left": _PIXELS, "right": _PIXELS}

    def optional(self) -> Mapping[str, Row]:
        return {"left_pose": _POSE, "right_pose": _POSE}

    def gives(self, params: Mapping[str, Scalar], given: Mapping[str, Any]) -> Mapping[str, Row]:
        scale = int(params["scale"])
        made = {"pixels": Row((3, world.SIDE * scale, (2 * world.SIDE + _GAP) * scale), torch.float32)}
        poses = all(isinstance(given.get(port), Tensor) for port in self.optional())
        return {**made, "off": Row((1,), torch.float32)} if poses else made

    def work(self, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> dict[str, Tensor]:
        left, right = given["left"].float(), given["right"].float()
        both = torch.cat([left, torch.full_like(left[..., :_GAP], _GREY), right], -1)
        scale = int(params["scale"])
        made = {"pixels": both.repeat_interleave(scale, -1).repeat_interleave(scale, -2)}
        if all(port in given for port in self.optional()):
            off = given["left_pose"][:, :2].float() - given["right_pose"][:, :2].float()
            made["off"] = off.norm(dim=-1, keepdim=True) * world.SIDE
        return made

    def _sized(self) -> Mapping[str, Scalar]:
        return {"scale": 1}


def painter_of(context: LoadContext) -> Painter:
    """The painter of the weight set, drawn or read once."""
    on: dict[str, Any] = {"device": context.device, "dtype": context.dtype}
    return context.once(
        Painter,
        lambda name, seed: drawn(lambda: Painter(PainterConfig()), seed, **on),
        lambda folder: load_painter(folder, **on, progress=context.progress),
    )


def load_painter(folder: Path, **on: Unpack[Loading]) -> Painter:
    """`painter.json` and `painter.safetensors` of a weights folder; raises `NotFound` and `InvalidInput`."""
    try:
        config = PainterConfig.from_json(read_object(folder / "painter.json"))
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(f"`painter.json` in `{folder.name}` does not describe a painter: {error}") from error
    return load(lambda: Painter(config), folder, "painter", **on)


def _seed(call: Call) -> int:
    """The run's seed, which is always among the parameters."""
    return int(call.params["seed"]) & ((1 << _SEED_BITS) - 1)


def _misfit(inputs: Mapping[str, Any], rows: Mapping[str, Row]) -> tuple[str, Row] | None:
    """The first input with a wrong shape, and its expected row."""
    wrong = (
        (port, row) for port, row in rows.items() if port in inputs and tuple(inputs[port].shape) != tuple(row.shape)
    )
    return next(wrong, None)
