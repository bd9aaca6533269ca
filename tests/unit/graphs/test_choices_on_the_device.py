"""The real engine on loops whose choices the device makes: as the same loops stepped, run by run and row by row."""

import json
from functools import cache
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment
from walkgraph.engine.engine import Engine, Event, Forwarded, Stepped
from walkgraph.graph import codec
from walkgraph.placement.document import Group, Placement, RankDevice

NUMBERS = count()
FLOW: dict[str, dict[str, str]] = {
    "u": {"time": "0.25", "step": "0.5"},
    "a": {"time": "2.0", "step": "a_step"},
    "b": {"time": "-1.0", "step": "0.125"},
    "x": {"time": "1.0", "step": "0.0625"},
}
PARAMS: dict[str, Any] = {
    "times": {"type": "integer", "default": 5},
    "from": {"type": "integer", "default": 3},
    "a_step": {"type": "number", "default": 0.5},
    "size": {"type": "integer", "default": 4},
}
CHOICES: dict[str, dict[str, Any]] = {
    "both": {"cases": {"true": ["a"], "false": ["b"]}},
    "otherwise": {"cases": {"true": ["a"]}, "otherwise": ["b"]},
    "turned": {"cases": {"false": ["b"]}, "otherwise": ["a"]},
}


class Telling(Engine):
    """Keeps what it tells of its launches."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.told: list[Stepped] = []

    def step(self) -> list[Event]:
        events = super().step()
        self.told += [event for event in events if isinstance(event, Stepped)]
        return [event for event in events if not isinstance(event, Stepped | Forwarded)]


class Watched(LocalDeployment):
    engine_type = Telling


@cache
def deployment(choice: str, resident: bool) -> LocalDeployment:
    """From the token `from` on, branch `a` is taken. What the branches give meets in `x`, and in the next iteration."""
    body = ["count", "u", {"choose": "count.stop", **CHOICES[choice]}, "x"]
    nodes = {
        name: {"component": "synthetic.euler", "params": {key: f"={text}" for key, text in given.items()}}
        for name, given in FLOW.items()
    }
    document = {
        "format": "walkgraph/graph@1",
        "name": "chosen",
        "nodes": {
            "first": {"component": "synthetic.tokens"},
            "items": {"component": "synthetic.tensor", "params": {"n": "=size"}},
            "count": {"component": "synthetic.noop", "params": {"stop_at": "=from"}},
            **nodes,
        },
        "walks": {
            "w": {
                "body": ["first", "items", {"loop": "l", "times": "times", "body": body}],
                "merges": {"m": ["a.items", "b.items"]},
                "edges": [
                    ["first.ids", "count.token"],
                    ["count.token", "count.token"],
                    ["items.items", "u.items"],
                    ["@merge.m", "u.items"],
                    ["u.items", "a.items"],
                    ["u.items", "b.items"],
                    ["@merge.m", "x.items"],
                    {"from": "x.items", "to": "@out.all", "each": True},
                    {"from": "u.items", "to": "@out.last"},
                ],
            }
        },
        "tasks": {"t": {"outputs": ["all", "last"], "params": PARAMS, "steps": [{"walk": "w"}]}},
    }
    placement = Placement(
        name="p", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),)
    )
    local = Watched(codec.load(json.dumps(document)), placement, threads=1, resident=resident)
    (loop,) = local.plan.walks[0].loops
    assert (loop.resident, loop.choices) == (resident, (0,) if resident else ()), loop.why
    return local


def given_by(choice: str, resident: bool, asked: list[dict[str, Any]]) -> list[Any]:
    """For each run its outputs, or the code of its error."""
    local = deployment(choice, resident)
    names = [f"r{next(NUMBERS)}" for _ in asked]
    for name, params in zip(names, asked, strict=True):
        local.submit(name, "t", params)
    local.run()
    found: list[Any] = []
    for name in names:
        outputs = {out: [value.tolist() for value in values] for out, values in local.outputs.pop(name, {}).items()}
        error = local.failed.pop(name, None)
        found.append(outputs if error is None else error.code)
        local.release(name)
    return found


ASKED = st.fixed_dictionaries(
    {
        "times": st.integers(1, 8),
        "from": st.integers(0, 9),
        "a_step": st.sampled_from([0.5, 0.25, 3e38]),
        "size": st.sampled_from([1, 4]),
    }
)


@pytest.mark.parametrize("choice", CHOICES)
@settings(max_examples=15)
@given(asked=st.lists(ASKED, min_size=1, max_size=5))
def test_values_come_as_from_a_stepped_loop(choice: str, asked: list[dict[str, Any]]) -> None:
    """With the largest step, branch `a` overflows: that fails a run only if the branch is taken."""
    assert given_by(choice, True, asked) == given_by(choice, False, asked)


def test_numbers_of_a_branch_that_is_not_taken_fail_no_run() -> None:
    wild = {"times": 4, "from": 9, "a_step": 3e38, "size": 4}
    (never,) = given_by("both", True, [wild])
    assert len(never["all"]) == 4
    assert given_by("both", True, [{**wild, "from": 3}]) == ["numeric_error"]


def test_telemetry_says_that_all_branches_were_computed() -> None:
    local = deployment("both", True)
    (engine,) = local.engines.values()
    assert isinstance(engine, Telling)
    engine.time_steps(on=True)
    given_by("both", True, [{"times": 3, "from": 9, "a_step": 0.5, "size": 4}])
    engine.time_steps(on=False)
    assert engine.told
    for launch in engine.told:
        assert [launch.members[0].names[use] for use in launch.uses] == ["count", "u", "a", "b", "x"]
