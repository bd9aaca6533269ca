"""A rank that loads another plan keeps the operators that both have, and only those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.engine.plans import plan_of
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.engine import load
from walkgraph.engine.load import KeptOperators, load_operators
from walkgraph.engine.loops.body import Loaded
from walkgraph.placement.tables import Plan

LOADS: list[str] = []


class One(Operator):
    options = ("size",)

    @classmethod
    def load(cls, context: LoadContext) -> One:
        LOADS.append(f"{cls.__name__} {context.options.get('size')}")
        return cls()


class Two(One):
    pass


@pytest.fixture(autouse=True)
def _networks(monkeypatch: pytest.MonkeyPatch) -> None:
    LOADS.clear()
    monkeypatch.setattr(load, "_network", lambda name: {"One": One, "Two": Two}[name])


def plan(source: str | None = None, **nodes: Any) -> Plan:
    """`nodes`: name -> (network, size, another parameter)."""
    params = {name: {"size": size, "else": other} for name, (_, size, other) in nodes.items()}
    return plan_of({name: (network, {}) for name, (network, _, _) in nodes.items()}, params=params, source=source)


def loaded(made: Plan, kept: KeptOperators | None) -> dict[str, Loaded]:
    return load_operators(made, made.ranks[0], (Path(),), lambda what, done: None, kept=kept)


def test_only_what_changed_is_loaded_again() -> None:
    kept = KeptOperators()
    before = loaded(plan(a=("One", 1, 0), b=("Two", 1, 0)), kept)
    assert LOADS == ["One 1", "Two 1"]
    assert not any(found.warm for found in before.values())
    LOADS.clear()
    after = loaded(plan(a=("One", 1, 5), b=("Two", 2, 0), c=("One", 1, 7)), kept)
    assert LOADS == ["Two 2"], "a parameter that `load` doesn't read, and another name, need no new operator"
    assert after["a"].operator is after["c"].operator is before["a"].operator
    assert (after["a"].warm, after["b"].warm) == (True, False)


def test_what_a_plan_does_not_have_is_dropped() -> None:
    kept = KeptOperators()
    loaded(plan(a=("One", 1, 0), b=("Two", 1, 0)), kept)
    loaded(plan(a=("One", 1, 0)), kept)
    LOADS.clear()
    loaded(plan(a=("One", 1, 0), b=("Two", 1, 0)), kept)
    assert LOADS == ["Two 1"]


def test_other_weights_of_the_same_name_are_loaded() -> None:
    kept = KeptOperators()
    first = loaded(plan(source="random:test:1", a=("One", 1, 0)), kept)
    again = loaded(plan(source="random:test:1", a=("One", 1, 0)), kept)
    other = loaded(plan(source="random:test:2", a=("One", 1, 0)), kept)
    assert first["a"].operator is again["a"].operator is not other["a"].operator


def test_without_kept_operators_everything_is_loaded() -> None:
    made = plan(a=("One", 1, 0), b=("One", 1, 0))
    loaded(made, None)
    found = loaded(made, None)
    assert LOADS == ["One 1", "One 1"]
    assert found["a"].operator is found["b"].operator
    assert found["a"].device == torch.device("cpu")
