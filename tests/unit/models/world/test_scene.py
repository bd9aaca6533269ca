"""The shape's world: what moves as it should, what stops it, and that a picture shows all that is to come."""

from typing import Any

import pytest
import torch
from torch import Tensor

from walkgraph.models.world import drives
from walkgraph.models.world import scene as world
from walkgraph.models.world.picture import ARROW, GRIPS, GROUND, WALL, picture
from walkgraph.models.world.scene import MOST, RADIUS, SIDE, Scene

MANY = 400


@pytest.fixture(scope="module")
def scenes() -> Scene:
    return world.scenes(torch.rand(MANY, world.UNIFORMS, generator=torch.Generator().manual_seed(0)))


def wandering(length: int) -> Tensor:
    dice = torch.Generator().manual_seed(1)
    actions = torch.zeros(MANY, length, 7)
    actions[..., :2] = (torch.rand(MANY, 1, 2, generator=dice) * 2 - 1) * MOST * 1.5
    actions[..., 6] = torch.randn(MANY, length, generator=dice)
    return actions


def inside(place: Tensor, walls: Tensor, within: float) -> Tensor:
    """True if the shape's box overlaps a wall by more than the given amount."""
    low, high = walls[..., :2] - RADIUS + within, walls[..., 2:] + RADIUS - within
    return ((place[..., None, :] > low) & (place[..., None, :] < high)).all(-1).any(-1)


def plain(walls: list[list[float]], place: list[float], **others: Any) -> Scene:
    """One scene with these walls."""
    none = [[-1.0] * 4] * (world.WALLS - len(walls))
    whole = {"grip": 0.0, "kind": 0.0, "axis": 0.0, "along": 0.5, "heading": 1.0, **others}
    return Scene(
        place=torch.tensor([place]),
        lane=torch.tensor([[0.9, 0.1, 0.9]]),
        goal=torch.zeros(1, 3),
        walls=torch.tensor([walls + none]),
        **{name: torch.tensor([float(value)]) for name, value in whole.items()},
    )


def push(x: float = 0.0, y: float = 0.0, grip: float = 0.0) -> Tensor:
    return torch.tensor([[x, y, 0.0, 0.0, 0.0, 0.0, grip]])


def test_a_seed_means_one_scene_alone_and_in_a_batch() -> None:
    both = world.drawn([5, 6]).numbers()
    assert torch.equal(world.drawn([6]).numbers(), both[1:])
    assert not torch.equal(both[0], both[1])


def test_numbers_hold_all_of_a_scene(scenes: Scene) -> None:
    numbers = scenes.numbers()
    assert numbers.shape == (MANY, world.NUMBERS)
    assert all(torch.equal(a, b) for a, b in zip(Scene.of(numbers), scenes, strict=True))


def test_nothing_begins_in_a_wall(scenes: Scene) -> None:
    assert not inside(scenes.place, scenes.walls, 1e-6).any()
    arrow = scenes.arrow()[:, None]
    assert not ((arrow > scenes.walls[..., :2]) & (arrow < scenes.walls[..., 2:])).all(-1).any()


def test_walls_and_borders_hold_the_shape(scenes: Scene) -> None:
    after = world.run(scenes, wandering(20))
    assert not inside(after.place, after.walls, 1e-3).any()
    assert (after.place >= RADIUS - 1e-6).all()
    assert (after.place <= 1 - RADIUS + 1e-6).all()
    assert (after.place[:, 0] - scenes.place).abs().max() <= MOST + 1e-6
    assert (after.grip.amin(), after.grip.amax()) == (0, 1)


def test_a_shape_touches_a_wall_and_slides_along_it() -> None:
    scene = plain([[0.5, 0.2, 0.6, 0.8]], [0.4, 0.5])
    for _ in range(3):
        scene = world.moved(scene, push(0.05, 0.02))
    assert scene.place[0].tolist() == pytest.approx([0.5 - RADIUS, 0.56])
    away = world.moved(scene, push(-0.05))
    assert away.place[0, 0] == pytest.approx(0.45 - RADIUS)


def test_what_is_no_shift_or_grip_moves_nothing() -> None:
    scene = plain([], [0.4, 0.5])
    action = torch.tensor([[0.0, 0.0, 0.3, 0.2, 0.2, 0.2, 0.0]])
    after = world.moved(scene, action)
    assert torch.equal(after.place, scene.place)
    assert after.grip == scene.grip


