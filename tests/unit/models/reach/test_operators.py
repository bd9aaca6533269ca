"""The operators of the arm's world, called as the engine calls them."""

from typing import Any, cast

import pytest
import torch

from walkgraph.abi.calls import Call, CallFailed, Outputs
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.components import catalogue
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.operators import MoveArm, RandomScene, Render
from walkgraph.models.reach.pictures import SIDE, picture

NO_STATES = cast(States, None)


def call(inputs: dict[str, Any], **params: Any) -> Call:
    return Call("run", "node", "walk", 0, 0, (), inputs, params, {}, 1)


def give(operator: Operator, *calls: Call) -> list[Outputs]:
    return operator.forward(calls, NO_STATES)


def test_what_is_declared_is_what_the_world_has() -> None:
    """Declarations are read without torch, and repeat what lies beside it."""
    known = catalogue()
    assert str(known["reach.random_scene"].outputs[0].type) == f"state: float[{world.WIDTH}]"
    assert known["reach.render"].params["side"].default == SIDE


def test_a_scene_is_of_its_seed_and_has_the_named_colour() -> None:
    red, same, blue = give(
        RandomScene(),
        call({"instruction": "reach the red ball"}, seed=4),
        call({"instruction": "touch red"}, seed=4),
        call({"instruction": "go to the blue one"}, seed=4),
    )
    assert torch.equal(red["scene"], same["scene"])
    assert world.named(blue["scene"])[0] == world.COLOURS.index("blue")
    assert red["joints"].tolist() == red["scene"][:2].tolist()


def test_an_instruction_without_a_colour_is_the_clients_fault() -> None:
    with pytest.raises(CallFailed, match="names one target by its colour") as told:
        give(RandomScene(), call({"instruction": "wave"}, seed=1))
    assert told.value.code == "invalid_input"


def test_pictures_are_those_of_their_scenes() -> None:
    scenes = [world.scene(1), world.scene(2)]
    calls = [call({"scene": scene}, side=32) for scene in scenes]
    got = give(Render(), *calls)
    assert Render().bucket(calls[0]) != Render().bucket(call({"scene": scenes[0]}, side=64))
    torch.testing.assert_close(torch.stack([one["pixels"] for one in got]), picture(torch.stack(scenes), 32))


def test_a_scene_of_another_width_is_refused() -> None:
    with pytest.raises(CallFailed, match="takes a scene of 12 numbers"):
        give(Render(), call({"scene": torch.zeros(3)}, side=32))


def test_driving_applies_the_first_actions_alone() -> None:
    scene = world.scene(8)
    actions = world.expert(scene[None])[0]
    (got,) = give(MoveArm(), call({"scene": scene, "actions": actions}, apply=3))
    expected = scene
    for action in actions[:3]:
        expected = world.moved(expected, action)
    assert torch.equal(got["scene"], expected)
    assert got["taken"] == 3
    assert got["reached"] is False
    (later,) = give(MoveArm(), call({"scene": expected, "actions": actions[3:], "before": 3}, apply=2))
    assert later["taken"] == 5


def test_driving_ends_at_the_target() -> None:
    scene = world.scene(8)
    (got,) = give(MoveArm(), call({"scene": scene, "actions": world.expert(scene[None], 40)[0]}, apply=40))
    assert got["reached"] is True
    assert got["taken"] < 40
    assert bool(world.reached(got["scene"]))


def test_actions_of_another_robot_are_refused() -> None:
    with pytest.raises(CallFailed, match="takes actions of two joints"):
        give(MoveArm(), call({"scene": world.scene(0), "actions": torch.zeros(8, 7)}, apply=1))
