"""Captured forwards for short prompts: hundreds of small launches become one.

The prompts of several sequences are packed into one tensor of rows. Tensors filled before a replay hold the rows' slots
and what they attend, so that one CUDA graph per number of rows serves all prompts. A plain forward reads whatever
doesn't fit.

Shape letters: R rows of a graph, P prompts of a graph, N numbers beside its rows.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.operator import Capture
from walkgraph.abi.states import CausalRows

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
"""`[N]`, in host memory."""


class PromptInputs(NamedTuple):
    """The inputs of a graph: tensors with fixed addresses."""

    rows: Tensor
    """`[R, ...]`: token ids, or embeddings."""
    slots: Tensor
    """int64 `[R]`: slots for keys and values."""
    numbers: Tensor
    """int64 `[N]`: the form's other numbers, in one tensor so that one copy fills it."""


class PromptAnswers(NamedTuple):
    prompts: Sequence[Tensor] = ()
    """Tensors `[P, ...]` with one entry for a prompt."""
    rows: Sequence[Tensor] = ()
    """Tensors `[R, ...]` with one entry for a row."""


class PromptForm(Protocol):
    """An architecture's way of reading prompts in tensors of fixed shapes."""

    sizes: Sequence[int]
    """Rows of a graph, summed over its prompts, ascending."""
    most: int
    """The most prompts of a graph."""
    what: str
    """Description of a graph's input, with `{}` for its rows."""

    def fits(self, to: CausalRows) -> bool:
        """True if a graph serves prompts at these places, provided they are few and short enough."""
        ...

    def blank(self, size: int) -> Numbers:
        """The `numbers` of a graph with `size` rows before its first replay."""
        ...

    def numbers(self, size: int, positions: Sequence[float], to: CausalRows) -> Numbers:
        """The `numbers` for a replay. If they are fewer, the rest stays unchanged and has no effect. `positions`: as
        `CapturedPrompts.read` takes them."""
        ...

    def read(self, inputs: PromptInputs, to: CausalRows) -> PromptAnswers:
        """Launch the forward without reading a value on the host. Only the pool of `to` matters."""
        ...


class _Graph(NamedTuple):
    inputs: PromptInputs
    answers: list[PromptAnswers]
    """One, whose tensors the next replay overwrites."""
    replay: Callable[[], None]


class CapturedPrompts:
    """The captured forwards of one model over the caches of one pool."""

    def __init__(self, form: PromptForm, capture: Capture | None) -> None:
        self._form, self._capture = form, capture
        self._graphs: dict[int, _Graph] = {}

    @property
    def enabled(self) -> bool:
        return self._capture is not None

    def read(self, rows: Tensor, positions: Sequence[float], to: CausalRows | None) -> PromptAnswers | None:
        """The form's answers for the prompts and the rows `[n, ...]`, prompt by prompt; None if a plain forward must
        serve them. `positions`: those of each row, as many as the form wants."""
        form, count = self._form, len(rows)
        if self._capture is None or to is None or count > form.sizes[-1] or len(to.counts) > form.most:
            return None
        if not form.fits(to):
            return None
        if not self._graphs:
            # All graphs are captured at the first prompt, which is the warm-up's, so no request waits for it.
            self._graphs = {size: self._captured(size, rows, to, self._capture) for size in reversed(form.sizes)}
        size = next(size for size in form.sizes if size >= count)
        inputs, answers, replay = self._graphs[size]
        inputs.rows[:count].copy_(rows)
        if count < size:
            # Equal rows choose the same few experts, so that no others are read for them.
            inputs.rows[count:].copy_(rows[:1].expand_as(inputs.rows[count:]))
        inputs.slots[:count].copy_(to.slots)
        inputs.slots[count:].fill_(to.spare)
        numbers = torch.from_numpy(form.numbers(size, positions, to))
        # From pinned memory, so the copy doesn't wait for the work before it.
        numbers = numbers.pin_memory() if inputs.numbers.is_cuda else numbers
        inputs.numbers[: len(numbers)].copy_(numbers, non_blocking=True)
        replay()
        prompts, of_rows = answers[0]
        return PromptAnswers(
            [one[: len(to.counts)].clone() for one in prompts], [one[:count].clone() for one in of_rows]
        )

    def _captured(self, size: int, like: Tensor, to: CausalRows, capture: Capture) -> _Graph:
        form, device = self._form, to.slots.device
        inputs = PromptInputs(
            rows=torch.zeros((size, *like.shape[1:]), dtype=like.dtype, device=device),
            slots=torch.full((size,), to.spare, dtype=torch.int64, device=device),
            numbers=torch.from_numpy(form.blank(size)).to(device),
        )
        answers: list[PromptAnswers] = []

        def work() -> None:
            answers[:] = [form.read(inputs, to)]

        return _Graph(inputs, answers, capture(work, form.what.format(size)))


def padded(numbers: Sequence[int] | np.ndarray[Any, Any], size: int, by: int = 0) -> Numbers:
    """The numbers, padded to `size` with `by`."""
    found = np.full(size, by, np.int64)
    found[: len(numbers)] = numbers
    return found
