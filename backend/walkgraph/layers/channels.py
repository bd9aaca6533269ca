"""Values that the parts of a loop on several devices hand to each other within their steps: device work without
messages.

A *channel* leads from a use of one part to a port of another. The reading part has memory for one value, which the
other part's device writes, and beside it a number that only rises: `start + k + 1` means that the value of iteration k
has arrived. The addresses are in a row of the loop's tables, so that captured work serves every run:

    links of a row, int64    | halt | data, number, start | data, number, start | ..    addresses; zeros: no channel

`halt` is a word of the host's memory: once it isn't 0, waits for the row's values end without them.

Shape letters: T rows of the tables, C channels; the batch is one row.
"""

import ctypes
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

GIVE_UP_SECONDS = 120.0
"""Seconds to wait for a value at most: the step of another device, possibly behind other work there."""
COLUMNS = 3
"""Columns of `links` per channel."""
_CHANGED = threading.Condition()
"""Lets threads of one process wait for numbers and halts on CPUs."""


def width(channels: int) -> int:
    """Number of columns of `links`."""
    return 1 + COLUMNS * channels


def receive(
    links: Tensor, row: Tensor, channel: int, iteration: Tensor, like: tuple[Sequence[int], torch.dtype],
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The channel's value for this iteration; with `first` `[1, *shape]`, that of the iteration before, and `first` in
    iteration 0. Waits for it on the device.

    links int64 `[T, width]`, row int64 `[1]`, iteration int64 `[1]` -> `[1, *shape]`, and bool `[1]`: false where
    nothing came.
    """
    shape, dtype = like
    out = torch.empty(1, *shape, dtype=dtype, device=links.device)
    came = torch.empty(1, dtype=torch.bool, device=links.device)
    column, lag = 1 + COLUMNS * channel, 0 if first is None else 1
    if links.is_cuda:
        from walkgraph.layers.kernels import channels as kernels

        kernels.receive(links, row, column, iteration, lag, first, out, came, GIVE_UP_SECONDS)
        return out, came
    halt, (data, number, start) = _link(links, row, column)
    wanted = int(iteration) + 1 - lag
    if not data or wanted <= 0:
        came.fill_(value=True)
        out.zero_() if first is None else out.copy_(first)
        return out, came
    with _CHANGED:
        _CHANGED.wait_for(lambda: _number(number).value >= start + wanted or _halt(halt).value, GIVE_UP_SECONDS)
        came.fill_(_number(number).value >= start + wanted)
    ctypes.memmove(out.data_ptr(), data, out.nbytes)
    return out, came


def send(value: Tensor, links: Tensor, row: Tensor, channel: int, iteration: Tensor) -> None:
    """Send the value `[1, *shape]` of this iteration. Arguments as for `receive`; the pad row sends nothing."""
    value, column = value.contiguous(), 1 + COLUMNS * channel
    if links.is_cuda:
        from walkgraph.layers.kernels import channels as kernels

        kernels.send(value, links, row, column, iteration)
        return
    _, (data, number, start) = _link(links, row, column)
    if data:
        ctypes.memmove(data, value.data_ptr(), value.nbytes)
        with _CHANGED:
            _number(number).value = start + int(iteration) + 1
            _CHANGED.notify_all()


class StopFlags:
    """Words in the host's memory that waiting rows check; only the host writes them."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._words = torch.zeros(count, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._free = list(range(count - 1, -1, -1))

    def take(self) -> int | None:
        """Reserve a word and set it to 0; None if all are taken."""
        if not self._free:
            return None
        self._words[self._free[-1]] = 0
        return self._free.pop()

    def give(self, word: int) -> None:
        """Return a word; nothing in flight may still check it."""
        self._free.append(word)

    def set(self, word: int) -> None:
        """Stop all waits on a word at once, whatever the device is doing."""
        with _CHANGED:
            self._words[word] = 1
            _CHANGED.notify_all()

    def is_set(self, word: int) -> bool:
        return bool(self._words[word])

    def address(self, word: int) -> int:
        """Address of a word, valid on the device too."""
        return self._words.data_ptr() + word * self._words.itemsize


def _link(links: Tensor, row: Tensor, column: int) -> tuple[int, list[int]]:
    found: list[int] = links[int(row)].tolist()
    return found[0], found[column : column + COLUMNS]


def _number(address: int) -> ctypes.c_int64:
    return ctypes.c_int64.from_address(address)


def _halt(address: int) -> ctypes.c_int32:
    return ctypes.c_int32.from_address(address)
