"""The few things a worker does to values itself: stack what a loop collected, take a slice, assemble a chunk."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walkgraph.worker.events import ABSENT


def stack(values: Sequence[Any]) -> Any:
    """Texts are joined; tensors of one shape get a new first axis; of differing length they are concatenated along the
    first; anything else stays a list."""
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, bool | int | float) for value in values):
        return torch.tensor(values)
    if not all(isinstance(value, Tensor) for value in values):
        return list(values)
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) == 1:
        return torch.stack(list(values))
    if len({shape[1:] for shape in shapes}) == 1 and all(shapes):
        return torch.cat(list(values))
    return list(values)


def join(items: Sequence[Any]) -> Any:
    """A chunk of a stream: tensors with axes follow each other along the first, whatever their lengths; single numbers
    get an axis, texts are joined. ABSENT for no items."""
    if not items:
        return ABSENT
    if all(isinstance(item, Tensor) and item.ndim for item in items):
        return torch.cat(list(items)) if len({tuple(item.shape[1:]) for item in items}) == 1 else list(items)
    return stack(items)


def part(value: Any, index: int) -> Any:
    """Slice `index` along the first axis; ABSENT past the end."""
    return value[index] if index < length(value) else ABSENT


def empty(value: Any) -> bool:
    """Whether it has a length, and that is 0."""
    return value.numel() == 0 if isinstance(value, Tensor) else isinstance(value, str | bytes | list) and not value


def length(value: Any) -> int:
    """How many slices `part` finds."""
    return 0 if isinstance(value, Tensor) and value.ndim == 0 else len(value)
