"""Planning and poses by themselves: noise, bounds, shares; and their operators: steps against forwards."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.operator import Operator
from walkgraph.abi.step import StepBatch, StepSpec
from walkgraph.layers.poses import euler, plain_move, rotation
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2 import planning_operators as operators

CPU = torch.device("cpu")
MOMENTA = {"momentum_mean": 0.25, "momentum_std": 0.5, "momentum_mean_grip": 0.15, "momentum_std_grip": 0.6}


def one(number: float) -> Tensor:
    return torch.tensor([number])


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_noise_is_normal_and_follows_from_its_place_alone() -> None:
    drawn = planning.normals(torch.tensor([5, 6]), torch.tensor([0, 0]), 3, 2000)
    assert drawn.shape == (2, 3, 2000, 7)
    assert abs(float(drawn.mean())) < 0.01
    assert abs(float(drawn.std()) - 1) < 0.01
    for level in (0.5, 1.0, 2.0, 3.0):
        share = (drawn.abs() > level).float().mean()
        assert float(share) == pytest.approx(math.erfc(level / math.sqrt(2)), rel=0.1)
    corners = drawn.flatten(0, 1).permute(0, 2, 1).flatten(0, 1)
    correlation = torch.corrcoef(corners) - torch.eye(len(corners))
    assert float(correlation.abs().max()) < 0.1
    few = planning.normals(torch.tensor([6]), torch.tensor([0]), 2, 11)
    assert torch.equal(few[0], drawn[1, :2, :11])
    other = planning.normals(torch.tensor([6]), torch.tensor([1]), 2, 11)
    assert not torch.any(other == few)
    # The same on every machine.
    torch.testing.assert_close(few[0, 0, 0], torch.tensor(KNOWN), rtol=1e-6, atol=1e-6)


KNOWN = [0.2970528, -0.4174338, -0.8953261, -1.6679417, -0.1751823, -0.6100301, 2.6114442]


def test_what_is_proposed_keeps_within_its_bounds_and_doesnt_turn() -> None:
    mean = torch.tensor([0.03, -0.05, 0.0, 0.0, 0.0, 0.0, 0.7]).expand(1, 2, 7)
    std = torch.tensor([0.05] * 3 + [0.0] * 3 + [1.0]).expand(1, 2, 7)
    noise = random(0, 1, 2, 500, 7)
    actions = planning.propose(noise, mean, std, one(0.06))
    free = mean[:, :, None] + noise * std[:, :, None]
    torch.testing.assert_close(actions[..., :3], free[..., :3].clamp(-0.06, 0.06))
    torch.testing.assert_close(actions[..., 6], free[..., 6].clamp(-0.75, 0.75))
    assert not actions[..., 3:6].any()
    assert (actions[..., :3].abs() == 0.06).any()


def test_the_best_sequences_move_mean_and_spread() -> None:
    actions, cost = random(1, 2, 3, 8, 7), random(2, 2, 8)
    cost[0, 4] = torch.nan
    mean, std = random(3, 2, 3, 7), random(4, 2, 3, 7).abs()
    momentum = planning.Momentum(*(torch.tensor([share, share / 2]) for share in MOMENTA.values()))
    found = planning.refine(actions, cost, mean, std, momentum, 3)
    for row in range(2):
        best = sorted(range(8), key=lambda at: (math.isnan(cost[row, at]), float(cost[row, at])))[:3]
        chosen = actions[row][:, best]
        for part, old, new, names in ((chosen.mean(1), mean, found[0], (0, 2)), (chosen.std(1), std, found[1], (1, 3))):
            shares = [list(MOMENTA.values())[at] / (1 + row) for at in names]
            wanted = part[:, :6] * (1 - shares[0]) + old[row, :, :6] * shares[0]
            torch.testing.assert_close(new[row, :, :6], wanted)
            torch.testing.assert_close(new[row, :, 6], part[:, 6] * (1 - shares[1]) + old[row, :, 6] * shares[1])


def test_of_equal_costs_the_first_ones_count_and_one_sequence_has_no_spread() -> None:
    actions, rest = random(1, 1, 2, 5, 7), torch.zeros(1, 2, 7)
    none = planning.Momentum(*(one(0.0) for _ in range(4)))
    mean, std = planning.refine(actions, torch.tensor([[2.0, 1.0, 1.0, 1.0, 3.0]]), rest, rest, none, 2)
    torch.testing.assert_close(mean[0], actions[0][:, [1, 2]].mean(1))
    mean, std = planning.refine(actions, torch.tensor([[2.0, 1.0, 1.0, 1.0, 3.0]]), rest, rest, none, 1)
    assert torch.equal(mean[0], actions[0][:, 1])
    assert not std.any()


def test_a_small_change_of_the_grip_is_not_carried_out() -> None:
    mean = random(1, 3, 2, 7)
    mean[:, 0, 6] = torch.tensor([0.2499, -0.25, -0.1])
    found = planning.chosen(mean)
    assert torch.equal(found[:, :6], mean[:, 0, :6])
    assert found[:, 6].tolist() == [0.0, -0.25, 0.0]


def test_distances_are_means_over_a_frame() -> None:
    features, goal = random(1, 2, 3, 5, 4), random(2, 2, 5, 4)
    wanted = (features - goal[:, None]).abs().mean((2, 3))
    torch.testing.assert_close(planning.distance(features, goal), wanted)
    rough = planning.distance(features.bfloat16(), goal.bfloat16())
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, wanted, rtol=1e-2, atol=0)


def test_turns_are_about_fixed_axes_and_the_grip_is_bounded() -> None:
    quarter = math.pi / 2
    pose = torch.tensor([1.0, 2.0, 3.0, quarter, 0.0, 0.0, 0.9])
    moved = plain_move(pose, torch.tensor([0.1, 0.2, 0.3, 0.0, 0.0, quarter, 0.4]))
    torch.testing.assert_close(moved, torch.tensor([1.1, 2.2, 3.3, quarter, 0.0, quarter, 1.0]))
    both = torch.stack([pose, pose]), torch.tensor([[0.0] * 6 + [-2.0], [0.0] * 7])
    torch.testing.assert_close(plain_move(*both)[:, 6], torch.tensor([0.0, 0.9]))
    for angles in random(5, 20, 3) * 2:
        matrix = rotation(torch.stack([torch.zeros(3), angles]).double())
        there = rotation(torch.stack([torch.zeros(3).double(), euler(matrix)]))
        torch.testing.assert_close(there, matrix)


def test_angles_at_the_poles_are_angles_of_the_same_turn() -> None:
    """The first and the last angle turn about one axis there: the last one is 0."""
    for middle in (math.pi / 2, -math.pi / 2):
        angles = torch.tensor([0.4, middle, 0.3], dtype=torch.float64)
        matrix = rotation(torch.stack([torch.zeros(3).double(), angles]))
        found = euler(matrix)
        assert float(found[2]) == 0.0
        torch.testing.assert_close(rotation(torch.stack([torch.zeros(3).double(), found])), matrix)


# ── operators ──

NODES = {
    "move": ("walkgraph.models.vjepa2.planning_operators:ApplyAction", {}),
    "stand": ("walkgraph.models.vjepa2.planning_operators:StoreObservation", {"pose": "arm", "last": "seen_last"}),
    "rest": ("walkgraph.models.vjepa2.planning_operators:InitialPlan", {}),
    "propose": ("walkgraph.models.vjepa2.planning_operators:SampleActions", {}),
    "distance": ("walkgraph.models.vjepa2.planning_operators:GoalDistance", {}),
    "refine": ("walkgraph.models.vjepa2.planning_operators:RefinePlan", {}),
}
CASES: dict[str, tuple[Operator, list[dict[str, Tensor]], dict[str, Any]]] = {
    "move": (
        operators.ApplyAction(),
        [{"pose": random(i, 7), "action": random(i + 9, 4, 7)} for i in range(2)],
        {},
    ),
    "propose": (
        operators.SampleActions(),
        [{"mean": random(i, 2, 7), "std": random(i + 9, 2, 7).abs()} for i in range(2)],
        {"samples": 6, "max_norm": 0.5},
    ),
    "distance": (
        operators.GoalDistance(),
        [{"features": random(i, 3, 4, 5), "goal": random(i + 9, 4, 5)} for i in range(2)],
        {},
    ),
    "refine": (
        operators.RefinePlan(),
        [
            {
                "actions": random(i, 2, 6, 7),
                "cost": random(i + 5, 6),
                "mean": random(i, 2, 7),
                "std": random(i + 9, 2, 7),
            }
            for i in range(2)
        ],
        {"top": 3, **MOMENTA},
    ),
}


def step_of(operator: Operator, given: list[dict[str, Tensor]], params: dict[str, Any]) -> tuple[StepSpec, Any]:
    meta = {port: value.to("meta") for port, value in given[0].items()}
    spec = operator.step_spec(meta, params)
    assert spec is not None
    count = len(given)
    found = operator.step(
        StepBatch(
            rows=torch.arange(count, dtype=torch.int32),
            inputs={port: torch.stack([row[port] for row in given]) for port in spec.inputs},
            params={name: torch.full((count,), params[name], dtype=kind) for name, kind in spec.params.items()},
            seed=torch.full((count,), 7),
            iteration=torch.full((count,), 3),
            variant=spec.variant,
        )
    )
    return spec, found.ports


@pytest.mark.parametrize("node", CASES)
def test_a_step_is_a_forward_and_a_batch_its_calls(node: str) -> None:
    operator, given, params = CASES[node]
    engine = engine_of(plan_of(NODES))
    spec, stepped = step_of(operator, given, params)
    calls = [call(node, row, run=str(i), iteration=(3,), **params) for i, row in enumerate(given)]
    for one_call in calls:
        one_call.seed = 7
    together = outputs(engine, *calls)
    for at, one_call in enumerate(calls):
        [alone] = outputs(engine, one_call)
        assert alone.keys() == spec.outputs.keys()
        for port, row in spec.outputs.items():
            assert (tuple(alone[port].shape), alone[port].dtype) == (row.shape, row.dtype)
            torch.testing.assert_close(stepped[port][at], alone[port])
            torch.testing.assert_close(together[at][port], alone[port])


def test_a_session_keeps_what_it_was_given() -> None:
    engine, states = engine_of(plan_of(NODES)), {"pose": "arm", "last": "seen_last"}
    [first] = outputs(engine, call("stand", {"pose": torch.ones(7), "features": torch.ones(2, 3)}, states=states))
    [again] = outputs(engine, call("stand", {}, states=states, iteration=(1,)))
    assert torch.equal(first["pose"], torch.ones(7))
    assert torch.equal(again["pose"], torch.ones(7))
    for given, told in (({}, "doesn't know where"), ({"pose": torch.ones(6)}, "got a pose [6]")):
        done = serve(engine, call("stand", given, run="another", states=states))[0]
        assert done.error is not None
        assert told in done.error.message


@pytest.mark.parametrize(
    ("node", "given", "params", "told"),
    [
        ("move", {"pose": torch.zeros(7), "action": torch.zeros(6)}, {}, "takes poses and actions of 7 numbers"),
        ("distance", {"features": torch.zeros(2, 3, 4), "goal": torch.zeros(3, 5)}, {}, "a goal `[n, d]`"),
        ("refine", CASES["refine"][1][0], {"top": 7, **MOMENTA}, "the best `top` 7 of 6 sequences"),
    ],
)
def test_what_does_not_fit_is_told(node: str, given: dict[str, Tensor], params: dict[str, Any], told: str) -> None:
    done = serve(engine_of(plan_of(NODES)), call(node, given, **params))[0]
    assert done.error is not None
    assert told in done.error.message
