"""Values that pass, are chosen, collected, or end a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.palette_twins import WrongInput, agree, served
from walkgraph.abi.calls import CallFailed

QUICK = settings(max_examples=40)
VALUE = st.text(max_size=5) | st.integers(-9, 9) | st.booleans()


@QUICK
@given(VALUE, VALUE, st.booleans())
def test_flags_decide_what_passes(a: Any, b: Any, flag: bool) -> None:
    agree("control.gate", {}, {"value": a, "flag": flag})
    agree("control.select", {}, {"flag": flag, "if_true": a, "if_false": b})
    agree("control.fail", {}, {"value": a, "flag": flag})


def test_a_flag_can_be_a_slice_of_a_tensor() -> None:
    flags = torch.tensor([True, False])
    assert served("control.gate", {}, {"value": "a", "flag": flags[0]}) == {"value": "a"}
    assert served("control.gate", {}, {"value": "a", "flag": flags[1]}) == {}
    with pytest.raises(WrongInput, match="takes a flag at `flag`"):
        served("control.gate", {}, {"value": "a", "flag": flags})


def test_a_tensor_passes_as_it_is() -> None:
    value = torch.ones(3)
    assert served("control.gate", {}, {"value": value, "flag": True})["value"] is value
    assert served("control.collect", {"ports": "a: tensor", "type": "tensor"}, {"a": value})["items"][0] is value


def test_the_chosen_value_must_be_there() -> None:
    assert served("control.select", {}, {"flag": True, "if_true": 1}) == {"value": 1}
    with pytest.raises(CallFailed, match="chooses `if_false`, which has no value"):
        served("control.select", {}, {"flag": False, "if_true": 1})


@QUICK
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUE))
def test_lists_are_in_the_order_of_the_ports(values: dict[str, Any]) -> None:
    agree("control.collect", {"ports": "c, a, b"}, values)


@QUICK
@given(st.lists(VALUE, max_size=4), st.integers(-5, 5), st.booleans())
def test_items_of_lists(items: list[Any], index: int, wired: bool) -> None:
    params = {} if wired else {"index": index}
    agree("control.item", params, {"items": items, **({"index": index} if wired else {})})
    agree("control.count", {}, {"items": items})


def test_an_index_is_whole() -> None:
    with pytest.raises(WrongInput, match="whole number at `index`"):
        served("control.item", {}, {"items": ["a"], "index": 0.5})
    with pytest.raises(WrongInput, match="takes item 3 of a list of 1"):
        served("control.item", {"index": 3}, {"items": ["a"]})
    with pytest.raises(WrongInput, match="takes a list"):
        served("control.count", {}, {"items": "abc"})


def test_a_run_ends_with_the_message() -> None:
    for params, inputs in (({"message": "Too dark."}, {}), ({}, {"message": "Too dark.", "flag": True})):
        with pytest.raises(WrongInput, match=r"^Too dark\.$"):
            served("control.fail", params, inputs)
    with pytest.raises(CallFailed) as failed:
        served("control.fail", {"code": "node_error"}, {"message": "a" * 5000})
    assert failed.value.code == "node_error"
    assert len(str(failed.value)) == 1000
