"""Loops that are held and go on: nothing is lost, nothing twice, whether or not their run is suspended meanwhile."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import test_resident as resident
from tests.unit.engine.plans import call, engine_of, ids, plan_of
from tests.unit.engine.test_resident import Walk, loop, naive
from tests.unit.engine.test_swap import Client, name
from walkgraph.abi.calls import StateKey
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.paged_state import CacheSummary
from walkgraph.models.synthetic import operators as synthetic


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    synthetic.WalkForTest = Walk  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def shared() -> Engine:
    return resident.engine()


@settings(max_examples=60)
@given(
    times=st.integers(1, 40),
    acts=st.lists(st.sampled_from(["step", "step", "hold", "release", "suspend", "resume"]), max_size=25),
)
def test_a_loop_that_is_held_and_suspended_at_will_gives_what_an_undisturbed_one_gives(
    shared: Engine, times: int, acts: list[str]
) -> None:
    shared.drop("a")  # of an example that failed
    client, free = Client(shared), shared.pools.pages()
    held = suspended = False
    shared.add_loop(loop("a", 1.0, times, grain=1))
    for act in acts:
        match act:
            case "step":
                client.step()
            case "hold":
                shared.holds.hold_loops("a")
                held = True
            case "release":
                shared.holds.release_loops("a")
                held = False
            case "suspend" if not suspended:
                shared.swap.suspend("a")
                suspended = True
            case "resume" if suspended:
                client.run()
                shared.swap.resume("a")
                client.run()
                suspended = False
            case _:
                pass
        if held:
            client.run()
            assert not shared.loops.admission.occupies("a")
            had = len(client.each.get("a", ()))
            client.run()
            assert len(client.each.get("a", ())) == had
    if suspended:
        client.run()
        shared.swap.resume("a")
    shared.holds.release_loops("a")
    client.run()
    wanted = naive(1.0, times)
    assert client.each["a"] == wanted
    assert client.done["a"].iterations == times
    shared.drop("a")
    shared.states.audit()
    assert shared.pools.pages() == free


def test_a_run_that_was_dropped_is_held_no_longer(shared: Engine) -> None:
    for _ in range(2):
        client = Client(shared)
        shared.add_loop(loop("a", 1.0, 5))
        client.run()
        assert client.done["a"].iterations == 5
        shared.holds.hold_loops("a")
        shared.drop("a")
        assert shared.idle


def test_others_go_on_and_so_do_the_calls_of_a_run_whose_loops_are_held() -> None:
    attend = "walkgraph.models.synthetic.operators:Attend"
    here = engine_of(plan_of({"main": (attend, {"kv": "main"})}, kv_bytes=1 << 14))
    here.holds.hold_loops("a")
    for run in ("a", "b"):
        here.add(call("main", {"ids": ids(1, 2, 3)}, run=run, states={"kv": "main"}, stop_token=-1))
    done: list[str] = []
    while not here.idle:
        done += [name(event) for event in here.step()]
    assert sorted(done) == ["a", "b"]
    assert here.states.glance(StateKey("a", "main")) == CacheSummary(sequences=1, tokens=3, pages=1)
    assert here.states.glance(StateKey("a", "other")) is None
