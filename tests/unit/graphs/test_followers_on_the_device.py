"""The real engine and workers on loops that skip uses and are followed: as the same loops stepped."""

import json
from functools import cache
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment
from walkgraph.graph import codec
from walkgraph.placement.document import Group, Placement, RankDevice

NOOP = {"component": "synthetic.noop", "params": {"stop_at": "=stop_at"}}
DELAY = {"component": "synthetic.delay", "params": {"work": 0, "side": 1}}
BODY: list[Any] = [
    {"use": "before", "when": "@loop.index > 1"},
    "count",
    {"parallel": [{"use": "odd", "when": "@loop.index % every == 1"}, {"use": "wide", "when": "wide > 0"}]},
    {"use": "late", "when": "wide > 0 and @loop.index > 2"},
    {"use": "seen", "when": "preview > 0 and (@loop.index + 1) % preview == 0"},
    "all",
]
EDGES: list[Any] = [
    ["start.ids", "count.token"],
    ["count.token", "count.token"],
    ["count.token", "odd.token"],
    ["count.token", "wide.token"],
    ["wide.token", "late.token"],
    ["count.token", "before.value"],
    ["count.token", "seen.value"],
    ["odd.token", "all.value"],
    {"from": "count.token", "to": "@out.counted", "each": True},
    {"from": "odd.token", "to": "@out.odd", "each": True},
    {"from": "odd.token", "to": "@out.odds", "collect": True},
    ["late.token", "@out.late"],
    {"from": "before.value", "to": "@out.before", "each": True},
    {"from": "seen.value", "to": "@out.seen", "each": True},
    {"from": "all.value", "to": "@out.all", "collect": True},
]
NAMES = ("counted", "odd", "odds", "late", "before", "seen", "all")
NUMBERS = count()
DEFAULTS = {"times": 5, "stop_at": 99, "every": 2, "wide": 0, "preview": 0}


@cache
def deployment(walk: str, resident: bool, apart: bool) -> LocalDeployment:
    """`apart`: some followers on a rank of their own."""
    ending = {"until": "count.stop", "drop_last": walk == "dropped"} if walk != "counted" else {}
    document = {
        "format": "walkgraph/graph@1",
        "name": "followed",
        "nodes": {
            "start": {"component": "synthetic.tokens"},
            **dict.fromkeys(("count", "odd", "wide", "late"), NOOP),
            **dict.fromkeys(("before", "seen", "all"), DELAY),
        },
        "walks": {"w": {"body": ["start", {"loop": "l", "times": "times", "body": BODY, **ending}], "edges": EDGES}},
        "tasks": {
            "t": {
                "outputs": list(NAMES),
                "params": {name: {"type": "integer", "default": value} for name, value in DEFAULTS.items()},
                "steps": [{"walk": "w"}],
            }
        },
    }
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("before", "all"), ranks=(int(apart),)))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    placement = Placement(name="p", groups=groups, ranks=devices)
    local = LocalDeployment(codec.load(json.dumps(document)), placement, threads=1, resident=resident)
    (loop,) = local.plan.walks[0].loops
    assert loop.resident is resident
    return local


PARAMS = st.fixed_dictionaries(
    {
        "times": st.integers(1, 9),
        "stop_at": st.integers(1, 12),
        "every": st.integers(2, 4),
        "wide": st.integers(0, 1),
        "preview": st.integers(0, 3),
    }
)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("walk", ["counted", "ended", "dropped"])
@settings(max_examples=12)
@given(asked=st.lists(PARAMS, min_size=1, max_size=4))
def test_values_come_as_from_a_stepped_loop(walk: str, apart: bool, asked: list[dict[str, int]]) -> None:
    found: list[list[dict[str, Any]]] = []
    for resident in (True, False):
        local = deployment(walk, resident, apart)
        names = [f"r{next(NUMBERS)}" for _ in asked]
        for name, params in zip(names, asked, strict=True):
            local.submit(name, "t", params)
        local.run()
        assert not local.failed
        found.append(
            [{out: list(map(plain, values)) for out, values in local.outputs.pop(name, {}).items()} for name in names]
        )
        for name in names:
            local.release(name)
    assert found[0] == found[1]


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
