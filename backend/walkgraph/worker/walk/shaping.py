"""Operations that a worker does on values itself: stack what a loop collected, take a slice, assemble a chunk."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from walkgraph.placement.tables import Gather
from walkgraph.worker.events import ABSENT


def gather(values: Sequence[Any], how: Gather) -> Any:
    """Make one value of those that a loop collected."""
    if how == "list":
        return list(values)
    return join(values) if how == "join" else stack(values)


def stack(values: Sequence[Any]) -> Any:
    """Combine collected values. Texts are joined; tensors of one shape get a new first axis, and tensors of different
    length are concatenated along the first; anything else stays a list."""
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
    """Put values end to end, such as the items of a chunk: tensors with axes are concatenated along the first, whatever
    their lengths; single numbers get an axis, texts are joined. ABSENT if there are no items."""
    if not items:
        return ABSENT
    if len(items) == 1 and isinstance(items[0], Tensor) and items[0].ndim:
        return items[0]
    if all(isinstance(item, Tensor) and item.ndim for item in items):
        return torch.cat(list(items)) if len({tuple(item.shape[1:]) for item in items}) == 1 else list(items)
    return stack(items)


def together(items: Sequence[Any]) -> Any:
    """Put items of one stream into one value for a message: tensors along a new first axis, others in a list."""
    return torch.stack(list(items)) if all(isinstance(item, Tensor) for item in items) else list(items)


def part(value: Any, index: int) -> Any:
    """Slice `index` along the first axis; ABSENT past the end."""
    return value[index] if index < length(value) else ABSENT


def empty(value: Any) -> bool:
    """True if the value has a length of 0."""
    return value.numel() == 0 if isinstance(value, Tensor) else isinstance(value, str | bytes | list) and not value


def text(value: Any) -> str | None:
    """A flag, a number or a text, as a choice names it; None for any other value."""
    if isinstance(value, Tensor) and value.numel() == 1:
        single: Any = value.reshape(())
        value = single.tolist()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float | str) else None


def length(value: Any) -> int:
    """The number of slices that `part` finds."""
    return 0 if isinstance(value, Tensor) and value.ndim == 0 else len(value)
