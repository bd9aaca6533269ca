"""On a GPU: the small world's films are those of a CPU, on the device and stepped, and its plans reach their goals."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from tests.unit.graphs.test_world_imagined import halves
from walkgraph.graph import codec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
FILM = {"seed": 12, "drive": "square", "horizon": 8, "scale": 1}


@cache
def deployment(placement: str, resident: bool) -> LocalDeployment:
    graph = codec.load(json.loads(GRAPHS["world"].read_text()))
    return LocalDeployment(graph, placement_of(placement), resident=resident)


def ran(local: LocalDeployment, run: str, task: str, params: dict[str, Any], **how: Any) -> dict[str, list[Any]]:
    local.submit(run, task, params, **how)
    local.run()
    assert not local.failed
    local.release(run)
    return local.outputs[run]


@pytest.mark.parametrize("resident", [True, False])
def test_a_film_is_that_of_a_cpu(resident: bool) -> None:
    """Weights and features are of 16 bits there."""
    cpu = ran(deployment("world_one_cpu", True), f"film {resident}", "imagine", FILM)
    gpu = ran(deployment("world_one_gpu", resident), "film", "imagine", FILM)
    assert len(gpu["film"]) == FILM["horizon"]
    for one, other in zip(gpu["film"], cpu["film"], strict=True):
        (true, seen), (as_true, as_seen) = halves(one), halves(other)
        assert (true - as_true).abs().max() <= 2.1 / 255
        assert (seen - as_seen).abs().mean() <= 0.02
    for one, other in zip(gpu["off"], cpu["off"], strict=True):
        assert float(one) == pytest.approx(float(other), abs=0.7)


def test_plans_reach_their_goals() -> None:
    local = deployment("world_one_gpu", True)
    found = [ran(local, f"plan {seed}", "plan", {"seed": seed, "scale": 1}) for seed in range(8)]
    assert sum(one["reached"][-1] for one in found) >= 7


def test_a_session_goes_on_where_it_was() -> None:
    local = deployment("world_one_gpu", True)
    whole = ran(local, "whole", "imagine", {**FILM, "drive": "wander", "horizon": 4})["film"]
    ran(local, "begin", "begin", {"seed": FILM["seed"], "scale": 1}, session="session")
    told = {"seed": FILM["seed"], "scale": 1, "drive": "wander", "horizon": 4}
    steps = ran(local, "steps", "step", told, session="session")["film"]
    for one, other in zip(steps, whole, strict=True):
        assert (halves(one)[1] - halves(other)[1]).abs().mean() <= 0.01
