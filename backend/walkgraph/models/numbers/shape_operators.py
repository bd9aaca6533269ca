"""Shapes of tensors: sizes, slices, stacks, reshapes."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.plain.values import few, invalid, small, tensor, whole
from walkgraph.graph.language.literals import sizes_of
from walkgraph.graph.language.shaping import Listed, listed_ports
from walkgraph.graph.ports import parse_type


class Shape(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._sizes(call) for call in calls]

    def _sizes(self, call: Call) -> Outputs:
        value = tensor(call, "value")
        axis = _axis(call, "value", value.dim())
        return {
            "sizes": torch.tensor(value.shape, dtype=torch.int64),
            "size": value.shape[axis],
            "count": value.numel(),
        }


class Select(Operator):
    options: ClassVar[tuple[str, ...]] = ("to",)
    pure: ClassVar[bool] = True

    def __init__(self, single: bool) -> None:
        self._single = single

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_is_number(context))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": self._slice(call)} for call in calls]

    def _slice(self, call: Call) -> Any:
        values = tensor(call, "values")
        index = whole(call, "index") if "index" in call.inputs else int(call.params["index"])
        size = values.shape[0] if values.dim() else 0
        if not -size <= index < size:
            raise invalid(call, "index", f"takes slice {index} of a tensor {list(values.shape)}")
        return _given(call, values[index], self._single)


class Stack(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"values": self._stacked(call)} for call in calls]

    def _stacked(self, call: Call) -> Tensor:
        ports = [port for port in listed_ports(str(call.params["ports"])) if port.name in call.inputs]
        if not ports:
            raise invalid(call, None, "takes at least one tensor")
        names, values = [port.name for port in ports], [_entered(call, port) for port in ports]
        concat = call.params["how"] == "concat"
        axis = _axis(call, names[0], values[0].dim() + (not concat))
        wanted = _rest(values[0], axis, concat)
        for name, value in zip(names, values, strict=True):
            if value.dim() != values[0].dim() or _rest(value, axis, concat) != wanted:
                shapes = f"{list(values[0].shape)} and {list(value.shape)}"
                raise invalid(call, name, f"can't put shapes {shapes} together along axis {axis}")
        small(call, names[0], (sum(value.numel() for value in values),))
        dtype = values[0].dtype
        for value in values[1:]:
            dtype = torch.promote_types(dtype, value.dtype)
        same = [value.to(dtype) for value in values]
        return torch.cat(same, axis) if concat else torch.stack(same, axis)


class Unstack(Operator):
    options: ClassVar[tuple[str, ...]] = ("to",)
    pure: ClassVar[bool] = True

    def __init__(self, single: bool) -> None:
        self._single = single

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_is_number(context))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"items": self._slices(call)} for call in calls]

    def _slices(self, call: Call) -> list[Any]:
        values = tensor(call, "values")
        axis = _axis(call, "values", values.dim())
        few(call, "values", values.shape[axis])
        return [_given(call, one, self._single) for one in values.unbind(axis)]


class Reshape(Operator):
    options: ClassVar[tuple[str, ...]] = ("shape",)
    pure: ClassVar[bool] = True

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(sizes_of(str(context.options.get("shape", "-1")), left=True))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": self._reshaped(call)} for call in calls]

    def _reshaped(self, call: Call) -> Tensor:
        value = tensor(call, "value")
        known = torch.Size(size for size in self._shape if size != -1).numel()
        fits = value.numel() == known if -1 not in self._shape else known and value.numel() % known == 0
        if not fits:
            raise invalid(call, "value", f"can't give a tensor {list(value.shape)} the shape {list(self._shape)}")
        return value.reshape(self._shape)


def _entered(call: Call, port: Listed) -> Tensor:
    """The tensor at a port. A scalar of a request is a tensor `[1]`, and counts as one without axes."""
    value = tensor(call, port.name)
    one = value.numel() == 1 and port.type is not None and port.type.modality in ("scalar", "flag")
    return value.reshape(()) if one else value


def _axis(call: Call, port: str, axes: int) -> int:
    """The call's axis, counted from the first."""
    axis = int(call.params["axis"])
    if not -axes <= axis < axes:
        raise invalid(call, port, f"takes a tensor with an axis {axis}; it has {axes}")
    return axis % axes


def _rest(value: Tensor, axis: int, concat: bool) -> list[int]:
    """The sizes that tensors must share."""
    return [size for place, size in enumerate(value.shape) if not (concat and place == axis)]


def _is_number(context: LoadContext) -> bool:
    """True if slices are single numbers of the host."""
    return parse_type(str(context.options.get("to", "tensor"))).modality in ("scalar", "flag")


def _given(call: Call, value: Tensor, single: bool) -> Any:
    if not single:
        return value
    if value.numel() != 1:
        raise invalid(call, "values", f"makes single numbers of slices {list(value.shape)}")
    return value.reshape(()).tolist()
