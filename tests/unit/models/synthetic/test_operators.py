from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of
from walkgraph.abi.calls import ChunkInfo, StateKey
from walkgraph.components import catalogue
from walkgraph.engine.engine import Engine

DECLARED = {n.removeprefix("synthetic."): c for n, c in catalogue().items() if n.startswith("synthetic.")}


@pytest.fixture(scope="module")
def engine() -> Engine:
    nodes = {
        name: (c.network or "", {use.slot: f"{name}_{use.slot}" for use in c.states}) for name, c in DECLARED.items()
    }
    nodes = {
        name: (net, {slot: ("kv" if slot == "kv" else state) for slot, state in used.items()})
        for name, (net, used) in nodes.items()
    }
    return engine_of(plan_of(nodes))


def run(
    engine: Engine, name: str, inputs: dict[str, Any] | None = None, *, run: str = "r", draws: int = 0, **params: Any
) -> dict[str, Any]:
    component = DECLARED[name]
    states = {use.slot: "kv" if use.slot == "kv" else f"{name}_{use.slot}" for use in component.states}
    defaults = {key: param.default for key, param in component.params.items()}
    one = call(name, inputs, run=run, states=states, draws=draws, **{**defaults, **params})
    [out] = outputs(engine, one)
    assert out.keys() <= {port.name for port in component.outputs}
    assert {port.name for port in component.outputs if not port.optional} <= out.keys()
    return out


@pytest.mark.parametrize(
    ("name", "inputs", "params", "wanted"),
    [
        ("constant", {}, {"value": 7}, {"value": 7}),
        ("add", {"a": 2, "b": torch.tensor(3)}, {}, {"sum": 5}),
        ("add", {}, {}, {"sum": 0}),
        ("sum", {"values": torch.tensor([[1, 2], [3, 4]])}, {}, {"sum": 10}),
        ("sum", {"values": [1, 2]}, {}, {"sum": 3}),
        ("compare", {"value": 3}, {"at": 3}, {"value": 3, "reached": True}),
        ("compare", {"value": 2}, {"at": 3}, {"value": 2, "reached": False}),
        ("delay", {"value": 4}, {"work": 2, "side": 3}, {"value": 4}),
        ("fail", {"value": 4}, {}, {"value": 4}),
        ("allocate", {"value": 4}, {}, {"value": 4}),
    ],
)
def test_scalars(
    engine: Engine, name: str, inputs: dict[str, Any], params: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert run(engine, name, inputs, **params) == wanted


def test_tensors(engine: Engine) -> None:
    assert run(engine, "range", {"start": 3}, n=4)["values"].tolist() == [3, 4, 5, 6]
    assert run(engine, "range", {})["values"].tolist() == [0, 1, 2, 3]
    assert run(engine, "tensor", {"value": 2}, n=3)["items"].tolist() == [2.0] * 3
    assert run(engine, "nan", {"value": 2})["items"].tolist() == [2.0]


def test_a_chunk_is_summed_without_its_padding(engine: Engine) -> None:
    one = call("chunk_sum", {"items": torch.tensor([1.0, 2.0, 99.0])})
    one.chunks["items"] = ChunkInfo(index=0, first=True, last=False, valid=2)
    assert outputs(engine, one)[0]["sum"].tolist() == [3.0]
    assert run(engine, "chunk_sum", {})["sum"].tolist() == [0.0]


def test_draws_follow_the_seed_and_go_on_after_a_fork(engine: Engine) -> None:
    first = [run(engine, "random_integer", run="a", draws=5)["value"] for _ in range(3)]
    assert len(set(first)) > 1
    assert [run(engine, "random_integer", run="b", draws=5)["value"] for _ in range(3)] == first
    assert [run(engine, "random_integer", run="c", draws=6)["value"] for _ in range(3)] != first
    engine.transfers.fork(StateKey("a", "random_integer_rng"), StateKey("d", "random_integer_rng"))
    assert run(engine, "random_integer", run="d", draws=5) == run(engine, "random_integer", run="a", draws=5)
    assert all(
        0 <= value < 3
        for value in [run(engine, "random_integer", run="a", draws=5, below=3)["value"] for _ in range(9)]
    )


def test_a_cache_in_small_adds_what_it_sees(engine: Engine) -> None:
    assert int(run(engine, "attend", {"ids": ids(1, 2, 3)}, run="s")["token"]) == 6 + 3
    assert int(run(engine, "attend", {"scratch": ids(10, 10)}, run="s")["token"]) == 26 + 3
    assert int(run(engine, "attend", {"block": ids(4, 5)}, run="s")["token"]) == 15 + 4
    out = run(engine, "attend", {"token": ids(990)}, run="s", stop_token=(1005 + 5) % 997)
    assert (int(out["token"]), out["stop"]) == (13, True)
