"""JSON against the standard library, and what clients may send."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.palette_twins import WrongInput, agree, served
from walkgraph.errors import Refused
from walkgraph.graph.language.literals import path_of, steps_of

QUICK = settings(max_examples=30)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAF = TEXT | st.integers(-(2**40), 2**40) | st.booleans() | st.none() | st.floats(-1e6, 1e6)
JSON = st.recursive(LEAF, lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXT, one, max_size=3), max_leaves=8)


@QUICK
@given(TEXT, st.floats(-1e6, 1e6) | st.integers(-99, 99), st.booleans(), st.lists(TEXT, max_size=3), JSON)
def test_values_become_an_object(text: str, number: float, flag: bool, texts: list[str], inner: Any) -> None:
    ports = "text, number: scalar, flag: flag, texts?: list of text, inner, tensor: tensor"
    inputs = {"text": text, "number": number, "flag": flag, "inner": json.dumps(inner), "tensor": np.array([[1, 2]])}
    for more in ({}, {"texts": texts}):
        agree("json.build", {"ports": ports, "nested": "inner"}, {**inputs, **more})


def test_floats_are_written_as_short_as_they_are() -> None:
    values = torch.tensor([[0.1, 2.0]])
    assert served("json.build", {}, {"value": values}) == {"text": '{"value":[[0.1,2.0]]}'}
    assert served("json.build", {}, {"value": values[0, 0]}) == {"text": '{"value":0.1}'}
    assert served("json.build", {}, {"value": torch.tensor([3])}) == {"text": '{"value":[3]}'}


def test_a_scalar_of_a_request_is_a_number() -> None:
    assert served("json.build", {"ports": "n: scalar"}, {"n": torch.tensor([3])}) == {"text": '{"n":3}'}


def test_what_json_cannot_hold_is_refused() -> None:
    for value in (float("inf"), b"bytes", torch.zeros(100_001), [b"bytes"]):
        with pytest.raises(WrongInput):
            served("json.build", {}, {"value": value})
    with pytest.raises(WrongInput, match="line 1, column 2"):
        served("json.build", {"nested": "value"}, {"value": "{"})
    with pytest.raises(WrongInput, match="longest"):
        served("json.build", {}, {"value": "a" * (4 << 20)})


@QUICK
@given(JSON, TEXT.filter(lambda text: not set(text) & set("[]{}")))
def test_json_is_read(value: Any, words: str) -> None:
    text = json.dumps(value, indent=2)
    agree("json.read", {}, {"text": text})
    agree("json.read", {}, {"text": text[:-1]})
    agree("json.read", {"search": True}, {"text": f"{words} {json.dumps([value])} {words}"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1, column 1"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6"),
        ("[1] 2", "line 1, column 5"),
        ("[NaN]", "`NaN` is not a number"),
        ("[1e999]", "too large"),
        ("[" + "1" * 5000 + "]", "too many digits"),
        ("[" * 500_000, "nested so deep"),
    ],
)
def test_a_text_that_is_not_json_is_refused(text: str, says: str) -> None:
    with pytest.raises(WrongInput, match=says):
        served("json.read", {}, {"text": text})
    with pytest.raises(WrongInput):
        served("json.pick", {}, {"text": text})


def test_a_search_takes_a_bounded_time() -> None:
    began = time.process_time()
    with pytest.raises(WrongInput, match="no JSON object"):
        served("json.read", {"search": True}, {"text": '[{"' * 300_000})
    # Each of 100 places is read once; 900,000 would take hours.
    assert time.process_time() - began < 60


@QUICK
@given(JSON, st.sampled_from(["", "a", "a.b", "[0]", "a[0].b", "[-1][0]", "a[1]"]), st.sampled_from(["fail", "absent"]))
def test_values_are_picked(inner: Any, path: str, missing: str) -> None:
    for value in (inner, {"a": inner}, {"a": {"b": inner}}, [inner], {"a": [{"b": inner}, 1]}):
        for kind in ("text", "scalar", "flag", "list of text"):
            agree("json.pick", {"path": path, "type": kind, "missing": missing}, {"text": json.dumps(value)})


def test_a_refusal_says_what_is_there() -> None:
    text = '{"items": [{"name": "Ada"}]}'
    with pytest.raises(WrongInput, match=r"finds nothing at `items\[0\]\.age`"):
        served("json.pick", {"path": "items[0].age.years"}, {"text": text})
    with pytest.raises(WrongInput, match=r"takes a scalar at `items`, and finds a list"):
        served("json.pick", {"path": "items", "type": "scalar"}, {"text": text})


def test_lone_surrogates_are_no_characters() -> None:
    assert served("json.pick", {}, {"text": '"\\ud800"'}) == {"value": "?"}
    assert served("json.read", {}, {"text": '["\\ud800"]'}) == {"text": '["?"]'}


@given(st.lists(st.integers(-5, 5) | TEXT, max_size=6))
def test_a_path_is_what_its_steps_are(steps: list[str | int]) -> None:
    assert steps_of(path_of(steps)) == steps


@pytest.mark.parametrize("path", ["a..b", ".a", "a.", "a[b]", "a b", "[1", "a[1]b", "[0.5]", "a." + "b." * 70 + "c"])
def test_a_path_that_cannot_be_read_is_refused(path: str) -> None:
    with pytest.raises(Refused, match="path"):
        steps_of(path)
