"""Operators around V-JEPA 2-AC's predictor that have no weights: the effect of an action on a pose, a session's arm,
and planning."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.on_device import OnDevice
from walkgraph.layers.poses import move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.model import ACTION

_LENGTHS = 8
_MOMENTA = ("momentum_mean", "momentum_std", "momentum_mean_grip", "momentum_std_grip")


class ApplyAction(Operator):
    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["pose"].shape), tuple(call.inputs["action"].shape)

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"pose": torch.zeros(ACTION), "action": torch.zeros(ACTION)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        _check(calls, _moved, ("pose", "action"), f"poses and actions of {ACTION} numbers")
        moved = _after(*(torch.stack([call.inputs[port] for call in calls]) for port in ("pose", "action")))
        return [{"pose": pose} for pose in moved]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        shape = _moved(inputs)
        if shape is None:
            return None
        return StepSpec(
            inputs={port: Row(tuple(inputs[port].shape), torch.float32) for port in ("pose", "action")},
            outputs={"pose": Row(shape, torch.float32)},
            pure=True,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"pose": torch.zeros(ACTION), "action": torch.zeros(ACTION)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        return StepOutputs({"pose": _after(batch.inputs["pose"], batch.inputs["action"])})


class StoreObservation(Operator):
    """Keeps the values given, and outputs those kept."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._stand(call, states) for call in calls]

    def _stand(self, call: Call, states: States) -> Outputs:
        for slot, port in (("pose", "pose"), ("last", "features")):
            value = call.inputs.get(port)
            if value is not None and slot in call.states:
                states.put(call.states[slot], value.clone())
        pose = call.inputs.get("pose")
        pose = states.tensor(call.states["pose"]) if pose is None else pose
        if pose is None or pose.shape != (ACTION,):
            problem = "doesn't know where the arm stands" if pose is None else f"got a pose {list(pose.shape)}"
            message = f"`{call.node}` {problem}; begin the session with a pose of {ACTION} numbers"
            raise CallFailed(message, "pose", code="invalid_input")
        return {"pose": pose}


class InitialPlan(OnDevice):
    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._begun(int(c.params["horizon"]), float(c.params["max_norm"])) for c in calls]

    def _begun(self, horizon: int, max_norm: float) -> Outputs:
        mean, std = planning.rest(horizon, max_norm, device=self._device)
        return {"mean": mean, "std": std}


