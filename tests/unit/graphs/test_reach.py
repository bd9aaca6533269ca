"""The small policy through its graph, with its own weights: chunks are those of the plain loop, episodes end at the
target."""

import io
import itertools
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from walkgraph.graph import codec
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.pictures import picture
from walkgraph.models.reach.words import FORMS
from walkgraph.placement.sizes import weights_folder
from walkgraph.starters.reach.policy import Policy, load

torch.set_num_threads(1)


@cache
def deployment(resident: bool) -> LocalDeployment:
    graph = codec.load(json.loads(GRAPHS["reach"].read_text()))
    return LocalDeployment(graph, placement_of("reach_one_cpu"), threads=1, resident=resident)


@cache
def plain() -> Policy:
    return load(weights_folder("starter:reach", ()), torch.device("cpu"))


def camera(scene: torch.Tensor) -> bytes:
    levels = ((picture(scene[None])[0] + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG")
    return file.getvalue()


def ran(resident: bool, task: str, params: dict[str, Any], inputs: dict[str, Any], run: str) -> dict[str, list[Any]]:
    local = deployment(resident)
    local.submit(run, task, params, {name: [value] for name, value in inputs.items()})
    local.run()
    assert not local.failed
    return local.outputs[run]


def chunk(pixels: torch.Tensor, scene: torch.Tensor, wording: str, seed: int, steps: int) -> torch.Tensor:
    """`[T, 2]`, by the model alone."""
    policy = plain()
    ids, lengths, _ = policy.prompts(torch.tensor([FORMS.index(wording)]), scene[None])
    prefix = policy.model.read(*policy.model.laid([pixels[None]], ids, lengths))
    x = torch.randn(world.HORIZON, 2, generator=torch.Generator().manual_seed(seed))[None]
    for step in range(steps):
        by = policy.model.modulations(torch.tensor([1 - step / steps]))
        x = x - policy.model.denoise(x, by, prefix) / steps
    return x[0] * world.SPEED


@pytest.mark.parametrize("seed", [3, 4])
def test_a_chunk_is_that_of_the_plain_model(seed: int) -> None:
    scene = world.scene(seed, 2)
    inputs = {"camera": camera(scene), "instruction": "reach blue", "state": scene[:2]}
    (actions,) = ran(True, "act", {"seed": seed, "steps": 5}, inputs, f"act{seed}")["actions"]
    pixels = normalise(torch.from_numpy(np.array(Image.open(io.BytesIO(inputs["camera"])))))
    torch.testing.assert_close(actions, chunk(pixels, scene, "reach {}", seed, 5), atol=2e-3, rtol=0)


@pytest.mark.parametrize("resident", [True, False])
def test_an_episode_is_that_of_the_plain_model(resident: bool) -> None:
    params = {"seed": 12, "apply": 1, "steps": 3, "side": 48, "looks": 16}
    found = ran(resident, "episode", params, {"instruction": "find the yellow dot"}, "plain")
    scene, film, taken = world.scene(12, world.COLOURS.index("yellow")), list[torch.Tensor](), 0
    film.append(scene)
    while not world.reached(scene) and len(film) <= 16:
        actions = chunk(picture(scene[None])[0], scene, "find the {} dot", 12, 3)
        after, more = world.driven(scene[None], actions[None, :1])
        scene, taken = after[0], taken + int(more)
        film.append(scene)
    assert len(film) > 4
    assert found["actions_taken"] == [taken]
    assert found["reached"] == [True]
    for got, wanted in zip(found["film"], film, strict=True):
        levels = (picture(wanted[None], 48)[0] + 1) * 127.5
        shown = np.array(Image.open(io.BytesIO(got)).convert("RGB")).astype(float)
        assert np.abs(shown - levels.permute(1, 2, 0).numpy()).max() < 8


@pytest.mark.parametrize("resident", [True, False])
def test_an_episode_ends_at_the_target_and_shows_every_look(resident: bool) -> None:
    params = {"seed": 11, "apply": 4, "steps": 4, "side": 32}
    found = ran(resident, "episode", params, {"instruction": "go to the green one"}, "episode")
    assert found["reached"] == [True]
    (taken,) = found["actions_taken"]
    assert len(found["film"]) == 2 + (taken - 1) // 4
    pictures = [np.array(Image.open(io.BytesIO(one)).convert("RGB")) for one in found["film"]]
    assert {one.shape for one in pictures} == {(32, 32, 3)}
    assert all(np.abs(a.astype(int) - b).max() > 60 for a, b in itertools.pairwise(pictures))


def test_episodes_of_several_runs_are_those_of_each_alone() -> None:
    params = {"apply": 4, "steps": 3, "side": 16, "looks": 3}
    local = deployment(True)
    for number in range(3):
        local.submit(f"b{number}", "episode", {**params, "seed": number}, {"instruction": ["touch the red ball"]})
    local.run()
    together = [local.outputs[f"b{number}"] for number in range(3)]
    for number, one in enumerate(together):
        alone = ran(True, "episode", {**params, "seed": number}, {"instruction": "touch the red ball"}, f"a{number}")
        assert alone["actions_taken"] == one["actions_taken"]
        assert len(alone["film"]) == len(one["film"])


def test_the_looks_are_bounded() -> None:
    params = {"seed": 11, "apply": 1, "steps": 2, "side": 16, "looks": 2}
    found = ran(True, "episode", params, {"instruction": "find purple"}, "bounded")
    assert found["reached"] == [False]
    assert found["actions_taken"] == [2]
    assert len(found["film"]) == 3


def test_an_instruction_that_names_no_target_fails_with_what_there_is() -> None:
    local = deployment(True)
    local.submit("vague", "episode", {"seed": 1}, {"instruction": ["reach for the stars"]})
    local.run()
    error = local.failed.pop("vague")
    assert error.code == "invalid_input"
    assert "purple" in error.message
