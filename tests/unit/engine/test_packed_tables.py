"""Tables in one piece of memory, against tables that are written number by number."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import Tensor

from walkgraph.engine.device.packed_tables import PackedNumbers, PackedTables

CPU = torch.device("cpu")
TABLES = {
    "counters": ((3, 5), torch.int32),
    "seeds": ((5, 2), torch.int64),
    "empty": ((5, 0), torch.float32),
    "scales": ((5, 4), torch.float32),
    "series": ((5, 2, 6), torch.float32),
}


def rows(table: Tensor) -> Tensor:
    return table.reshape(-1, table.shape[-1]) if table.numel() else table


def drawn(random: random.Random, dtype: torch.dtype) -> float:
    if dtype == torch.float32:
        return random.choice((0.1, -2.5, 1e-30, math.inf, random.random()))
    return random.choice((0, -1, 2**31 - 1, -(2**31))) if dtype == torch.int32 else random.randint(-(2**63), 2**63 - 1)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_get_to_their_places_and_nowhere_else(seed: int) -> None:
    choose = random.Random(seed)
    packed = PackedTables(TABLES, CPU)
    plain = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in TABLES.items()}
    for _ in range(3):
        free = [(name, row) for name, table in plain.items() for row in range(rows(table).shape[0])]
        given = [PackedNumbers() for _ in range(choose.randint(1, 3))]
        for name, row in choose.sample(free, choose.randint(1, len(free))):
            length = plain[name].shape[-1]
            column = choose.randint(0, length)
            numbers = [drawn(choose, plain[name].dtype) for _ in range(choose.randint(0, length - column))]
            packed.put(choose.choice(given), name, row, numbers, column)
            for at, number in enumerate(numbers, column):
                rows(plain[name])[row, at] = number
        index = [choose.randint(0, 9) for _ in range(choose.randint(1, 3))]
        sent = packed.send(given, index)
        packed.write(sent)
        assert sent.rows.tolist() == index
        for name, table in plain.items():
            assert torch.equal(packed[name], table), name


def test_a_number_too_large_for_its_type_is_refused_or_infinite() -> None:
    packed = PackedTables(TABLES, CPU)
    for name, number in (("counters", 2**31), ("seeds", 2**63)):
        with pytest.raises(OverflowError):
            packed.put(PackedNumbers(), name, 0, [number])
    numbers = PackedNumbers()
    packed.put(numbers, "scales", 1, [1e39, -1e39])
    packed.write(packed.send([numbers], [0]))
    assert packed["scales"][1].tolist() == [math.inf, -math.inf, 0, 0]


def test_numbers_do_not_run_over_into_the_next_row() -> None:
    packed = PackedTables(TABLES, CPU)
    with pytest.raises(IndexError, match="2 numbers don't fit a row of 4 of `scales` from 3 on"):
        packed.put(PackedNumbers(), "scales", 0, [1.0, 2.0], 3)
