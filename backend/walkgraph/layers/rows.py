"""Reads a step's rows from their tables before it, and writes them back after it: one small launch each on a GPU.

Shape letters: T rows of the tables (the last one pads), B rows of a batch, C counters, I whole-number and F float
parameters.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Gathered(NamedTuple):
    """The batch's rows; ended rows are replaced by the pad row."""

    rows: Tensor
    """int32 `[B]`"""
    wide: Tensor
    """int64 `[B]`: the same."""
    iteration: Tensor
    """int64 `[B]`"""
    ints: Tensor
    """int64 `[I, B]`"""
    floats: Tensor
    """float32 `[F, B]`"""


class Tables(NamedTuple):
    live: Tensor
    """bool `[T]`: false for rows that have ended, and always for the pad row."""
    counters: Tensor
    """int32 `[C, T]`: the iteration, then all other counters that grow by a fixed number."""
    times: Tensor
    """int32 `[T]`: total iterations."""
    ints: Tensor
    """int64 `[T, I]`"""
    floats: Tensor
    """float32 `[T, F]`"""


def table_rows(table: Tensor, rows: Tensor) -> Tensor:
    """The rows int64 `[B]` of a table `[T, *shape]`. On a GPU, `index_select` takes 8 us for a few wide rows, and
    indexing 2."""
    return table[rows] if table.is_cuda else table.index_select(0, rows)


def gather_rows(index: Tensor, tables: Tables) -> Gathered:
    """Gather the requested rows; `index`: int64 `[B]`."""
    if index.is_cuda:
        from walkgraph.layers.kernels import rows as kernels

        return Gathered(*kernels.gather(index, *tables))
    rows = torch.where(tables.live[index], index, tables.live.shape[0] - 1)
    iteration = tables.counters[0, rows].long()
    ints, floats = (table[rows].t().contiguous() for table in (tables.ints, tables.floats))
    return Gathered(rows.int(), rows, iteration, ints, floats)


def settle_rows(
    index: Tensor,
    at: Gathered,
    tables: Tables,
    grown: Tensor,
    stopped: Tensor | None,
    sound: Tensor | None,
    out: tuple[Tensor, Tensor],
) -> None:
    """Count an iteration, and switch off the rows that it ended. `grown`: int32 `[C]`, the increment of each counter;
    the pad row's counters stay. `stopped`, `sound`: bool `[B]`, or None for no row and for all rows; `out`: where they
    are written."""
    if index.is_cuda:
        from walkgraph.layers.kernels import rows as kernels

        live, counters, times, _, _ = tables
        kernels.settle(index, at.wide, at.iteration, live, counters, times, grown, stopped, sound, out)
        return
    pad = tables.live.shape[0] - 1
    real = at.wide != pad
    tables.counters.index_add_(1, at.wide, grown[:, None] * real.int())
    blank = torch.zeros_like(real)
    stop, good = blank if stopped is None else stopped, ~blank if sound is None else sound
    out[0].copy_(stop)
    out[1].copy_(good)
    tables.live[index] = real & (at.iteration + 1 < tables.times[at.wide]) & ~stop & good
