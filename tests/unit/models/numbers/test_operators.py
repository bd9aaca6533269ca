"""Numbers against plain Python and numpy, and what they refuse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.palette_twins import WrongInput, agree, served
from walkgraph.abi.calls import CallFailed
from walkgraph.errors import Refused
from walkgraph.models.numbers.components import COMPARISONS, OPERATIONS, ROUNDINGS

QUICK = settings(max_examples=40)
WHOLE = st.integers(-20, 20)
FLOAT = st.floats(-50, 50, width=32).map(lambda x: round(x, 3))
NUMBER = WHOLE | FLOAT
SHAPES = st.lists(st.integers(0, 3), min_size=0, max_size=3)


@st.composite
def arrays(draw: st.DrawFn, least: int = 0) -> np.ndarray:
    shape = draw(st.lists(st.integers(least, 3), max_size=3))
    dtype = draw(st.sampled_from([np.int64, np.float32]))
    values = draw(st.lists(WHOLE if dtype == np.int64 else FLOAT, min_size=math.prod(shape), max_size=math.prod(shape)))
    return np.array(values, dtype=dtype).reshape(shape)


@QUICK
@given(st.sampled_from(OPERATIONS), NUMBER, NUMBER, st.booleans())
def test_arithmetic_on_numbers(operation: str, a: float, b: float, wired: bool) -> None:
    params = {"operation": operation, **({} if wired else {"number": b})}
    agree("numbers.arithmetic", params, {"a": a, **({"b": b} if wired else {})})


@QUICK
@given(st.sampled_from([one for one in OPERATIONS if one != "power"]), arrays(), arrays() | NUMBER)
def test_arithmetic_on_tensors(operation: str, a: np.ndarray, b: Any) -> None:
    if operation in ("floor_divide", "remainder"):  # at a whole quotient, rounding decides
        a, b = a.astype(np.int64), np.asarray(b).astype(np.int64)
    agree("numbers.arithmetic", {"operation": operation, "type": "tensor", "b_type": "tensor"}, {"a": a, "b": b})


def test_a_scalar_of_a_request_is_a_number() -> None:
    assert served("numbers.arithmetic", {"number": 2}, {"a": np.array([1])}) == {"result": 3}
    found = served("numbers.arithmetic", {"number": 2, "type": "tensor"}, {"a": np.array([1])})
    assert found["result"].tolist() == [3]
    stacked = served("numbers.stack", {"ports": "a: scalar, b: scalar"}, {"a": np.array([1]), "b": 2})
    assert stacked["values"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("operation", "a", "b", "says"),
    [
        ("divide", 1, 0, "divides by zero"),
        ("remainder", np.array([1, 2]), np.array([1, 0]), "divides by zero"),
        ("floor_divide", np.array([1.0]), 0, "divides by zero"),
        ("power", 0, -1, "divides by zero"),
        ("power", -8, 0.5, "isn't whole"),
        ("power", 10, 10**9, "too large"),
        ("power", 1e300, 2, "too large"),
        ("multiply", 2**62, 4, "too large"),
        ("add", np.zeros((2, 3)), np.zeros((4,)), "shapes [2, 3] and [4]"),
        ("add", np.zeros((8192, 1)), np.zeros((8192,)), "may have"),
        ("add", "1", 2, "takes one number at `a`"),
    ],
)
def test_arithmetic_says_what_it_refuses(operation: str, a: Any, b: Any, says: str) -> None:
    with pytest.raises(WrongInput) as failed:
        served("numbers.arithmetic", {"operation": operation}, {"a": a, "b": b})
    assert says in str(failed.value)


def test_tensors_of_flags_count_as_numbers() -> None:
    found = served("numbers.arithmetic", {"operation": "subtract", "number": 1}, {"a": np.array([True, False])})
    assert found["result"].tolist() == [0, -1]


@QUICK
@given(st.sampled_from(COMPARISONS), NUMBER, NUMBER, st.booleans())
def test_comparisons(comparison: str, a: float, b: float, wired: bool) -> None:
    params = {"comparison": comparison, **({} if wired else {"number": b})}
    agree("numbers.compare", params, {"a": a, **({"b": b} if wired else {})})
    agree("numbers.compare", params, {"a": a, **({"b": a} if wired else {})})


@QUICK
@given(
    NUMBER | arrays(),
    st.sampled_from(["scalar: int", "scalar: float", "flag", "tensor: int", "tensor: float", "text"]),
    st.sampled_from(ROUNDINGS),
)
def test_casts(value: Any, to: str, rounding: str) -> None:
    if to == "text" and isinstance(value, np.ndarray) and value.size == 1:
        value = 0.5
    agree("numbers.cast", {"to": to, "rounding": rounding}, {"value": value})


def test_a_cast_that_does_not_fit_is_refused() -> None:
    for value in (1e30, np.array([0.0, -1e30])):
        with pytest.raises(WrongInput, match="64 bits"):
            served("numbers.cast", {"to": "tensor: int"}, {"value": value})
    assert served("numbers.cast", {"to": "text"}, {"value": np.array(0.1, np.float32)}) == {"value": "0.1"}


@QUICK
@given(arrays(least=1) | NUMBER, st.integers(1, 9))
def test_statistics(values: Any, bins: int) -> None:
    agree("numbers.statistics", {"bins": bins}, {"values": values})


def test_statistics_need_a_number() -> None:
    agree("numbers.statistics", {}, {"values": np.zeros((0, 3))})


@QUICK
@given(arrays() | NUMBER, st.integers(-3, 2))
def test_shapes(value: Any, axis: int) -> None:
    agree("numbers.shape", {"axis": axis}, {"value": value})
    agree("numbers.unstack", {"axis": axis}, {"values": value})
    agree("numbers.unstack", {"axis": axis, "to": "scalar"}, {"values": value})


@QUICK
@given(arrays(), st.integers(-4, 4), st.booleans(), st.sampled_from(["tensor", "scalar"]))
def test_slices(values: np.ndarray, index: int, wired: bool, to: str) -> None:
    params = {"to": to, **({} if wired else {"index": index})}
    agree("numbers.select", params, {"values": values, **({"index": index} if wired else {})})


@QUICK
@given(arrays(), arrays() | NUMBER, st.booleans(), st.sampled_from(["stack", "concat"]), st.integers(-3, 3))
def test_stacks(a: np.ndarray, b: Any, same: bool, how: str, axis: int) -> None:
    other = np.asarray(a + 1) if same else b
    agree("numbers.stack", {"how": how, "axis": axis, "ports": "a, b: tensor"}, {"a": a, "b": other})


@QUICK
@given(arrays(), st.lists(st.integers(-1, 4), max_size=3).filter(lambda sizes: sizes.count(-1) < 2))
def test_reshapes(value: np.ndarray, sizes: list[int]) -> None:
    agree("numbers.reshape", {"shape": ", ".join(map(str, sizes))}, {"value": value})


@pytest.mark.parametrize("shape", ["a", "1,,2", "-2", "-1, -1", "1, 2, 3, 4, 5, 6, 7, 8, 9", "99999999999"])
def test_a_shape_that_cannot_be_read_is_refused(shape: str) -> None:
    with pytest.raises(Refused, match="is not a shape"):
        served("numbers.reshape", {"shape": shape}, {"value": 1})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("scalar", "3", 3),
        ("scalar: float", "3", 3.0),
        ("scalar: int", "3", 3),
        ("flag", "true", True),
        ("text", "[1", "[1"),
        ("list of text", '["a"]', ["a"]),
        ("list of scalar", "[1, 0.5]", [1, 0.5]),
        ("tensor: int[2]", "[1, 2]", torch.tensor([1, 2])),
        ("tensor: float", "[[1, 2]]", torch.tensor([[1.0, 2.0]])),
    ],
)
def test_constants(kind: str, text: str, value: Any) -> None:
    found = served("numbers.constant", {"type": kind, "value": text}, {})["value"]
    assert type(found) is type(value)
    assert (
        torch.equal(found, value) and found.dtype == value.dtype if isinstance(value, torch.Tensor) else found == value
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("scalar", "a"),
        ("scalar", "true"),
        ("scalar", "[1]"),
        ("flag", "1"),
        ("list of text", '"a"'),
        ("list of text", "[1]"),
        ("tensor", "[[1], [1, 2]]"),
        ("tensor", '["a"]'),
        ("image", '"a"'),
        ("tensor", "[" * 100_000),
    ],
)
def test_a_constant_that_is_not_of_its_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(Refused):
        served("numbers.constant", {"type": kind, "value": text}, {})


@QUICK
@given(st.integers(0, 2**63 - 1), st.integers(-5, 5), st.integers(0, 5))
def test_random_numbers_keep_their_bounds(seed: int, low: int, span: int) -> None:
    params = {"shape": "40", "low": float(low), "high": float(low + span)}
    whole = served("numbers.random", {**params, "distribution": "integer"}, {}, seed)["value"]
    assert whole.dtype == torch.int64
    assert low <= int(whole.min()) <= int(whole.max()) <= low + span
    uniform = served("numbers.random", params, {}, seed)["value"]
    assert low <= float(uniform.min()) <= float(uniform.max()) <= low + span
    again = served("numbers.random", params, {}, seed)["value"]
    assert torch.equal(uniform, again)
    assert not span or not torch.equal(uniform, served("numbers.random", params, {}, seed ^ 1)["value"])


def test_random_numbers_are_distributed_as_they_should() -> None:
    uniform = served("numbers.random", {"shape": "20000"}, {})["value"].double()
    assert abs(float(uniform.mean()) - 0.5) < 0.02
    assert abs(float(uniform.std()) - math.sqrt(1 / 12)) < 0.02
    normal = {"shape": "20000", "distribution": "normal", "mean": 3.0, "std": 2.0}
    drawn = served("numbers.random", normal, {})["value"].double()
    assert abs(float(drawn.mean()) - 3) < 0.1
    assert abs(float(drawn.std()) - 2) < 0.1
    dice = served("numbers.random", {"shape": "6000", "distribution": "integer", "low": 1.0, "high": 6.0}, {})["value"]
    assert min(torch.bincount(dice)[1:].tolist()) > 850


def test_random_numbers_without_a_range_are_refused() -> None:
    for params in ({"low": 2.0}, {"low": 0.2, "high": 0.8, "distribution": "integer"}):
        with pytest.raises(CallFailed, match=r"draws from|no whole number"):  # the graph is at fault, not the client
            served("numbers.random", params, {})
    with pytest.raises(Refused, match="none of them negative"):
        served("numbers.random", {"shape": "-1"}, {})
    with pytest.raises(WrongInput, match="may have"):
        served("numbers.random", {"shape": "4097, 4097"}, {})
