"""Texts against plain Python, and bounds on what clients' texts may cost."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.palette_twins import WrongInput, agree, served
from walkgraph.architectures.plain.values import MOST_CHARACTERS
from walkgraph.errors import Refused
from walkgraph.models.text import string_operators

QUICK = settings(max_examples=40)
TEXT = st.text("ab1 ,\né😀{}\\", max_size=12)
LONG = st.integers(0, 30).flatmap(lambda n: st.text("ab1,é ", min_size=n, max_size=n))


@QUICK
@given(TEXT, st.integers(-99, 99) | st.floats(-9, 9).map(lambda x: round(x, 3)) | st.booleans(), st.booleans())
def test_templates(text: str, number: Any, there: bool) -> None:
    params = {"template": "{{{a}}} is {n: scalar}, {b?: text}{a}\n}}"}
    agree("text.template", params, {"a": text, "n": number, **({"b": text} if there else {})})


def test_a_hole_takes_texts_and_numbers() -> None:
    assert served("text.template", {}, {"value": torch.tensor(0.1)}) == {"text": "0.1"}
    assert served("text.template", {}, {"value": "\ud800"}) == {"text": "?"}
    for value in (torch.zeros(2), ["a"], b"a"):
        with pytest.raises(WrongInput, match="takes a text, a number or a flag at `value`"):
            served("text.template", {}, {"value": value})


@QUICK
@given(st.lists(TEXT, max_size=4), st.sampled_from(["", ",", "\n", ", "]))
def test_joins(texts: list[str], separator: str) -> None:
    agree("text.join", {"separator": separator}, {"texts": texts})


@QUICK
@given(LONG, st.sampled_from(["", ",", "a", "ab", "aa", "é"]), st.booleans())
def test_splits(text: str, separator: str, keep: bool) -> None:
    agree("text.split", {"separator": separator, "keep_empty": keep}, {"text": text})


@QUICK
@given(LONG, st.sampled_from([r"a+", r"(a)|(1)", r"(\d+)(,?)", r"é.", r"[^a]+", r"b*", r"(a*)b|$"]), st.integers(0, 2))
def test_extracts(text: str, pattern: str, group: int) -> None:
    if group <= pattern.count("("):
        agree("text.extract", {"pattern": pattern, "group": group}, {"text": text})


@QUICK
@given(LONG, st.sampled_from(["a", "ab", "aa", "é"]), st.sampled_from(["", "x", "aaa", "\\1"]))
def test_replaces(text: str, find: str, put: str) -> None:
    agree("text.replace", {"find": find, "replacement": put}, {"text": text})


@QUICK
@given(
    LONG,
    st.sampled_from([(r"a(b?)", r"<\1>"), (r"(\d)(,)", r"\2\1"), ("é+", "e"), ("[ab]+", r"\\"), ("(a)|b", r"\0\1")]),
)
def test_replaces_with_patterns(text: str, rule: tuple[str, str]) -> None:
    find, put = rule
    params = {"find": find, "replacement": put, "regex": True}
    if r"\0" not in put:
        agree("text.replace", params, {"text": text})
    else:
        assert served("text.replace", params, {"text": text})["text"] == text.replace("a", "aa")


@QUICK
@given(LONG, st.sampled_from(["both", "start", "end"]), st.sampled_from(["", "a ", "é"]), st.integers(0, 8))
def test_trims(text: str, sides: str, characters: str, longest: int) -> None:
    agree("text.trim", {"sides": sides, "characters": characters, "longest": longest}, {"text": text})


@QUICK
@given(TEXT, TEXT, st.integers(1, 4), st.booleans())
def test_similarity_is_the_share_of_pieces_in_common(a: str, b: str, letters: int, ignore_case: bool) -> None:
    agree("text.similarity", {"letters": letters, "ignore_case": ignore_case}, {"a": a, "b": b})
    agree("text.similarity", {"letters": letters, "ignore_case": ignore_case}, {"a": a, "b": a.upper()})


def test_texts_that_are_too_long_are_not_compared() -> None:
    with pytest.raises(WrongInput, match="200,000 characters"):
        served("text.similarity", {}, {"a": "a" * 200_001, "b": "a"})


@pytest.mark.parametrize(
    ("component", "params", "says"),
    [
        ("text.extract", {"pattern": "("}, r"missing \)"),
        ("text.extract", {"pattern": "(?=a)"}, "not a regular expression of RE2"),
        ("text.extract", {"pattern": "a", "group": 1}, "has 0 groups"),
        ("text.replace", {"find": ""}, "is empty"),
        ("text.replace", {"find": "(a)", "regex": True, "replacement": r"\2"}, r"has `\\2`"),
        ("text.replace", {"find": "a", "regex": True, "replacement": "\\"}, "the replacement has"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(component: str, params: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        served(component, params, {"text": "a"})


def test_no_pattern_takes_exponential_time(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.process_time()
    monkeypatch.setattr(string_operators, "_MOST_SECONDS", 0.02)
    hard = "a" * 100_000
    for pattern in (r"(a+)+$", r"(a|a)*b", r"(x+x+)+y", r"(.*)*$b"):
        served("text.extract", {"pattern": pattern}, {"text": hard + "!"})
    with pytest.raises(WrongInput, match="to search the text"):  # each match looks at all that is left
        served("text.extract", {"pattern": r"a[^b]*b|ac"}, {"text": "ac" * 500_000})
    assert time.process_time() - began < 60


@pytest.mark.parametrize(
    ("component", "params", "inputs"),
    [
        ("text.join", {"separator": "a" * 1024}, {"texts": [""] * 8192}),
        ("text.template", {"template": "{value}{value}"}, {"value": "a" * (MOST_CHARACTERS - 1)}),
        ("text.replace", {"find": "a", "replacement": "b" * 1024}, {"text": "a" * 8192}),
        ("text.replace", {"find": "a", "replacement": "b" * 1024, "regex": True}, {"text": "a" * 8192}),
        ("text.split", {"separator": ","}, {"text": "," * 20_000}),
        ("text.extract", {"pattern": "a"}, {"text": "a" * 20_000}),
    ],
)
def test_no_text_grows_without_bound(component: str, params: dict[str, Any], inputs: dict[str, Any]) -> None:
    with pytest.raises(WrongInput, match=r"the longest may have|of more than"):
        served(component, params, inputs)
