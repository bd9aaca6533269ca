"""Slots that are filled together, against slots that are filled one by one and field by field."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.operations import counted
from walkgraph.abi.states import CacheShape
from walkgraph.abi.step import Row, StepSpec
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.loops.body import Body, UseStep
from walkgraph.engine.loops.slot_tables import NO_ITEM, Entry, SlotTables
from walkgraph.engine.loops.spec import LoopOutput, LoopSource, LoopSpec, Place, StreamItems
from walkgraph.models.synthetic.operators import Constant

CPU, STEPS, SLOTS = torch.device("cpu"), 8, 6
FRAME, CODE = Row((2, 3), torch.float32), Row((1,), torch.int64)
X, PICTURES, TEXT, LAST = (0, "x"), (0, "pictures"), (1, "text"), (1, "y>")


def tables() -> SlotTables:
    """Two uses: entering, sliced and streamed values; a wide cache, and one whose positions are fractions; tensors, one
    of which begins anew."""
    first = UseStep(
        node="first",
        name="first",
        sources={"x": LoopSource("carried", (0, "x"), entry="x"), "pictures": LoopSource("each", entry="pictures")},
        states={"kv": "wide", "count": "count"},
        varying=("noise", "shift"),
        operator=Constant(),
        spec=StepSpec(
            inputs={"x": FRAME, "pictures": FRAME},
            outputs={"x": FRAME},
            params={"noise": torch.float32, "shift": torch.float32, "top": torch.int64, "heat": torch.float32},
            tensors={"count": Row((4,), torch.int16)},
            appends={"kv": 1},
        ),
    )
    second = UseStep(
        node="second",
        name="second",
        sources={"text": LoopSource("item")},
        states={"kv": "turned", "sum": "sum"},
        operator=first.operator,
        spec=StepSpec(
            inputs={"text": CODE},
            outputs={"y": CODE},
            tensors={"sum": Row((), torch.float64)},
            appends={"kv": 1},
            fractions=frozenset({"kv"}),
        ),
    )
    spec = LoopSpec("w", 0, "l", (first, second), None, (LoopOutput("y", 1, "y", "last"),))
    body = Body(spec, (first, second), STEPS, {"wide": 3}, frozenset({"count"}))
    pool = Pool(CacheShape(layers=1, kv_heads=1, head_dim=1, dtype=torch.float32), 12, CPU)
    return SlotTables(body, {"wide": pool, "turned": pool}, SLOTS, CPU)


def drawn(choose: random.Random, *, again: bool) -> Entry:
    """`again`: the run had left a slot, whose cells come back."""

    def value(row: Row, *first: int) -> Tensor:
        return torch.randint(-99, 99, (*first, *row.shape), generator=generator).to(row.dtype)

    generator = torch.Generator().manual_seed(choose.randrange(1 << 30))
    cells: dict[Place, Tensor] = {X: value(FRAME), PICTURES: value(FRAME, STEPS if again else choose.choice((2, 5)))}
    if again:
        cells |= {TEXT: value(CODE, STEPS), LAST: value(CODE)}
    elif choose.random() < 0.3:
        cells[X] = value(Row((3,), torch.int64))  # of another type, and the same in both rows
    pages, wide = ([choose.randint(1, 12) for _ in range(choose.randint(0, 5))] for _ in range(2))
    return Entry(
        times=choose.randint(1, STEPS),
        first=choose.randint(0, 3) if again else 0,
        ints=[choose.randint(-(2**63), 2**63 - 1) for _ in range(3)],
        floats=[choose.random()],
        series=[[choose.random() for _ in range(choose.randint(1, STEPS))] for _ in range(2)],
        cells=cells,
        paged={"wide": ([wide, wide[1:], wide], 20, 7.0), "turned": ([pages], 9, choose.choice((4.0, 4.25)))},
        tensors={
            "count": value(Row((4,), torch.int16)) if choose.random() < 0.6 else None,
            "sum": value(Row((), torch.float64)) if choose.random() < 0.6 else None,
        },
    )


def fill_plainly(tables: SlotTables, slot: int, entry: Entry) -> None:
    """Write each field of a slot by itself."""
    live, counters, times, ints, floats = tables.counted
    stands = [entry.paged[name] for name in tables.pages.order]
    numbers = [entry.first, *(one[1] for one in stands), *(int(one[2]) for one in stands)]
    counters[:, slot] = torch.tensor(numbers)
    times[slot], live[slot] = entry.times, True
    ints[slot], floats[slot] = torch.tensor(entry.ints), torch.tensor(entry.floats)
    for index, series in enumerate(entry.series):
        tables.series[slot, index, : len(series)] = torch.tensor(series)
    wide, turned = entry.paged["wide"], entry.paged["turned"]
    for row, pages in ((3 * slot, wide[0][0]), (3 * slot + 1, wide[0][1]), (3 * slot + 2, wide[0][2])):
        show(tables.pages.pages[row], pages)
    show(tables.pages.pages[3 * (SLOTS + 1) + slot], turned[0][0])
    fractions(tables)[slot] = turned[2] % 1
    cells = {TEXT: torch.full((STEPS, 1), NO_ITEM), **entry.cells}
    for place, value in cells.items():
        cell = tables.cells[place][slot]
        (cell[: len(value)] if place in (PICTURES, TEXT) else cell).copy_(value)
    for name, value in entry.tensors.items():
        for table in (tables.tensors[name], *([tables.begins[name]] if name in tables.begins else ())):
            table[slot] = 0 if value is None else value


def show(row: Tensor, pages: Sequence[int]) -> None:
    row.fill_(13)
    row[: len(pages)] = torch.tensor(pages, dtype=torch.int32)


def fractions(tables: SlotTables) -> Tensor:
    """The part that the positions of `turned` have beyond the counters."""
    return tables.pages._fractions["turned"]  # pyright: ignore[reportPrivateUsage]


def contents(tables: SlotTables) -> dict[str, Tensor]:
    return {
        **tables.counted._asdict(),
        "series": tables.series,
        "pages": tables.pages.pages,
        "fractions": fractions(tables),
        **{str(place): cell for place, cell in tables.cells.items()},
        **tables.tensors,
        **{f"begin of {name}": table for name, table in tables.begins.items()},
    }


def fill(tables: SlotTables, entries: dict[int, Entry]) -> None:
    tables.fill([tables.pack(slot, entry) for slot, entry in entries.items()])


@pytest.mark.parametrize("seed", range(30))
def test_slots_filled_together_hold_what_each_field_alone_is_filled_with(seed: int) -> None:
    choose, together, plainly = random.Random(seed), tables(), tables()
    for _ in range(4):
        slots = choose.sample(range(SLOTS), choose.randint(1, SLOTS))
        back = choose.choice((0.0, 0.5, 1.0))
        entries = {slot: drawn(choose, again=choose.random() < back) for slot in slots}
        fill(together, entries)
        for slot, entry in entries.items():
            fill_plainly(plainly, slot, entry)
        wanted = contents(plainly)
        for name, found in contents(together).items():
            assert torch.equal(found, wanted[name]), name


@pytest.mark.parametrize("count", [1, 2, SLOTS])
def test_slots_of_any_number_take_as_many_operations(count: int) -> None:
    def entry() -> Entry:
        return drawn(random.Random(0), again=False)

    here = tables()
    packed = [here.pack(slot, entry()) for slot in range(count)]
    with counted() as alone:
        here.fill(packed[:1])
    with counted() as together:
        here.fill(packed)
    assert together.count == alone.count
    assert together.count <= 20


def test_items_for_a_run_that_has_left_do_not_get_to_the_next_one() -> None:
    here = tables()
    fill(here, {slot: drawn(random.Random(slot), again=False) for slot in (1, 2)})
    for slot in (1, 2):
        here.put_items(slot, StreamItems(TEXT, 1, torch.tensor([5, 6])))
    fill(here, {1: drawn(random.Random(3), again=False)})
    here.put_items(1, StreamItems(TEXT, 0, torch.tensor([8], dtype=torch.int32)))
    here.fill_in()
    here.put_items(4, StreamItems(TEXT, 0, torch.tensor([9])))
    fill(here, {4: drawn(random.Random(4), again=False)})
    here.fill_in()
    blank = [NO_ITEM] * STEPS
    assert here.cells[TEXT][1, :, 0].tolist() == [8, *blank[1:]]
    assert here.cells[TEXT][2, :, 0].tolist() == [NO_ITEM, 5, 6, *blank[3:]]
    assert here.cells[TEXT][4, :, 0].tolist() == blank


def test_items_of_all_runs_take_as_many_operations_as_those_of_one() -> None:
    here = tables()
    counts: list[int] = []
    for slots in ((1,), (1, 2, 4)):
        for slot in slots:
            here.put_items(slot, StreamItems(TEXT, slot, torch.tensor([slot])))
        with counted() as operations:
            here.fill_in()
        counts.append(operations.count)
    assert counts[0] == counts[1] <= 8
    assert here.cells[TEXT][[1, 2, 4], [1, 2, 4], 0].tolist() == [1, 2, 4]


def test_a_value_that_does_not_fit_is_refused_before_anything_is_filled() -> None:
    here, entry = tables(), drawn(random.Random(0), again=False)
    before = {name: table.clone() for name, table in contents(here).items()}
    wide = entry.paged["wide"]
    wrongs: tuple[dict[str, Any], ...] = (
        {"cells": {X: torch.zeros(5)}},
        {"cells": {PICTURES: torch.zeros(STEPS + 1, 2, 3)}},
        {"tensors": {"count": torch.zeros(3), "sum": None}},
        {"ints": [2**63, 0, 0]},
        {"paged": {**entry.paged, "wide": (wide[0][:2], *wide[1:])}},
        {"paged": {**entry.paged, "turned": ([[1] * 13], 0, 0.0)}},
    )
    for wrong in wrongs:
        with pytest.raises((RuntimeError, OverflowError, ValueError, IndexError)):
            here.pack(2, replace(entry, **wrong))
    assert all(torch.equal(table, before[name]) for name, table in contents(here).items())