class SampleActions(Operator):
    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["mean"].shape), call.params["samples"]

    def rows(self, call: Call) -> int:
        return int(call.params["samples"])

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        mean, std = (torch.stack([call.inputs[port] for call in calls]) for port in ("mean", "std"))
        drawn = [[c.seed, c.iteration[-1] if c.iteration else 0] for c in calls]
        seed, number = torch.tensor(drawn).to(mean.device, non_blocking=True).unbind(1)
        norm = torch.tensor([float(c.params["max_norm"]) for c in calls]).to(mean.device, non_blocking=True)
        drawn = _drawn(seed, number, mean, std, norm, int(calls[0].params["samples"]))
        return [{"actions": actions} for actions in drawn]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        mean, std = inputs.get("mean"), inputs.get("std")
        if not isinstance(mean, Tensor) or not isinstance(std, Tensor) or mean.dim() != 2 or mean.shape != std.shape:
            return None
        samples = int(params["samples"])
        row = Row(tuple(mean.shape), torch.float32)
        return StepSpec(
            inputs={"mean": row, "std": row},
            outputs={"actions": Row((mean.shape[0], samples, ACTION), torch.float32)},
            params={"max_norm": torch.float32},
            variant=samples,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        """Plans of several lengths; only those that the surrounding loops use are prepared."""
        return tuple(dict.fromkeys(("mean", "std"), torch.zeros(length, ACTION)) for length in range(1, _LENGTHS + 1))

    def step(self, batch: StepBatch) -> StepOutputs:
        mean, std = batch.inputs["mean"], batch.inputs["std"]
        samples = batch.variant
        if not isinstance(samples, int):
            raise TypeError("a spec of `propose` needs its number of samples")
        norm = batch.params["max_norm"]
        return StepOutputs({"actions": _drawn(batch.seed, batch.iteration, mean, std, norm, samples)})


class GoalDistance(Operator):
    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["features"].shape)

    def rows(self, call: Call) -> int:
        return call.inputs["features"].shape[0]

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        _check(calls, _apart, ("features", "goal"), "features `[w, n, d]` and a goal `[n, d]`")
        # One by one: a round's features are large, and stacked copies would be larger.
        costs = [planning.distance(c.inputs["features"][None], c.inputs["goal"][None])[0] for c in calls]
        return [{"cost": cost} for cost in costs]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        width = _apart(inputs)
        if width is None:
            return None
        shape, dtype = tuple(inputs["features"].shape), inputs["features"].dtype
        return StepSpec(
            inputs={"features": Row(shape, dtype), "goal": Row(shape[1:], dtype)},
            outputs={"cost": Row((width,), torch.float32)},
            pure=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        return StepOutputs({"cost": planning.distance(batch.inputs["features"], batch.inputs["goal"])})


class RefinePlan(Operator):
    def bucket(self, call: Call) -> Hashable:
        return tuple(call.inputs["actions"].shape), call.params["top"]

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        top = _top(calls[0].params, calls[0].inputs["cost"], calls[0].node)
        stacked = {port: torch.stack([c.inputs[port] for c in calls]) for port in ("actions", "cost", "mean", "std")}
        given = torch.tensor([[float(c.params[name]) for name in _MOMENTA] for c in calls])
        shares = planning.Momentum(*given.to(stacked["mean"].device, non_blocking=True).unbind(1))
        found = _refined(stacked, shares, top)
        return [{port: rows[at] for port, rows in found.items()} for at in range(len(calls))]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        parts = [inputs.get(port) for port in ("actions", "cost", "mean", "std")]
        if not all(isinstance(part, Tensor) for part in parts):
            return None
        actions, cost, mean, std = (tuple(part.shape) for part in parts if isinstance(part, Tensor))
        if len(actions) != 3 or cost != actions[1:2] or not mean == std == (actions[0], ACTION):
            return None
        row = Row(mean, torch.float32)
        return StepSpec(
            inputs={
                "actions": Row(actions, torch.float32),
                "cost": Row(cost, torch.float32),
                "mean": row,
                "std": row,
            },
            outputs={"mean": row, "std": row, "action": Row((ACTION,), torch.float32)},
            params=dict.fromkeys(_MOMENTA, torch.float32),
            variant=_top(params, inputs["cost"], "refine"),
            pure=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        top = batch.variant
        if not isinstance(top, int):
            raise TypeError("a spec of `refine` needs its number of sequences to keep")
        shares = planning.Momentum(*(batch.params[name] for name in _MOMENTA))
        return StepOutputs(_refined(batch.inputs, shares, top))


def _check(
    calls: Sequence[Call], fitted: Callable[[Mapping[str, Any]], Any], ports: tuple[str, str], wanted: str
) -> None:
    """Raise CallFailed if `fitted` returns None for the values at a call's ports."""
    for call in calls:
        if fitted(call.inputs) is None:
            shapes = " and ".join(f"`{port}` {list(call.inputs[port].shape)}" for port in ports)
            message = f"`{call.node}` takes {wanted}, and got {shapes}"
            raise CallFailed(message, ports[-1], code="invalid_input")


def _after(pose: Tensor, action: Tensor) -> Tensor:
    """Poses after actions, `[B, 7]` or `[B, w, 7]`; an input without a sample axis holds for all samples."""
    axes = max(pose.dim(), action.dim())
    return move(*(part.unsqueeze(1) if part.dim() < axes else part for part in (pose.float(), action.float())))


def _moved(inputs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The shape of the resulting pose; None if the inputs don't fit."""
    parts = [inputs.get(port) for port in ("pose", "action")]
    shapes = [tuple(part.shape) for part in parts if isinstance(part, Tensor)]
    longest = max(shapes, key=len, default=())
    fits = len(shapes) == 2 and len(longest) in (1, 2) and longest[-1:] == (ACTION,)
    return longest if fits and all(shape in (longest, (ACTION,)) for shape in shapes) else None


def _drawn(seed: Tensor, number: Tensor, mean: Tensor, std: Tensor, norm: Tensor, samples: int) -> Tensor:
    return planning.propose(planning.normals(seed, number, mean.shape[1], samples), mean, std, norm)


def _apart(inputs: Mapping[str, Any]) -> int | None:
    """The number of samples compared with a goal; None if the shapes don't fit. An unknown goal fits."""
    features, goal = inputs.get("features"), inputs.get("goal")
    if not isinstance(features, Tensor) or features.dim() != 3:
        return None
    return features.shape[0] if goal is None or features.shape[1:] == goal.shape else None


def _top(params: Mapping[str, Scalar], cost: Tensor, node: str) -> int:
    top = int(params["top"])
    if top > cost.shape[0]:
        message = f"`{node}` keeps the best `top` {top} of {cost.shape[0]} sequences; draw more, or keep fewer"
        raise CallFailed(message, "cost", code="invalid_input")
    return top


def _refined(given: Mapping[str, Tensor], momentum: planning.Momentum, top: int) -> dict[str, Tensor]:
    mean, std = planning.refine(given["actions"], given["cost"], given["mean"], given["std"], momentum, top)
    return {"mean": mean, "std": std, "action": planning.chosen(mean)}
