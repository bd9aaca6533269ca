"""Constants, arithmetic, comparisons, casts, statistics and random numbers.

Numbers of the host are computed with as they are; what is on a device stays there.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.on_device import OnDevice
from walkgraph.architectures.plain.values import (
    INTEGERS,
    invalid,
    number,
    shortest,
    small,
    tensor,
    written,
)
from walkgraph.graph.language.literals import constant_of, dense, sizes_of
from walkgraph.graph.ports import PortType, parse_type
from walkgraph.layers.sampling import draw

Number = int | float

_DTYPES = {"float": torch.float32, "int": torch.int64, "bool": torch.bool}
_COMPARED: Mapping[str, Callable[[Number, Number], bool]] = {
    "less": operator.lt,
    "at_most": operator.le,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "at_least": operator.ge,
    "more": operator.gt,
}
_NUMBERS: Mapping[str, Callable[[Number, Number], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "minimum": min,
    "maximum": max,
}
_TENSORS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.true_divide,
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "power": lambda a, b: torch.pow(a.float(), b.float()),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
}
_DIVIDING = ("divide", "floor_divide", "remainder")
_ROUNDED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "truncate": torch.trunc,
    "nearest": torch.round,
    "down": torch.floor,
    "up": torch.ceil,
}
_MOST_BITS = 1024
"""Bits of a power that is worth computing; the largest float has as many."""
_BELOW = 2.0**-53
_LARGE = 2.0**127
"""Smaller numbers are finite as float32."""


class Constant(Operator):
    options: ClassVar[tuple[str, ...]] = ("type", "value")
    pure: ClassVar[bool] = True

    def __init__(self, value: Any, device: torch.device) -> None:
        self._value = value.to(device) if isinstance(value, Tensor) else value

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        kind = parse_type(str(context.options.get("type", "scalar")))
        return cls(_read(kind, str(context.options.get("value", "0"))), context.device)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        value = self._value
        # A list of its own for each reader, who may keep it.
        return [{"value": list(cast("list[Any]", value)) if isinstance(value, list) else value} for _ in calls]


class Value(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": call.params["value"]} for call in calls]


class Arithmetic(Operator):
    options: ClassVar[tuple[str, ...]] = ("type",)
    pure: ClassVar[bool] = True

    def __init__(self, single: bool) -> None:
        self._single = single

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(parse_type(str(context.options.get("type", "scalar"))).modality == "scalar")

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"result": self._computed(call, str(call.params["operation"]))} for call in calls]

    def _computed(self, call: Call, operation: str) -> Any:
        """The result; a number of the host for two numbers of the host."""
        a, b = call.inputs["a"], call.inputs.get("b", call.params["number"])
        if self._on_host(a) and self._on_host(b):
            return _of_numbers(call, operation, number(call, "a"), _second(call))
        return _of_tensors(call, operation)

    def _on_host(self, value: Any) -> bool:
        """A scalar of a request is a tensor `[1]`."""
        if not isinstance(value, Tensor):
            return True
        return (value.numel() == 1 if self._single else value.dim() == 0) and value.device.type == "cpu"


class Compare(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"flag": _COMPARED[str(call.params["comparison"])](number(call, "a"), _second(call))} for call in calls]


class Cast(Operator):
    options: ClassVar[tuple[str, ...]] = ("to",)
    pure: ClassVar[bool] = True

    def __init__(self, to: PortType) -> None:
        self._to = to

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(parse_type(str(context.options.get("to", "scalar: int"))))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": self._cast(call)} for call in calls]

    def _cast(self, call: Call) -> Any:
        if self._to.modality == "text":
            found = shortest(call.inputs["value"])
            if found is None:
                raise invalid(call, "value", "writes one number as text")
            return written(found)
        value = tensor(call, "value")
        dtype = torch.bool if self._to.modality == "flag" else _DTYPES.get(self._to.dtype or "")
        if dtype == torch.int64 and value.is_floating_point():
            value = _ROUNDED[str(call.params["rounding"])](value.double())
            if value.numel() and float(value.abs().max()) >= 2.0**63:
                raise invalid(call, "value", "takes numbers that a whole number of 64 bits can hold")
        value = value if dtype is None else value.to(dtype)
        if dense(self._to):
            return value
        if value.numel() != 1:
            raise invalid(call, "value", f"makes a `{self._to.modality}` of one number")
        return value.reshape(()).tolist()


class Statistics(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [_statistics(call) for call in calls]


class Random(OnDevice):
    """Bits come from the seed, the place of the call in its run, and the index of the number. They are drawn on the CPU
    for every device."""

    options: ClassVar[tuple[str, ...]] = ("shape",)

    def __init__(self, device: torch.device, shape: tuple[int, ...] = ()) -> None:
        super().__init__(device)
        self._shape = shape

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(context.device, sizes_of(str(context.options.get("shape", ""))))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"value": self._drawn(call)} for call in calls]

    def _drawn(self, call: Call) -> Any:
        small(call, None, self._shape)
        value = _drawn(call, torch.Size(self._shape).numel())
        return value.reshape(self._shape).to(self._device) if self._shape else value.tolist()[0]


def _read(kind: PortType, text: str) -> Any:
    value = constant_of(kind, text)
    if not dense(kind):
        return value
    dtype = torch.bool if kind.modality == "flag" else _DTYPES.get(kind.dtype or "")
    return [torch.tensor(one, dtype=dtype) for one in value] if kind.many else torch.tensor(value, dtype=dtype)


def _second(call: Call) -> Number:
    return number(call, "b") if "b" in call.inputs else cast(Number, call.params["number"])


def _has_zero(value: Tensor) -> bool:
    """True if a number is 0. Floats of a GPU aren't looked at: what is divided by 0 becomes infinite, which the engine
    finds without waiting for it."""
    seen = value.device.type == "cpu" or not value.is_floating_point()
    return seen and bool((value == 0).any())


def _scalar(value: Number) -> Tensor:
    """Makes what `torch.tensor` makes, in a third of the time where the value fits its type."""
    if type(value) is int and value in INTEGERS:
        return torch.scalar_tensor(value, dtype=torch.int64)
    if type(value) is float and abs(value) < _LARGE:
        return torch.scalar_tensor(value, dtype=torch.float32)
    return torch.tensor(value)


def _of_tensors(call: Call, operation: str) -> Tensor:
    first = _wide(tensor(call, "a"))
    second = _wide(tensor(call, "b")) if "b" in call.inputs else _scalar(_second(call))
    second = second.to(first.device) if second.dim() else second
    shape = _broadcast(first.shape, second.shape) if second.dim() else first.shape
    if shape is None:
        raise invalid(call, "b", f"can't compute with shapes {list(first.shape)} and {list(second.shape)}")
    small(call, "b", shape)
    if operation in _DIVIDING and _has_zero(second):
        raise invalid(call, "b", "divides by zero")
    return _TENSORS[operation](first, second)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """The shape of what two tensors make together; None if they don't fit. Torch's own function loads a library of
    symbols at its first use, which takes seconds."""
    axes = max(len(a), len(b))
    pairs = zip((*[1] * (axes - len(a)), *a), (*[1] * (axes - len(b)), *b), strict=True)
    shape = [one if other == 1 else other if one in (1, other) else -1 for one, other in pairs]
    return None if -1 in shape else shape


def _wide(value: Tensor) -> Tensor:
    """Flags count as 0 and 1."""
    return value.long() if value.dtype == torch.bool else value


def _of_numbers(call: Call, operation: str, a: Number, b: Number) -> Number:
    if operation in _DIVIDING and b == 0:
        raise invalid(call, "b", "divides by zero")
    if operation == "power":
        if a == 0 and b < 0:
            raise invalid(call, "b", "divides by zero: it takes 0 to a negative power")
        if isinstance(a, int) and isinstance(b, int) and a.bit_length() * b > _MOST_BITS:
            raise _too_large(call)
    try:
        found = _NUMBERS[operation](a, b)
    except OverflowError:
        raise _too_large(call) from None
    if isinstance(found, complex):
        raise invalid(call, "a", "takes a negative number to a power that isn't whole")
    if isinstance(found, int) and found not in INTEGERS:
        raise _too_large(call)
    return cast(Number, found)


def _too_large(call: Call) -> CallFailed:
    return invalid(call, "b", "makes a number that is too large")


def _statistics(call: Call) -> Outputs:
    values = tensor(call, "values").double().flatten()
    if not values.numel():
        raise invalid(call, "values", "takes at least one number")
    low, high = float(values.min()), float(values.max())
    bins = int(call.params["bins"])
    width = high - low
    if not math.isfinite(width):
        raise invalid(call, "values", "takes finite numbers")
    place = ((values - low) / width * bins).long().clamp(max=bins - 1) if width else torch.zeros_like(values).long()
    return {
        "mean": float(values.mean()),
        "min": low,
        "max": high,
        "min_at": int((values == low).nonzero()[0, 0]),
        "max_at": int((values == high).nonzero()[0, 0]),
        "std": float(values.std(correction=0)),
        "histogram": torch.bincount(place, minlength=bins),
    }


def _drawn(call: Call, count: int) -> Tensor:
    """`[count]` numbers: float32, or int64 for `integer`."""
    place = repr((call.walk, call.step, call.name, call.iteration)).encode()
    position = torch.tensor(int.from_bytes(blake2b(place, digest_size=8).digest(), "big", signed=True))
    seed = torch.tensor(call.seed)

    def uniform(first: int) -> Tensor:
        """float64 in [0, 1)."""
        bits = draw(seed, position, torch.arange(first, first + count))
        return ((bits >> 11) & ((1 << 53) - 1)).double() * _BELOW

    low, high = float(call.params["low"]), float(call.params["high"])
    match call.params["distribution"]:
        case "normal":
            radius = (-2 * (1 - uniform(0)).log()).sqrt()
            waves = (2 * math.pi * uniform(count)).cos()
            return (float(call.params["mean"]) + float(call.params["std"]) * radius * waves).float()
        case _ if high < low:
            raise CallFailed(f"`{call.node}` draws from {low} to {high}; exchange `low` and `high`")
        case "integer":
            least = math.ceil(low)
            span = math.floor(high) - least + 1
            if span < 1:
                raise CallFailed(f"`{call.node}` finds no whole number from {low} to {high}")
            return least + (uniform(0) * span).long()
        case _:
            return (low + (high - low) * uniform(0)).float()
