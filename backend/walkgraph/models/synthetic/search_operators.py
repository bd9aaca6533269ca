"""A miniature planner without weights: candidate paths tried side by side, each a sequence of one wide state.

All numbers are multiples of 1/1024, so sums are exact in any order: `forward` and `step` give bitwise equal results.
Shape letters: B rows of a batch, n steps of a path, w paths.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import PagedSlot, Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.on_device import OnDevice
from walkgraph.layers.attention.paged_blocks import paged_block_attention
from walkgraph.layers.sampling import draw

_GRID = 1024
_PAGE = 16


class Perturb(OnDevice):
    """w paths around one, each step of each moved by up to half of `reach`, at random by seed and iteration."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            numbers = call.seed, call.iteration[-1] if call.iteration else 0
            seed, iteration = (torch.tensor([number], device=self._device) for number in numbers)
            reach = torch.tensor([float(call.params["reach"])], device=self._device)
            ways = _spread(call.inputs["way"].float()[None], reach, seed, iteration, int(call.params["ways"]))
            outputs.append({"ways": ways[0]})
        return outputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        steps, ways = inputs["way"].shape[0], int(params["ways"])
        return StepSpec(
            inputs={"way": Row((steps,), torch.float32)},
            outputs={"ways": Row((steps, ways), torch.float32)},
            params={"reach": torch.float32},
            variant=ways,
        )

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"way": torch.zeros(3)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        given, ways = batch.inputs["way"], cast(int, batch.variant)
        ways = _spread(given, batch.params["reach"], batch.seed, batch.iteration, ways)
        return StepOutputs({"ways": ways})


class AttendStep(OnDevice):
    """Each path appends a number to its sequence, and gets the sum of the sequence plus the position."""

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float64)}

    def rows(self, call: Call) -> int:
        return call.inputs["items"].shape[0]

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"items": torch.ones(1)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        widths = [call.inputs["items"].shape[0] for call in calls]
        keys = [(call.states["kv"], at) for call, width in zip(calls, widths, strict=True) for at in range(width)]
        rows = torch.arange(len(keys), device=self._device).split(1)
        counts = [states.length(*key) + 1 for key in keys]
        positions = torch.tensor([states.position(*key) for key in keys], device=self._device)
        parts = [
            Segment(state=key, sequence=at, rows=mine, mode="causal")
            for (key, at), mine in zip(keys, rows, strict=True)
        ]
        attend = states.attend(parts)
        new = torch.cat([_appended(call.inputs["items"], call.inputs.get("before")) for call in calls])
        values = new.to(self._device).double()[:, None, None]
        blank = torch.zeros_like(values)
        means = attend(0, blank, blank, values)[:, 0, 0]
        states.commit(attend)
        found = _summed(means, torch.tensor(counts, device=self._device), positions)
        return [{"items": part} for part in found.split(widths)]

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        items = Row((inputs["items"].shape[0],), torch.float32)
        fed = {port: items for port in ("items", "before") if inputs.get(port) is not None}
        return StepSpec(inputs=fed, outputs={"items": items}, appends={"kv": 1})

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return ({"items": torch.zeros(1)},)

    def step(self, batch: StepBatch) -> StepOutputs:
        items, slot = batch.inputs["items"], batch.paged["kv"]
        new = _appended(items, batch.inputs.get("before")).flatten().double()
        index = slot.rows.rows.long()
        means = _attend(slot, index, new)
        found = _summed(means, slot.rows.lengths[index] + 1, slot.rows.positions[index])
        return StepOutputs({"items": found.view(items.shape)})


class ChooseNearest(OnDevice):
    """The path whose summed marks are nearest to `goal`."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        outputs: list[Outputs] = []
        for call in calls:
            ways, marks = call.inputs["ways"].float(), call.inputs["marks"].float()
            if ways.shape[1:] != marks.shape[1:]:
                raise CallFailed(
                    f"`{call.node}` takes marks of {ways.shape[1]} ways, and got {list(marks.shape)}", "marks"
                )
            goal = torch.tensor([float(call.params["goal"])], device=self._device)
            way, far = _choose(ways[None], marks[None], goal)
            outputs.append({"way": way[0], "far": far[0]})
        return outputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        ways, marks = (tuple(inputs[port].shape) for port in ("ways", "marks"))
        if ways[1:] != marks[1:]:
            return None
        return StepSpec(
            inputs={"ways": Row(ways, torch.float32), "marks": Row(marks, torch.float32)},
            outputs={"way": Row(ways[:1], torch.float32), "far": Row((1,), torch.float32)},
            params={"goal": torch.float32},
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        way, far = _choose(batch.inputs["ways"], batch.inputs["marks"], batch.params["goal"])
        return StepOutputs({"way": way, "far": far})


def _spread(way: Tensor, reach: Tensor, seed: Tensor, iteration: Tensor, ways: int) -> Tensor:
    """way `[B, n]`; reach, seed, iteration `[B]` -> `[B, n, w]`."""
    count = way.shape[1] * ways
    bits = draw(seed[:, None], iteration[:, None].long(), torch.arange(count, device=way.device)[None])
    apart = (bits & (_GRID - 1)).view(-1, way.shape[1], ways).float() / _GRID - 0.5
    return _gridded(way[:, :, None] + apart * reach[:, None, None])


def _appended(items: Tensor, before: Tensor | None) -> Tensor:
    return _gridded(items.float() if before is None else items.float() + before.float() / 4)


def _attend(slot: PagedSlot, index: Tensor, new: Tensor) -> Tensor:
    """Append float64 `[B * w]` to the sequences -> means `[B * w]` of each sequence after that."""
    at, pages = slot.rows.lengths[index].long(), slot.rows.pages[index].long()
    page = pages.gather(1, (at // _PAGE).clamp(max=pages.shape[1] - 1)[:, None])[:, 0]
    places, blank = page * _PAGE + at % _PAGE, torch.zeros_like(new)[:, None, None]
    slot.k[0][places] = blank
    slot.v[0][places] = new[:, None, None]
    return paged_block_attention(blank, slot.k[0], slot.v[0], slot.rows, 1, page=_PAGE)[:, 0, 0]


def _summed(means: Tensor, counts: Tensor, positions: Tensor) -> Tensor:
    """Float64 means `[R]` of numbers on the grid -> float32 sums `[R]` plus the positions."""
    return (_gridded(means * counts) + positions).float()


def _choose(ways: Tensor, marks: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
    """ways `[B, n, w]`, marks `[B, m, w]`, goal `[B]` -> the first of the best ways `[B, n]` and its distance `[B,
    1]`."""
    far = (marks.double().sum(1) - goal.double()[:, None]).abs()
    least = far.min(1, keepdim=True).values
    w = far.shape[1]
    order = torch.arange(w, device=far.device)
    best = torch.where(far == least, order, w).min(1, keepdim=True).values
    return ways.gather(2, best[:, None].expand(-1, ways.shape[1], -1))[:, :, 0], least.float()


def _gridded(x: Tensor) -> Tensor:
    return (x * _GRID).round() / _GRID
