"""Reads plain values of a call with errors that say what to do, and bounds those that an operator makes.

A number or a flag is Python's, or a tensor of one item (a slice of a stacked value). A bound is for a value that
clients' values decide: no request may take unbounded memory.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, plain_text

MOST_CHARACTERS = 4 << 20
"""The longest text that an operator makes."""
MOST_ITEMS = 10_000
"""The longest list that an operator makes."""
MOST_NUMBERS = 1 << 24
"""The largest tensor that an operator makes."""
MOST_WRITTEN = 100_000
"""Numbers of a tensor that is written as text."""
INTEGERS = range(-(2**63), 2**63)
"""Whole numbers that a tensor can hold."""

Plain = bool | int | float

_DIGITS = {torch.float64: 17, torch.float32: 7}
"""Decimal digits that a dtype holds."""


def invalid(call: Call, port: str | None, message: str) -> CallFailed:
    """The failure of a call because of the client's value; the message continues the node's name."""
    return CallFailed(f"`{call.node}` {message}", port, code="invalid_input")


def single(value: Any) -> Plain | None:
    """The number or flag that a value is; None for any other value."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return cast(Plain, value.reshape(()).tolist())
    return value if isinstance(value, bool | int | float) else None


def number(call: Call, port: str) -> int | float:
    """The number at a port; a flag counts as 0 or 1."""
    found = single(call.inputs[port])
    if found is None:
        raise invalid(call, port, f"takes one number at `{port}`")
    return int(found) if isinstance(found, bool) else found


def whole(call: Call, port: str) -> int:
    """The whole number at a port."""
    found = number(call, port)
    if found != found // 1:
        raise invalid(call, port, f"takes a whole number at `{port}`")
    return int(found)


def flag(call: Call, port: str) -> bool:
    found = single(call.inputs[port])
    if found is None:
        raise invalid(call, port, f"takes a flag at `{port}`")
    return bool(found)


def tensor(call: Call, port: str) -> Tensor:
    """The tensor at a port; a number is one without axes."""
    value = call.inputs[port]
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | float) or (isinstance(value, int) and value in INTEGERS):
        return torch.tensor(value)
    if isinstance(value, list | tuple):
        numbers = cast("Sequence[Any]", value)
        if all(isinstance(item, bool | int | float) for item in numbers):
            return torch.tensor(numbers)
    raise invalid(call, port, f"takes a tensor at `{port}`")


def items(call: Call, port: str) -> list[Any]:
    """The list at a port."""
    value = call.inputs[port]
    if not isinstance(value, list | tuple):
        raise invalid(call, port, f"takes a list at `{port}`")
    return list(cast("Sequence[Any]", value))


def texts(call: Call, port: str) -> list[str]:
    """The list of texts at a port."""
    found = items(call, port)
    if not all(isinstance(item, str) for item in found):
        raise invalid(call, port, f"takes a list of texts at `{port}`")
    return [plain_text(item) for item in found]


def bounded(call: Call, port: str | None, characters: int) -> None:
    """Fail a call whose text would be too long."""
    if characters > MOST_CHARACTERS:
        raise invalid(
            call, port, f"would make a text of {characters} characters; the longest may have {MOST_CHARACTERS}"
        )


def few(call: Call, port: str | None, count: int, most: int = MOST_ITEMS) -> None:
    """Fail a call whose list would be too long."""
    if count > most:
        raise invalid(call, port, f"would make a list of more than {most} items; give it less")


def small(call: Call, port: str | None, shape: Sequence[int]) -> None:
    """Fail a call whose tensor would be too large."""
    if prod(shape) > MOST_NUMBERS:
        raise invalid(call, port, f"would make a tensor {list(shape)}; it may have {MOST_NUMBERS} numbers")


def written(value: Plain) -> str:
    """A flag or a number as a choice names it: `true`, `3`, `0.5`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def shortest(value: Any) -> Plain | None:
    """The number or flag that a value is, a float as short as its dtype needs: 0.1 of float32 is 0.1."""
    found = single(value)
    if isinstance(found, float) and isinstance(value, Tensor):
        return float(f"{found:.{_DIGITS.get(value.dtype, 4)}g}")
    return found


def as_text(call: Call, port: str) -> str:
    """The text, number or flag at a port, as text."""
    value = call.inputs[port]
    if isinstance(value, str):
        return plain_text(value)
    found = shortest(value)
    if found is None:
        raise invalid(call, port, f"takes a text, a number or a flag at `{port}`")
    return written(found)


def lists(value: Tensor) -> Any:
    """A tensor as nested lists, its floats as short as its dtype needs."""
    return _shorter(value.tolist(), _DIGITS.get(value.dtype, 4)) if value.is_floating_point() else value.tolist()


def _shorter(value: Any, digits: int) -> Any:
    return [_shorter(one, digits) for one in value] if isinstance(value, list) else float(f"{value:.{digits}g}")
