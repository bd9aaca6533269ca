"""Pictures of equal shapes served as one stack, and what operators read of parameters."""

import re
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.pictures import pixels_of

PIXELS_A_ROW = 1024
"""Pixels that count as one row of a batch."""
_COLOR = re.compile(r"#[0-9a-fA-F]{6}", re.ASCII)


class Stacked(Operator):
    """Serves calls with equal parameters and shapes in one batch: `made` gets stacks `[B, ...]` and gives stacks."""

    pure: ClassVar[bool] = True
    pictures: ClassVar[tuple[str, ...]] = ("pixels",)
    """The ports that are pictures."""

    def bucket(self, call: Call) -> Hashable:
        shapes = [(name, tuple(value.shape)) for name, value in call.inputs.items() if isinstance(value, Tensor)]
        return tuple(sorted(shapes)), tuple(sorted(call.params.items()))

    def rows(self, call: Call) -> int:
        return 1 + sum(value.numel() for value in call.inputs.values() if isinstance(value, Tensor)) // PIXELS_A_ROW

    def read(self, call: Call) -> dict[str, Tensor]:
        """The tensors of a call. Raises `CallFailed` for others than the operator takes."""
        return {name: pixels_of(call, name) for name in self.pictures}

    @abstractmethod
    def made(self, call: Call, given: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Tensor]:
        """Serve stacks of inputs. `call` is one of those served, for messages."""

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        read = [self.read(call) for call in calls]
        if len(read) == 1:
            given = {name: value[None] for name, value in read[0].items()}
        else:
            given = {name: torch.stack([one[name] for one in read]) for name in read[0]}
        made = self.made(calls[0], given, calls[0].params)
        return [{name: value[index] for name, value in made.items()} for index in range(len(calls))]


def color_of(call: Call) -> tuple[int, int, int]:
    """The levels of red, green and blue of a call's `color`. Raises `CallFailed`."""
    color = str(call.params["color"])
    if not _COLOR.fullmatch(color):
        message = f"`color` of `{call.node}` is a colour such as `#ff8800`: six hexadecimal digits after `#`"
        raise CallFailed(message, code="invalid_input")
    red, green, blue = bytes.fromhex(color[1:])
    return red, green, blue


def color_pixel(call: Call, like: Tensor) -> Tensor:
    """A call's `color` as one pixel `[3, 1, 1]` in [-1, 1], where `like` is."""
    return torch.tensor([level / 127.5 - 1 for level in color_of(call)], device=like.device)[:, None, None]
