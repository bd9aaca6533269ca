"""The shipped policy reaches the named target, in float32 on a CPU."""

import json

import pytest
import torch

from walkgraph.models.pi05.config import read_pi05
from walkgraph.models.pi05.weights import read_scalings
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.words import FORMS
from walkgraph.placement.sizes import weights_folder
from walkgraph.starters import names
from walkgraph.starters.reach.config import config
from walkgraph.starters.reach.evaluate import MOST, score, strips
from walkgraph.starters.reach.policy import Policy, load

torch.set_num_threads(1)
FOLDER = weights_folder("starter:reach", ())


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load(FOLDER, torch.device("cpu"))


def test_the_starter_is_found_and_small() -> None:
    assert "reach" in names()
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 5e6


def test_the_shipped_files_are_of_what_is_trained() -> None:
    assert read_pi05(FOLDER) == config()
    statistics = read_scalings(FOLDER)
    assert statistics.state.low.tolist() == pytest.approx(world.LOW)
    assert statistics.actions.low.tolist() == pytest.approx([-world.SPEED] * 2)


def test_the_shipped_figures_pass_the_bar() -> None:
    for episodes in json.loads((FOLDER / "figures.json").read_text())["episodes"]:
        assert episodes["count"] >= 256
        assert episodes["success"] >= 0.95
        assert episodes["wrong"] <= 0.02


def test_fresh_episodes_succeed(policy: Policy) -> None:
    figures, ran = score(policy, 12, apply=4)
    assert figures["success"] == 1.0
    assert figures["wrong"] == 0.0
    assert ran.taken.max() <= MOST
    assert strips(ran, rows=2).size[1] == 2 * 96


def test_the_same_scene_is_driven_by_what_is_said(policy: Policy) -> None:
    scene = world.scene(21)
    there = [index for index, (colour, *_) in enumerate(world.targets(scene).tolist()) if colour >= 0]
    states = scene.repeat(len(there), 1)
    states[:, 2] = torch.tensor(there)
    ran = policy.drive(states, torch.zeros(len(there), dtype=torch.int64), seed=0, apply=4, chunks=8)
    assert world.distances(ran.end).argmin(1).tolist() == there
    assert bool(ran.reached.all())


def test_a_chunk_is_near_to_the_experts(policy: Policy) -> None:
    states = torch.stack([world.scene(seed) for seed in range(16)])
    forms = torch.arange(16) * 5 % len(FORMS)
    actions = policy.actions(states, forms, torch.Generator().manual_seed(0))
    assert (actions - world.expert(states)).abs().mean() < 0.1
