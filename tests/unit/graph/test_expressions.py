"""The closed grammar: what it computes, what it refuses, and that it never does anything else."""

import math
import operator
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse, source
from walkgraph.graph.language.syntax import FUNCTIONS, MAX_LENGTH

PARAMS = {"steps": 50, "scale": 4.0, "on": True, "mode": "global", "zero": 0}
LOOPS = {"index": 3, "denoise": 3, "outer": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("steps - 1", 49),
        ("steps - 1 - 1", 48),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("-steps + 1", -49),
        ("--2", 2),
        ("7 // 2", 3),
        ("7 / 2", 3.5),
        ("-7 % 3", 2),
        ("scale > 1", True),
        ("1 < @loop.index <= 3", True),
        ("1 < @loop.index < 3", False),
        ("mode == 'global'", True),
        ("mode != 'global'", False),
        ("on == true", True),
        ("not on", False),
        ("not not on and on", True),
        ("not 1 > 2", True),
        ("false or on and scale > 4", False),
        ("@loop.outer + @loop.denoise", 4),
        ("min(steps, 3, 9)", 3),
        ("max(1, scale)", 4.0),
        ("abs(-3)", 3),
        ("ceil(scale / 3) + floor(0.9)", 2),
        ("round(2.5)", 2),
        ("flow_time(0, steps, 3)", 1.0),
        ("flow_time(steps - 1, steps, 3)", 0.0),
        ("flow_time(1, 3, 3)", 0.75),
        ("float32(0.5)", 0.5),
        ("float32(0.4) == 0.4", False),
        ("float32(0.4) == float32(float32(0.4))", True),
        ("on or zero / zero > 1", True),
    ],
)
def test_value(text: str, value: object) -> None:
    result = evaluate(parse(text), PARAMS, LOOPS)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 0, "value is missing"),
        ("1 +", 3, "value is missing"),
        ("a = 1", 2, "`==`"),
        ("a && b", 2, "`and`"),
        ("(a", 2, "close the parenthesis"),
        ("a b", 2, "unexpected here"),
        ("a.b", 1, "no dots"),
        ('"a"', 0, "single quotes"),
        ("'a", 0, "close the text"),
        ("a ^ 2", 2, "no power"),
        ("@in.x", 0, "@loop.index"),
        ("f(1)", 0, "no function `f`"),
        ("__import__('os')", 0, "no function"),
        ("min(1)", 0, "2 or more"),
        ("abs(1, 2)", 0, "takes 1"),
        ("min(1 2)", 6, "separate arguments"),
        ("not", 3, "missing"),
        ("1 and or 2", 6, "missing before `or`"),
        ("9223372036854775808", 0, "64 bits"),
        ("1e999", 0, "too large"),
        ("1 / 0", 2, "divisor"),
        ("float32(1e39)", 0, "smaller values"),
        ("1 < 'a'", 2, "numbers"),
        ("1 == 'a'", 2, "one type"),
        ("true + 1", 5, "numbers"),
        ("1 and true", 2, "compare first"),
        ("not 1", 0, "compare first"),
        ("\x00", 0, "not understood"),
        ("-" * 60 + "1", 48, "nested"),
        ("(" * 60 + "1" + ")" * 60, 48, "nested"),
        ("not " * 60 + "true", 192, "nested"),
        ("+".join("1" * 60), 117, "nested"),
        ("1" + " " * MAX_LENGTH, MAX_LENGTH, "at most"),
    ],
)
def test_parse_refuses(text: str, position: int, says: str) -> None:
    with pytest.raises(ExpressionError, match=says) as caught:
        parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("steps + absent", 8, "no parameter `absent`"),
        ("@loop.other", 0, "outside its loop"),
        ("steps // zero", 6, "divisor"),
        ("steps % zero", 6, "divisor"),
        ("1e308 * scale", 6, "overflows"),
        ("scale + mode", 6, "`\\+` takes numbers; found 4.0 and 'global'"),
        ("max(on, 1)", 0, "numbers"),
        ("not mode", 0, "true or false"),
        ("mode and on", 5, "true or false"),
        ("on < 2", 3, "numbers"),
        ("flow_time(0, 1 + zero, 3)", 0, "two steps"),
        ("flow_time(0, steps, zero)", 0, "positive shift"),
        ("float32(1e39 * steps)", 0, "smaller values"),
        ("9223372036854775807 * steps", 20, "64 bits"),
    ],
)
def test_evaluate_refuses(text: str, position: int, says: str) -> None:
    expression = parse(text)
    with pytest.raises(ExpressionError, match=says) as caught:
        evaluate(expression, PARAMS, LOOPS)
    assert caught.value.position == position


