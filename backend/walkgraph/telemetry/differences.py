"""Compare two runs value by value: recordings of the values inside them, and their outputs. Pure.

Values of the two runs are matched by place: Walk, source, step of the itinerary, loop indices. Ranks may differ, as the
same graph may be placed differently. Numbers picked at the same places of two recorded values show how far they differ,
and digests of all bytes show whether they are equal.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from walkgraph.telemetry.events import Sample, Statistics
from walkgraph.wire import messages as m

MOST_ROWS = 500

Place = tuple[str, str, int, tuple[int, ...], int]
"""Walk, source, step, iteration, and the number among the values recorded there."""


class Row(NamedTuple):
    """A value that both runs made and that differs."""

    walk: str
    source: str
    step: int
    iteration: tuple[int, ...]
    rank_a: int
    rank_b: int
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    dtype_a: str
    dtype_b: str
    statistics_a: Statistics | None
    statistics_b: Statistics | None
    max_abs: float | None
    max_rel: float | None
    at_a: float
    """Seconds from the recording's first value."""
    at_b: float


class Recordings(NamedTuple):
    compared: int
    equal: int
    missing_a: int
    """Count of values that only the other run has."""
    missing_b: int
    rows: tuple[Row, ...]
    """The first MOST_ROWS differences, in the order of a's times."""


class Output(NamedTuple):
    name: str
    number: int
    """Number among the outputs of this name."""
    equal: bool
    max_abs: float | None


def compare(a: Sequence[Sample], b: Sequence[Sample]) -> Recordings:
    ours, theirs = _by_place(a), _by_place(b)
    both = sorted((place for place in ours if place in theirs), key=lambda place: ours[place].at)
    differing = [place for place in both if not _equal(ours[place], theirs[place])]
    began_a = min((sample.at for sample in ours.values()), default=0.0)
    began_b = min((sample.at for sample in theirs.values()), default=0.0)
    return Recordings(
        compared=len(both),
        equal=len(both) - len(differing),
        missing_a=len(theirs) - len(both),
        missing_b=len(ours) - len(both),
        rows=tuple(_row(ours[place], theirs[place], began_a, began_b) for place in differing[:MOST_ROWS]),
    )


def compare_outputs(a: Iterable[m.Output], b: Iterable[m.Output]) -> tuple[Output, ...]:
    """Compare outputs in a's order; those that only b has follow."""
    ours = {(output.name, output.index): output.value for output in a}
    theirs = {(output.name, output.index): output.value for output in b}
    return tuple(_output(name, index, ours, theirs) for name, index in {**ours, **theirs})


# ── recorded values ─────────────────────────────────────────────────────────────────────────────


def _by_place(samples: Iterable[Sample]) -> dict[Place, Sample]:
    found: dict[Place, Sample] = {}
    counts: dict[tuple[str, str, int, tuple[int, ...]], int] = {}
    for sample in sorted(samples, key=lambda sample: (sample.rank, sample.at)):
        place = (sample.walk, sample.source, sample.step, sample.iteration)
        number = counts.get(place, 0)
        # Every rank that reads an input records it, so the count depends on the placement.
        if number and sample.source.startswith("@in."):
            continue
        counts[place] = number + 1
        found[*place, number] = sample
    return found


def _equal(a: Sample, b: Sample) -> bool:
    return (a.digest, a.dtype, a.shape) == (b.digest, b.dtype, b.shape)


def _row(a: Sample, b: Sample, began_a: float, began_b: float) -> Row:
    comparable = a.shape == b.shape and len(a.picked) == len(b.picked) > 0
    apart = _apart(np.array(a.picked), np.array(b.picked)) if comparable else (None, None)
    return Row(
        walk=a.walk,
        source=a.source,
        step=a.step,
        iteration=a.iteration,
        rank_a=a.rank,
        rank_b=b.rank,
        shape_a=a.shape,
        shape_b=b.shape,
        dtype_a=a.dtype,
        dtype_b=b.dtype,
        statistics_a=a.statistics,
        statistics_b=b.statistics,
        max_abs=apart[0],
        max_rel=apart[1],
        at_a=a.at - began_a,
        at_b=b.at - began_b,
    )


def _apart(a: np.ndarray, b: np.ndarray) -> tuple[float | None, float | None]:
    """(largest difference, largest difference relative to the larger number); None if one of two numbers isn't finite
    and they aren't the same, as their distance is undefined."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0, 0.0
    a, b = a[~same], b[~same]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None, None
    with np.errstate(over="ignore"):
        apart = np.abs(a - b)
        relative = apart / np.maximum(np.abs(a), np.abs(b))
    return _finite(apart.max()), _finite(relative.max())


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────


def _output(
    name: str, index: int, ours: Mapping[tuple[str, int], m.Value], theirs: Mapping[tuple[str, int], m.Value]
) -> Output:
    a, b = ours.get((name, index)), theirs.get((name, index))
    if a is None or b is None:
        return Output(name, index, equal=False, max_abs=None)
    equal = _key(a) == _key(b)
    return Output(name, index, equal, 0.0 if equal else _value_apart(a, b))


def _key(value: m.Value) -> object:
    """A key that is equal for bitwise equal values; floats as their bits, for NaN and signed zeros."""
    match value:
        case m.Small(value=float() as number):
            return "float", np.float64(number).tobytes()
        case m.Small(value=plain):
            return type(plain), plain
        case m.Many(items=items):
            return tuple(map(_key, items))
        case m.Named(items=items):
            return {name: _key(item) for name, item in items.items()}
        case _:
            return value


def _value_apart(a: m.Value, b: m.Value) -> float | None:
    """The largest difference of their numbers; None if they have none to compare."""
    ours, theirs = dict(_leaves(a)), dict(_leaves(b))
    if ours.keys() != theirs.keys():
        return None
    most = 0.0
    for path, one in ours.items():
        other = theirs[path]
        numbers = _numbers(one), _numbers(other)
        if _shape(one) != _shape(other) or numbers[0] is None or numbers[1] is None:
            return None
        apart, _ = _apart(numbers[0], numbers[1])
        if apart is None:
            return None
        most = max(most, apart)
    return most


def _leaves(value: m.Value, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], m.Value]]:
    match value:
        case m.Many(items=items):
            for number, item in enumerate(items):
                yield from _leaves(item, (*path, number))
        case m.Named(items=items):
            for name, item in items.items():
                yield from _leaves(item, (*path, name))
        case _:
            yield path, value


def _shape(value: m.Value) -> tuple[int, ...] | None:
    return value.shape if isinstance(value, m.InlineTensor) else None


def _numbers(value: m.Value) -> np.ndarray | None:
    """The numbers of a value as float64."""
    match value:
        case m.Small(value=bool() | int() | float() as number):
            return np.array([number], dtype=np.float64)
        case m.InlineTensor(dtype="bfloat16"):
            bits = np.frombuffer(value.data, dtype=np.uint16).astype(np.uint32) << 16
            return bits.view(np.float32).astype(np.float64)
        case m.InlineTensor():
            return np.frombuffer(value.data, dtype=np.dtype(value.dtype)).astype(np.float64)
        case _:
            return None
