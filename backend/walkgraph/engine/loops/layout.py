"""What the tables of a loop's body hold of a row, and what its launches tell: shapes and sizes, no memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walkgraph.abi.step import Row
from walkgraph.engine.loops.body import Body, Place


@dataclass(slots=True)
class Cells:
    """Values that a row keeps for its iterations. They are named by what reads them; those that only the end reads, by
    what writes them."""

    rows: dict[Place, Row] = field(default_factory=dict[Place, Row])
    writes: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Cell -> the output that is its next value."""
    readers: dict[Place, Place] = field(default_factory=dict[Place, Place])
    """Output -> the cell with its last value."""
    sequences: set[Place] = field(default_factory=set[Place])
    """Those with a slice for every iteration."""


def cells_in(body: Body) -> Cells:
    cells = Cells()
    for index, use in enumerate(body.uses):
        for port, source in use.sources.items():
            if source.kind in ("entering", "carried", "behind"):
                cells.rows[index, port] = use.spec.inputs[port]
            if source.kind == "each":
                cells.sequences.add((index, port))
                shape, dtype = use.spec.inputs[port]
                cells.rows[index, port] = Row((body.steps, *shape), dtype)
            if source.kind == "carried" and source.place is not None:
                cells.writes[index, port] = source.place
                cells.readers.setdefault(source.place, (index, port))
    for place in body.last:
        if place not in cells.readers:
            key = (place[0], f"{place[1]}>")
            cells.rows[key], cells.writes[key], cells.readers[place] = body.output(place), place, key
    return cells


def channel_bytes(body: Body) -> tuple[list[int], list[int]]:
    """Of a value of each channel that is read, and of each that is sent on."""
    reads = [bytes_of(body.uses[use].spec.inputs[port]) for (use, port), _ in body.reads]
    return reads, [bytes_of(body.output(place)) for place in body.sends]


def row_bytes(body: Body) -> int:
    """Of the values that one row keeps, without its page tables."""
    cells = [bytes_of(row) for row in cells_in(body).rows.values()]
    tensors = {use.states[slot]: row for use in body.uses for slot, row in use.spec.tensors.items()}
    return sum(cells) + sum(map(bytes_of, tensors.values()))


def fields_of(flat: Tensor, rows: Sequence[Row], sizes: Sequence[int], iterations: int, batch: int) -> list[Tensor]:
    """Typed views `[K, B, *shape]` of the segments of a flat uint8 tensor."""
    views: list[Tensor] = []
    for row, part in zip(rows, flat.split(list(sizes)), strict=True):
        used = part[: iterations * batch * bytes_of(row)]
        views.append(used.view(row.dtype).view(iterations, batch, *row.shape))
    return views


def bytes_of(row: Row) -> int:
    return row.dtype.itemsize * int(torch.Size(row.shape).numel())


def aligned(nbytes: int) -> int:
    return -(-nbytes // 16) * 16
