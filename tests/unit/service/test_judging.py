"""What may be planned and not deployed is refused by name."""

import json

import pytest

from walkgraph.resources import bundled
from walkgraph.service.judging import deployable, judge
from walkgraph.service.problems import Unprocessable


def document(name: str) -> dict[str, object]:
    return json.loads(bundled("graphs")[name].read_text())


def refusal(name: str, **changes: object) -> Unprocessable:
    judged = judge(document(name) | changes, None, ())
    assert judged.plan is not None, judged.placement_problems
    with pytest.raises(Unprocessable) as caught:
        deployable(judged)
    return caught.value


def test_a_component_without_a_network_is_refused() -> None:
    refused = refusal("qwen3_omni", weights={"omni": {"family": "qwen3_omni", "source": "checkpoint:none"}})
    assert {fault.code for fault in refused.faults} == {"unavailable", "no_weights"}
    assert "(`no_weights` and `unavailable`)" in str(refused)


def test_weights_that_are_not_here_are_refused() -> None:
    refused = refusal("shapes", weights={"shapes": {"family": "bagel", "source": "checkpoint:none"}})
    assert [fault.code for fault in refused.faults] == ["no_weights"]
    assert "(`no_weights`)" in str(refused)


def test_a_plan_without_either_is_the_answer() -> None:
    judged = judge(document("shapes"), None, ())
    assert deployable(judged) is judged.plan
