"""Two runs compared: equal ones, ones that part somewhere, ones that were placed elsewhere or lost samples."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from walkgraph.ids import Rank, RunId
from walkgraph.telemetry.differences import MOST_ROWS, compare, compare_outputs
from walkgraph.telemetry.events import Sample
from walkgraph.wire import messages as m


def sample(source: str = "llm.velocity", iteration: tuple[int, ...] = (0,), **fields: Any) -> Sample:
    given: dict[str, Any] = {
        "why": "record",
        "tap": "",
        "run": RunId("a"),
        "rank": Rank(0),
        "walk": "image_gen",
        "step": 1,
        "source": source,
        "iteration": iteration,
        "at": 10.0,
        "modality": "latents",
        "dtype": "float32",
        "shape": (2,),
        "digest": "00",
        "picked": (1.0, 2.0),
    }
    return Sample(**given | fields)


def recording(count: int, begin: float = 100.0) -> tuple[Sample, ...]:
    return tuple(sample(iteration=(i,), at=begin + i, digest=f"{i:02x}", picked=(i, 2.0 * i)) for i in range(count))


def test_equal_runs_are_equal_wherever_they_ran() -> None:
    a = recording(5)
    b = tuple(replace(s, run=RunId("b"), rank=Rank(i % 2), at=s.at + 900) for i, s in enumerate(a))
    found = compare(a, tuple(reversed(b)))
    assert (found.compared, found.equal, found.missing_a, found.missing_b, found.rows) == (5, 5, 0, 0, ())
    assert compare((), ()) == (0, 0, 0, 0, ())


def test_what_differs_comes_in_the_order_of_the_first_runs_times() -> None:
    a = recording(4)
    b = [replace(s, at=1000 - s.at, rank=Rank(1)) for s in a]
    b[3] = replace(b[3], digest="ff", picked=(3.0, 5.5))
    b[1] = replace(b[1], digest="fe", picked=(1.5, 2.0))
    found = compare(a, b)
    assert (found.compared, found.equal) == (4, 2)
    first, second = found.rows
    assert (first.iteration, second.iteration) == ((1,), (3,))
    assert (first.rank_a, first.rank_b, first.max_abs, first.max_rel) == (0, 1, 0.5, 0.5 / 1.5)
    assert (second.max_abs, second.max_rel) == (0.5, 0.5 / 6.0)
    assert (first.at_a, second.at_a) == (1.0, 3.0)
    assert first.at_b - second.at_b == 2.0


def test_what_one_run_has_alone_is_missing_in_the_other() -> None:
    a, b = recording(6), recording(4)
    assert compare(a, b)[:4] == (4, 4, 0, 2)
    assert compare(b, a)[:4] == (4, 4, 2, 0)
    other = tuple(replace(s, source="llm.logits") for s in a)
    assert compare(a, other)[:4] == (0, 0, 6, 6)


def test_an_input_that_several_ranks_read_is_one_value() -> None:
    given = sample("@in.text", ())
    a = (given, replace(given, rank=Rank(1)))
    assert compare(a, (given,))[:4] == (1, 1, 0, 0)
    twice = (sample(), replace(sample(), at=11.0, digest="01"))
    assert compare(twice, twice)[:4] == (2, 2, 0, 0), "other places may hold several values"
    assert compare(twice, twice[:1])[:4] == (1, 1, 0, 1)


@pytest.mark.parametrize("change", [{"digest": "01"}, {"dtype": "bfloat16"}, {"shape": (2, 1)}])
def test_bytes_type_and_shape_make_a_value(change: dict[str, Any]) -> None:
    found = compare((sample(),), (replace(sample(), **change),))
    assert (found.compared, found.equal) == (1, 0)
    (row,) = found.rows
    assert (row.dtype_b, row.shape_b) == (change.get("dtype", "float32"), change.get("shape", (2,)))
    assert row.max_abs == (None if "shape" in change else 0.0)


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        ((1.0, -3.0), (1.0, -1.0), (2.0, 2 / 3)),
        ((0.0, math.nan), (0.0, math.nan), (0.0, 0.0)),
        ((math.inf, 1.0), (math.inf, 1.0), (0.0, 0.0)),
        ((math.nan, 1.0), (1.0, 1.0), (None, None)),
        ((math.inf, 1.0), (-math.inf, 1.0), (None, None)),
        ((1e308, 0.0), (-1e308, 0.0), (None, None)),
        ((0.0,), (-0.0,), (0.0, 0.0)),
        ((1.0,), (1.0, 2.0), (None, None)),
        ((), (), (None, None)),
    ],
)
def test_how_far_numbers_are_apart(a: tuple[float, ...], b: tuple[float, ...], apart: tuple[Any, Any]) -> None:
    (row,) = compare((sample(picked=a),), (sample(picked=b, digest="01"),)).rows
    assert (row.max_abs, row.max_rel) == (pytest.approx(apart[0]), pytest.approx(apart[1]))


def test_only_so_many_rows_are_told_and_all_are_counted() -> None:
    a = recording(MOST_ROWS + 20)
    b = tuple(replace(s, digest="ff") for s in a)
    found = compare(a, b)
    assert (found.compared, found.equal, len(found.rows)) == (MOST_ROWS + 20, 1, MOST_ROWS)


@pytest.mark.parametrize("seed", range(30))
def test_it_agrees_with_a_slow_twin(seed: int) -> None:
    """Every value is looked for in the whole of the other recording."""
    chance = random.Random(seed)

    def made() -> list[Sample]:
        found = []
        for place in range(12):
            for _ in range(chance.choice([0, 1, 1, 1])):
                digest, picked = chance.choice([("00", (1.0,)), ("01", (2.0,))])
                where = {"step": place % 3, "iteration": (place // 3,), "rank": Rank(chance.randrange(2))}
                found.append(sample(at=chance.random(), digest=digest, picked=picked, **where))
        return found

    a, b = made(), made()
    equal = differ = 0
    rows = []
    for ours in sorted(a, key=lambda s: s.at):
        for theirs in b:
            if (ours.step, ours.iteration) == (theirs.step, theirs.iteration):
                same = ours.digest == theirs.digest
                equal, differ = equal + same, differ + (not same)
                if not same:
                    rows.append((ours.step, ours.iteration))
    found = compare(a, b)
    assert (found.compared, found.equal) == (equal + differ, equal)
    assert (found.missing_a, found.missing_b) == (len(b) - equal - differ, len(a) - equal - differ)
    assert [(row.step, row.iteration) for row in found.rows] == rows


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────


def output(value: m.Value, index: int = 0, name: str = "text") -> m.Output:
    return m.Output(run=RunId("a"), name=name, index=index, value=value)


def tensor(dtype: Any, *numbers: float) -> m.InlineTensor:
    if dtype == "bfloat16":
        data = (np.array(numbers, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    else:
        data = np.array(numbers, dtype=dtype).tobytes()
    return m.InlineTensor(dtype=dtype, shape=(len(numbers),), data=data)


def many(*items: m.Value) -> m.Many:
    return m.Many(items=items)


@pytest.mark.parametrize(
    ("a", "b", "equal", "apart"),
    [
        (m.Small(value="red"), m.Small(value="red"), True, 0.0),
        (m.Small(value="red"), m.Small(value="blue"), False, None),
        (m.Small(value=1), m.Small(value=1.0), False, 0.0),
        (m.Small(value=1), m.Small(value=True), False, 0.0),
        (m.Small(value=math.nan), m.Small(value=math.nan), True, 0.0),
        (m.Small(value=0.0), m.Small(value=-0.0), False, 0.0),
        (m.Small(value=0.25), m.Small(value=1), False, 0.75),
        (m.Blob(data=b"x"), m.Blob(data=b"y"), False, None),
        (tensor("float32", 1, 2), tensor("float32", 1, 2), True, 0.0),
        (tensor("float32", 1, 2), tensor("float32", 1, 2.5), False, 0.5),
        (tensor("bfloat16", 1, -2), tensor("bfloat16", 1, 2), False, 4.0),
        (tensor("int64", 1, 2), tensor("float32", 1, 2), False, 0.0),
        (tensor("bool", 1, 0), tensor("bool", 1, 1), False, 1.0),
        (tensor("float32", 1), tensor("float32", 1, 2), False, None),
        (tensor("float32", 1), tensor("float32", math.nan), False, None),
        (m.Absent(), m.Absent(), True, 0.0),
        (m.Absent(), m.Small(value=1), False, None),
        (many(tensor("float32", 1), m.Small(value=2)), many(tensor("float32", 1), m.Small(value=5)), False, 3.0),
        (many(m.Small(value=1)), many(m.Small(value=1), m.Small(value=1)), False, None),
        (m.Named(items={"k": m.Small(value=1)}), m.Named(items={"k": m.Small(value=3)}), False, 2.0),
        (m.Named(items={"k": m.Small(value=1)}), m.Named(items={"j": m.Small(value=1)}), False, None),
    ],
)
def test_outputs_are_compared_bit_by_bit(a: m.Value, b: m.Value, equal: bool, apart: float | None) -> None:
    (found,) = compare_outputs([output(a)], [output(b)])
    assert found == ("text", 0, equal, apart)


def test_outputs_that_one_run_has_alone_are_not_equal() -> None:
    ours = [output(m.Small(value="a")), output(m.Small(value="b"), 1)]
    theirs = [output(m.Small(value="a")), output(m.Blob(data=b""), 0, "image")]
    assert compare_outputs(ours, theirs) == (
        ("text", 0, True, 0.0),
        ("text", 1, False, None),
        ("image", 0, False, None),
    )
    assert compare_outputs([], []) == ()
