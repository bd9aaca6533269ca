"""Ranges that are inferred before a run hold for every run."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.graph.document import TaskParam
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.language.ranges import BOOLEAN, STRING, Range, infer, range_of

RANGES = {
    "n": Range("integer", 1, 9),
    "x": Range("number", -2.0, 2.0),
    "k": Range("integer"),
    "on": BOOLEAN,
    "mode": STRING,
}


@pytest.mark.parametrize(
    ("text", "kind", "low", "high"),
    [
        ("n - 1", "integer", 0, 8),
        ("n * -2", "integer", -18, -2),
        ("n / 2", "number", 0.5, 4.5),
        ("n // 2", "integer", 0, 4),
        ("k % n", "integer", 0, 9),
        ("-x", "number", -2, 2),
        ("x * x", "number", -4, 4),
        ("max(n, x)", "number", 1, 9),
        ("min(n, k)", "integer", float("-inf"), 9),
        ("abs(x)", "number", 0, 2),
        ("ceil(x / 3)", "integer", 0, 1),
        ("round(x)", "integer", -2, 2),
        ("flow_time(@loop.index, n, 3.0)", "number", 0, 1),
        ("float32(x)", "number", -2, 2),
        ("float32(x * 1e39)", "number", float("-inf"), float("inf")),
        ("@loop.index + 1", "integer", 1, float("inf")),
    ],
)
def test_bounds(text: str, kind: str, low: float, high: float) -> None:
    found = infer(parse(text), RANGES)
    assert (found.kind, found.low, found.high) == (kind, low, high)


@pytest.mark.parametrize("text", ["n > 1", "on and n < 2", "not on", "mode == 'a'", "on == true", "1 < n < x"])
def test_conditions_are_boolean(text: str) -> None:
    assert infer(parse(text), RANGES) == BOOLEAN


@pytest.mark.parametrize("text", ["on + 1", "mode < 'b'", "n and on", "not n", "mode == 1", "on == 1", "abs(mode)"])
def test_clashes_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        infer(parse(text), RANGES)


@pytest.mark.parametrize("text", ["k / n", "k // n", "k % n"])
def test_a_range_without_values_bounds_nothing(text: str) -> None:
    """A document may name a `max` below its `min`; that is a problem of its own."""
    empty = {"n": Range("integer", 1, 0), "k": Range("integer", 0, 9)}
    assert infer(parse(text), empty).high == float("inf")


def test_range_of_a_parameter() -> None:
    assert range_of(TaskParam(type="integer", min=2)) == Range("integer", 2)
    assert range_of(TaskParam(type="string")) == STRING


_atoms = st.sampled_from(["n", "x", "k", "3", "0.5", "@loop.index"])


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    op = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    function = st.sampled_from(["abs", "ceil", "floor", "round"])
    return st.one_of(
        st.tuples(inner, op, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(function, inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"min({t[0]}, {t[1]})"),
        inner.map(lambda x: f"-{x}"),
    )


@given(
    text=st.recursive(_atoms, _combine, max_leaves=6),
    n=st.integers(1, 9),
    x=st.floats(-2, 2),
    k=st.integers(-99, 99),
    index=st.integers(0, 9),
)
@settings(max_examples=400)
def test_every_value_is_within(text: str, n: int, x: float, k: int, index: int) -> None:
    try:
        expression = parse(text)
        value = evaluate(expression, {"n": n, "x": x, "k": k}, {"index": index})
    except ExpressionError:
        return
    found = infer(expression, RANGES)
    assert isinstance(value, int) or found.kind == "number"
    assert found.low - 1e-9 <= value <= found.high + 1e-9
