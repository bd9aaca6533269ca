"""The arm's world: scenes to begin with, its joints, the expert, and which target an instruction names."""

import math

import pytest
import torch

from walkgraph.models.reach import scene as world
from walkgraph.models.reach.words import FORMS, colour

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def scenes() -> torch.Tensor:
    return world.drawn(2000, torch.Generator().manual_seed(3))


def test_scenes_begin_apart_and_within_reach(scenes: torch.Tensor) -> None:
    known = world.targets(scenes)
    there = known[..., 0] >= 0
    assert set(there.sum(1).tolist()) == {2, 3}
    assert world.distances(scenes).min() > 2 * world.RADIUS
    assert known[..., 1:].abs().max() < 1
    goals = world.joints_at(known[..., 1:])
    torch.testing.assert_close(world.tip(goals), known[..., 1:], atol=1e-5, rtol=0)


def test_every_target_may_be_named_and_is_there(scenes: torch.Tensor) -> None:
    named = world.named(scenes)
    assert set(named[:, 0].int().tolist()) == set(range(len(world.COLOURS)))
    for row, of in zip(scenes[:50], named[:50], strict=True):
        assert of.tolist() == row[3:].view(3, 3)[int(row[2])].tolist()


def test_colours_of_a_scene_differ(scenes: torch.Tensor) -> None:
    for colours in world.targets(scenes)[:200, :, 0].tolist():
        there = [one for one in colours if one >= 0]
        assert len(there) == len(set(there))


@pytest.mark.parametrize("joints", [(0.4, 0.9), (1.7, 2.2), (2.5, 0.2)])
def test_the_tip_is_where_both_links_end(joints: tuple[float, float]) -> None:
    first, second = joints
    x = world.BASE[0] + world.LINKS[0] * math.cos(first) + world.LINKS[1] * math.cos(first + second)
    y = world.BASE[1] + world.LINKS[0] * math.sin(first) + world.LINKS[1] * math.sin(first + second)
    assert world.tip(torch.tensor(joints)).tolist() == pytest.approx([x, y], abs=1e-6)


def test_the_expert_always_arrives(scenes: torch.Tensor) -> None:
    state = scenes
    for _ in range(16):
        state, _ = world.driven(state, world.expert(state)[:, :2])
    assert bool(world.reached(state).all())


def test_the_expert_keeps_to_the_speed_and_foresees_its_own_way(scenes: torch.Tensor) -> None:
    actions = world.expert(scenes)
    assert actions.abs().max() <= world.SPEED + 1e-6
    later = world.expert(world.moved(scenes, actions[:, 0]))
    torch.testing.assert_close(actions[:, 1:], later[:, :-1], atol=1e-3, rtol=0)


def test_nothing_moves_once_the_target_is_reached(scenes: torch.Tensor) -> None:
    at = torch.cat([world.joints_at(world.named(scenes)[:, 1:]), scenes[:, 2:]], 1)
    after, taken = world.driven(at, torch.ones(len(at), 4, 2))
    assert torch.equal(after, at)
    assert not taken.any()


def test_actions_count_until_the_target(scenes: torch.Tensor) -> None:
    few = scenes[:20]
    _, taken = world.driven(few, world.expert(few, 40))
    for scene, count in zip(few, taken.tolist(), strict=True):
        steps = 0
        while not world.reached(scene):
            scene = world.moved(scene, world.expert(scene[None], 1)[0, 0])
            steps += 1
        assert steps == count


def test_joints_stay_within_their_bounds(scenes: torch.Tensor) -> None:
    for push in (-50.0, 50.0):
        state = scenes
        for _ in range(40):
            state = world.moved(state, torch.full((2,), push))
        bound = world.LOW if push < 0 else world.HIGH
        assert (state[:, :2] - torch.tensor(bound)).abs().max() < 1e-6


def test_a_seed_is_a_scene_and_a_colour_changes_one_number_at_most() -> None:
    for seed in range(20):
        plain, red = world.scene(seed), world.scene(seed, 0)
        assert torch.equal(plain, world.scene(seed))
        assert world.named(red)[0] == 0
        assert torch.equal(plain[:2], red[:2])
        assert int((plain != red).sum()) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_every_instruction_names_its_colour(form: str) -> None:
    assert [colour(form.format(name)) for name in world.COLOURS] == list(range(len(world.COLOURS)))


@pytest.mark.parametrize("text", ["", "reach it", "reach the redder one", "go to red or blue", "reach the black one"])
def test_what_names_no_one_colour_is_not_guessed(text: str) -> None:
    assert colour(text) is None


def test_a_colour_is_heard_in_any_case_and_place() -> None:
    assert colour("PURPLE, please!") == world.COLOURS.index("purple")
    assert colour("red! the red one") == 0
