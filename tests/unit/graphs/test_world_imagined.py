"""The small world through its graph, with its own weights: films of truth and imagination, plans, and a session."""

import io
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
from walkgraph.models.world import scene as world
from walkgraph.models.world.drives import drive
from walkgraph.models.world.picture import picture
from walkgraph.placement.sizes import weights_folder
from walkgraph.starters.world.evaluate import read
from walkgraph.starters.world.imagine import Search, imagined, planned, seen

torch.set_num_threads(1)
SEED = 12
FRAMES = 4


@cache
def deployment(resident: bool) -> LocalDeployment:
    graph = codec.load(json.loads(GRAPHS["world"].read_text()))
    return LocalDeployment(graph, placement_of("world_one_cpu"), threads=1, resident=resident)


def ran(
    run: str, task: str, params: dict[str, Any], actions: torch.Tensor | None = None, resident: bool = True
) -> dict[str, list[Any]]:
    local = deployment(resident)
    local.submit(run, task, {"scale": 1, **params}, {} if actions is None else {"actions": [actions]})
    local.run()
    assert not local.failed
    local.release(run)
    return local.outputs[run]


def halves(film: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """`[3, h, w]` in [-1, 1] each."""
    levels = torch.from_numpy(np.array(Image.open(io.BytesIO(film)))).permute(2, 0, 1)
    pixels = levels.float() / 127.5 - 1
    return pixels[..., : world.SIDE], pixels[..., -world.SIDE :]


@pytest.mark.parametrize("resident", [True, False])
def test_a_film_is_what_happens_beside_what_the_model_imagines(resident: bool) -> None:
    found = ran("film", "imagine", {"seed": SEED, "drive": "square", "horizon": FRAMES}, resident=resident)
    model, painter = read(weights_folder("starter:world", ()))
    scene, actions = world.drawn([SEED]), drive("square", FRAMES, SEED)[None]
    with torch.inference_mode():
        first = seen(model.cpu(), picture(scene))
        frames = imagined(model.predictor, first, actions, scene.pose())[0]
        painted, places = painter.cpu()(frames), painter.reading(frames).place
    after = world.run(scene, actions)
    assert len(found["film"]) == len(found["off"]) == FRAMES
    for at, film in enumerate(found["film"]):
        left, right = halves(film)
        assert (left - picture(after)[0, at]).abs().max() <= 2.1 / 255
        assert (right - painted[at].clamp(-1, 1)).abs().max() <= 5 / 255
        off = (places[at] - after.place[0, at]).norm() * world.SIDE
        assert float(found["off"][at]) == pytest.approx(float(off), abs=0.02)


def test_actions_that_are_sent_are_acted() -> None:
    actions = torch.zeros(2, 7)
    actions[:, 1] = 0.06
    found = ran("sent", "imagine", {"seed": SEED, "horizon": 2}, actions)
    after = world.run(world.drawn([SEED]), actions[None])
    assert (halves(found["film"][-1])[0] - picture(after)[0, -1]).abs().max() <= 2.1 / 255


def test_imagination_stays_near_on_some_seeds() -> None:
    """Pixels between where the shape is and where it is imagined, after a leg of a drive."""
    off = [
        float(ran(f"near{seed}", "imagine", {"seed": seed, "drive": "wander", "horizon": 4})["off"][-1])
        for seed in (100, 101, 102, 103)
    ]
    assert sum(off) / len(off) < 2


def test_a_plan_acts_until_the_goal_is_reached() -> None:
    params = {"seed": SEED, "samples": 24, "rounds": 2, "top": 4}
    found = ran("plan", "plan", params)
    assert found["reached"] == [True]
    assert len(found["film"]) == len(found["off"]) == len(found["pose"]) <= 10
    assert float(found["off"][-1]) <= 3
    goal = picture(world.at_goal(world.drawn([SEED])))[0]
    assert (halves(found["film"][0])[1] - goal).abs().max() <= 2.1 / 255


def test_the_first_move_is_that_of_the_plain_loop() -> None:
    """Its draws depend on the node's seed: the places agree as far as two searches of the same picture do."""
    found = ran("first", "plan", {"seed": SEED, "moves": 1, "rounds": 4})
    scene, (model, _) = world.drawn([SEED]), read(weights_folder("starter:world", ()))
    with torch.inference_mode():
        goal = seen(model.cpu(), picture(world.at_goal(scene)))
        how, seeds = Search(rounds=4), torch.tensor([1])
        action = planned(model.predictor, seen(model, picture(scene)), goal, scene.pose(), how, seeds)
    place = world.moved(scene, action).place[0]
    assert (found["pose"][0][:2] - place).norm() * world.SIDE < 2


def test_a_session_is_driven_action_by_action() -> None:
    """Two requests give what one film of both actions has, and another begin forgets them."""
    local, session = deployment(True), "session"
    actions = torch.zeros(2, 7)
    actions[0, 0], actions[1, 1], actions[:, 6] = 0.05, -0.05, 0.1
    whole = ran("whole", "imagine", {"seed": SEED, "horizon": 2}, actions)["film"]
    for again in range(2):
        told = {"scale": 1, "seed": SEED}
        local.submit(f"begin{again}", "begin", told, session=session)
        local.run()
        films: list[bytes] = []
        for at in range(2):
            run = f"step{again}{at}"
            local.submit(run, "step", {"scale": 1}, {"actions": [actions[at : at + 1]]}, session=session)
            local.run()
            films += local.outputs[run]["film"]
        assert not local.failed
        for one, other in zip(films, whole, strict=True):
            for half, as_whole in zip(halves(one), halves(other), strict=True):
                assert (half - as_whole).abs().max() <= 5 / 255