def test_the_arrow_flies_evenly_and_turns_at_the_ends_of_its_way(scenes: Scene) -> None:
    after = world.run(scenes, torch.zeros(MANY, 60, 7))
    step = (after.along[:, 1:] - after.along[:, :-1]).abs()
    turned = after.heading[:, 1:] != after.heading[:, :-1]
    assert step[~turned] == pytest.approx(world.SPEED, abs=1e-5)
    assert (step[turned] <= world.SPEED + 1e-5).all()
    assert turned.any(1).all()
    assert (after.along >= after.lane[..., 1] - 1e-6).all()
    assert (after.along <= after.lane[..., 2] + 1e-6).all()


def test_goals_lie_off_and_are_reached_by_heading_for_them(scenes: Scene) -> None:
    off, reached = world.apart(scenes)
    assert not reached.any()
    assert (off > world.FAR).float().mean() > 0.98
    for _ in range(14):
        action = torch.cat([scenes.goal[:, :2] - scenes.place, torch.zeros(MANY, 5)], 1)
        action[:, 6] = scenes.goal[:, 2] - scenes.grip
        scenes = world.moved(scenes, action)
    assert world.apart(scenes)[1].all()
    at = world.at_goal(scenes)
    assert torch.equal(torch.cat([at.place, at.grip[:, None]], 1), at.goal)


def test_everything_to_come_is_in_the_picture(scenes: Scene) -> None:
    """Scenes that differ in what decides the next moment differ in the picture."""
    seen = picture(scenes)
    for other in (
        scenes._replace(heading=-scenes.heading),
        scenes._replace(place=scenes.place + 1 / SIDE),
        scenes._replace(grip=(scenes.grip + 0.5) % 1),
        scenes._replace(along=scenes.along + 1 / SIDE),
    ):
        assert ((picture(other) - seen).abs().amax((1, 2, 3)) > 0.1).all()


def test_a_picture_has_its_colours_where_things_are() -> None:
    scene = plain([[0.5, 0.25, 0.75, 0.5]], [0.25, 0.25], along=0.25)
    levels = ((picture(scene)[0] + 1) * 127.5).round().int()
    assert tuple(levels[:, 20, 40].tolist()) == WALL
    assert tuple(levels[:, 16, 16].tolist()) == GRIPS[0]
    assert tuple(levels[:, 57, 16].tolist()) == ARROW
    assert tuple(levels[:, 40, 40].tolist()) == GROUND


@pytest.mark.parametrize("kind", range(len(world.KINDS)))
def test_shapes_are_smooth_and_move_by_parts_of_a_pixel(kind: int) -> None:
    """The middle of what the shape covers follows its place."""
    middles: list[float] = []
    for part in (0.0, 0.25, 0.5):
        scene = plain([], [0.5 + part / SIDE, 0.5], kind=kind)
        shown = (picture(scene) - picture(plain([], [-1.0, -1.0]))).abs().sum((0, 1))
        columns = torch.arange(SIDE) + 0.5
        middles.append(float((shown.sum(0) * columns).sum() / shown.sum()))
    assert middles == pytest.approx([32.0, 32.25, 32.5], abs=0.05)


@pytest.mark.parametrize("name", drives.DRIVES)
def test_drives_are_actions_that_a_seed_repeats(name: str) -> None:
    actions = drives.drive(name, 20, seed=3)
    assert actions.shape == (20, 7)
    assert actions[:, :2].abs().max() <= MOST
    assert torch.equal(actions, drives.drive(name, 20, seed=3))
    assert torch.equal(actions[:10], drives.drive(name, 10, seed=3))
    assert (actions[:, :2] == 0).all() == (name == "rest")


def test_a_circle_closes() -> None:
    assert drives.drive("circle", 16, 0)[:, :2].sum(0).abs().max() < 1e-6


def test_there_is_no_other_drive() -> None:
    with pytest.raises(ValueError, match="circle"):
        drives.drive("triangle", 4, 0)


@pytest.mark.parametrize("given", [0, 2, 5])
def test_actions_are_cut_or_followed_by_rest(given: int) -> None:
    actions = torch.ones(given, 7)
    found = drives.cut(actions, 3)
    assert found.tolist() == [[1.0] * 7] * min(given, 3) + [[0.0] * 7] * max(0, 3 - given)