def test_names_and_loops() -> None:
    expression = parse("steps > 1 and @loop.index < 2 or @loop.outer == min(steps, k)")
    assert expression.names == {"steps", "k"}
    assert expression.loops == {"index", "outer"}


def test_equal_whatever_the_spacing_and_cached() -> None:
    assert parse("( a+b )*2") == parse("(a + b) * 2")
    assert hash(parse("( a+b )*2")) == hash(parse("(a + b) * 2"))
    assert parse("1") != parse("1.0")
    assert parse("1") != parse("true")
    assert parse("a - 1") is parse("a - 1")


def test_source_keeps_what_brackets_mean() -> None:
    assert source(parse("a-(b-c)")) == "a - (b - c)"
    assert source(parse("((a-b)-c)")) == "a - b - c"
    assert source(parse("not (a and b)")) == "not (a and b)"
    assert source(parse("(a<b)==c")) == "(a < b) == c"
    assert source(parse("-(-a)")) == "--a"
    assert source(parse("-(a*b)")) == "-(a * b)"
    assert source(parse("min( x,1 )")) == "min(x, 1)"


# ── against Python's own arithmetic, on what both know ──────────────────────────────────────────

_NAMES = {"a": 3, "b": 0.5, "c": -2}
_atoms = st.one_of(
    st.integers(0, 99).map(str), st.sampled_from(list(_NAMES)), st.floats(0, 9).map(lambda x: f"{x:.3f}")
)


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    op = st.sampled_from(["+", "-", "*", "/", "//", "%"])
    return st.one_of(
        st.tuples(inner, op, inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        inner.map(lambda x: f"({x})"),
        inner.map(lambda x: f"-({x})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
    )


@given(st.recursive(_atoms, _combine, max_leaves=12))
@settings(max_examples=300)
def test_arithmetic_is_pythons(text: str) -> None:
    try:
        expected = eval(text, {"max": max, "__builtins__": {}}, dict(_NAMES))
    except (ZeroDivisionError, OverflowError):
        expected = None
    try:
        value = evaluate(parse(text), _NAMES)
    except ExpressionError:
        value = None
    assert value == expected or (isinstance(value, float) and math.isclose(value, expected))


@given(st.recursive(_atoms, _combine, max_leaves=12))
def test_source_parses_to_the_same(text: str) -> None:
    try:
        expression = parse(text)
    except ExpressionError:
        return
    assert parse(source(expression)) == expression


@given(st.text(alphabet="abn()<>=!+-*/%., '@loindexrtfmu019e", max_size=60))
@settings(max_examples=500)
def test_any_text_is_read_or_refused(text: str) -> None:
    match _outcome(text):
        case ExpressionError(position=position):
            assert 0 <= position <= len(text)
        case value:
            assert isinstance(value, bool | int | float | str)


def _outcome(text: str) -> object:
    try:
        return evaluate(parse(text), {"a": 1, "b": 2.0, "n": True}, {"index": 0})
    except ExpressionError as error:
        return error


@pytest.mark.parametrize(
    ("op", "apply"), [("<", operator.lt), ("<=", operator.le), (">", operator.gt), ("!=", operator.ne)]
)
@given(a=st.integers(-3, 3), b=st.integers(-3, 3))
def test_comparisons_are_pythons(op: str, apply: object, a: int, b: int) -> None:
    assert evaluate(parse(f"a {op} b"), {"a": a, "b": b}) == apply(a, b)


def test_the_documentation_has_every_function_with_a_true_example(repository: Path) -> None:
    text = (repository / "docs" / "reference" / "expressions.md").read_text()
    rows = re.findall(r"^\| .*? \| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE)
    assert [(shown, told) for shown, told in rows if evaluate(parse(shown), {}) != evaluate(parse(told), {})] == []
    assert set(FUNCTIONS) <= {shown.partition("(")[0] for shown, _ in rows}
