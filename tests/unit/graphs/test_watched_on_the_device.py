"""Runs that are stepped, recorded and steered beside others, with real operators: they answer as those do."""

import random
from typing import Any

import numpy as np
import pytest

from tests.support.local import LocalDeployment, node_calls
from tests.unit.graphs.test_shapes_on_ranks import ONE_LEVEL, picture, pixels
from tests.unit.graphs.test_shapes_on_the_device import deployment
from walkgraph.abi.calls import StateKey
from walkgraph.engine.probe.value_probe import ProbeRequest, ValueProbe
from walkgraph.ids import RunId
from walkgraph.wire.watching import Gate, HeldCall

ASKED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("text_to_image", {"steps": 5, "preview_every": 2, "cfg_interval_low": 0.6}, {"prompt": "a red circle"}),
    ("image_to_text", {"max_tokens": 6}, {"image": picture()}),
]
PLACEMENTS = ("shapes_one_cpu", "shapes_encoders_apart_cpu")


def submit(local: LocalDeployment, run: str, number: int, **how: bool) -> None:
    task, params, inputs = ASKED[number]
    local.submit(run, task, params, {name: [value] for name, value in inputs.items()}, **how)


def alike(local: LocalDeployment, run: str, other: str) -> None:
    one, two = local.outputs[run], local.outputs[other]
    assert one
    assert {name: len(values) for name, values in one.items()} == {name: len(values) for name, values in two.items()}
    assert one.get("text") == two.get("text")
    for name in ("image", "preview"):
        for a, b in zip(one.get(name, ()), two.get(name, ()), strict=True):
            assert np.abs(pixels(a) - pixels(b)).max() <= ONE_LEVEL


def recorded(local: LocalDeployment, run: str) -> dict[tuple[Any, ...], str]:
    """Place -> digest of what was told of it."""
    looker = ValueProbe()
    for one in local.observed:
        if one.run == run and one.why == "record":
            looker.take(
                (one.walk, one.step, one.source, one.iteration), one.value, one.modality, ProbeRequest(record=True)
            )
    found = {looked.token: looked.digest for looked in looker.ready()}
    assert len(found) == sum(one.run == run and one.why == "record" for one in local.observed), "each place once"
    return found


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_recorded_runs_answer_as_others_and_repeat_themselves(placement: str) -> None:
    local = deployment(placement, True)
    for number in range(len(ASKED)):
        # The records one after the other: who shares a batch decides the last bits of a number.
        submit(local, f"first {number}", number, stepped=True, record=True)
        local.run()
        submit(local, f"again {number}", number, stepped=True, record=True)
        local.run()
        submit(local, f"plain {number}", number)
        submit(local, f"beside {number}", number, stepped=True)
        local.run()
        assert not local.failed
        for other in ("first", "again", "beside"):
            alike(local, f"plain {number}", f"{other} {number}")
        one, two = (recorded(local, f"{name} {number}") for name in ("first", "again"))
        assert one == two
        calls = node_calls(local.times[f"first {number}"])
        assert len(one) >= calls.total() > 0, "every call gives a value, or several"
        assert calls == node_calls(local.times[f"plain {number}"])
    names = [*local.outputs]
    for name in names:
        local.release(name)
    local.observed.clear()
    for name in names:
        del local.outputs[name]


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("stepped", [True, False])
def test_steered_runs_answer_as_free_ones(placement: str, stepped: bool) -> None:
    local, chance = deployment(placement, True), random.Random(5)
    run, turns = RunId(f"steered {stepped}"), 0
    submit(local, f"free {run}", 0)
    submit(local, run, 0, stepped=stepped, hold=True)
    local.run()
    while (held := latest(local, run)) and turns < 60:
        turns += 1
        call = chance.choice(held)
        mode = "through" if call.iteration and chance.random() < 0.2 else "one"
        for rank in local.engines if mode == "through" else [call.rank]:
            local.gate(rank, Gate(run=run, mode=mode, call=call, number=turns))
        local.run()
    for rank in local.engines:
        local.gate(rank, Gate(run=run, mode="open", number=turns + 1))
    local.run()
    assert not local.failed
    assert turns > 5
    assert stepped or any(call.loop for halted in local.halted for call in halted.held)
    alike(local, f"free {run}", run)
    states = [one for one in local.observed if one.why == "held" and isinstance(one.value, StateKey)]
    assert {one.modality for one in states} == {"paged_kv"}
    for name in (f"free {run}", run):
        local.release(name)
        del local.outputs[name]


def latest(local: LocalDeployment, run: str) -> list[HeldCall]:
    """The last message of each rank."""
    said = {halted.rank: halted for halted in local.halted if halted.run == run}
    return [call for halted in said.values() for call in halted.held]
