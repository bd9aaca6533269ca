"""Training data on the device: scenes, actions of several kinds, and poses by dead reckoning.

Shape letters: B scenes, T actions.
"""

import torch
from torch import Tensor

from walkgraph.models.world.scene import MOST, ROOM, Scene, moved, rooms, run

_LEG = 4
"""Steps for which a drive keeps its course."""


def fresh(count: int, device: torch.device) -> Scene:
    return rooms(torch.rand(count, ROOM, device=device))


def walked(count: int, device: torch.device) -> Scene:
    """Scenes in mid-drive, where the shape often touches a wall."""
    scene = fresh(count, device)
    course = (torch.rand(count, 7, device=device) * 2 - 1) * MOST * 1.5
    for _ in range(3):
        scene = moved(scene, course)
    return scene


def actions(count: int, length: int, device: torch.device) -> Tensor:
    """`[B, T, 7]`: half of them drives that keep a course for some steps, half random like a planner's draws.

    The third number, which moves nothing, is drawn like a planner's in half of them.
    """
    legs = -(-length // _LEG)
    course = (torch.rand(count, legs, 2, device=device) * 2 - 1) * MOST
    fast = torch.rand(count, legs, 1, device=device) < 0.4
    most = course.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    course = torch.where(fast, course / most * MOST, course).repeat_interleave(_LEG, 1)[:, :length]
    tried = (torch.randn(count, length, 2, device=device) * MOST).clamp(-MOST, MOST)
    shift = torch.where(_coin(count, 0.5, device), course, tried)
    shift = shift * (torch.rand(count, length, 1, device=device) >= 0.05)
    aside = (torch.randn(count, length, 1, device=device) * MOST).clamp(-MOST, MOST)
    aside = aside * _coin(count, 0.5, device)
    return torch.cat([shift, aside, shift.new_zeros(count, length, 3), _grips(count, length, device)], -1)


def reckoned(pose: Tensor, actions: Tensor) -> Tensor:
    """The pose `[B, 7]` before each of the actions `[B, T, 7]`, by dead reckoning as if nothing stopped the shape ->
    `[B, T, 7]`."""
    poses = [pose]
    for action in actions.unbind(-2)[:-1]:
        before = poses[-1]
        grip = (before[..., 6:] + action[..., 6:]).clamp(0, 1)
        poses.append(torch.cat([before[..., :3] + action[..., :3], before[..., 3:6], grip], -1))
    return torch.stack(poses, -2)


def episodes(count: int, length: int, device: torch.device) -> tuple[Scene, Tensor, Tensor]:
    """Scenes at `length` + 1 moments `[B, T + 1]`, actions and reckoned poses `[B, T, 7]`."""
    scene, given = fresh(count, device), actions(count, length, device)
    after = run(scene, given)
    both = Scene(*(torch.cat([a[:, None], b], 1) for a, b in zip(scene, after, strict=True)))
    return both, given, reckoned(scene.pose(), given)


def _grips(count: int, length: int, device: torch.device) -> Tensor:
    """`[B, T, 1]`: no grip changes, slow ones in one direction, or large ones."""
    slow = (torch.rand(count, 1, 1, device=device) - 0.5) * 0.3
    large = torch.randn(count, length, 1, device=device).clamp(-0.75, 0.75)
    kind = torch.rand(count, 1, 1, device=device)
    return torch.where(kind < 0.35, 0.0, torch.where(kind < 0.65, slow, large)).expand(-1, length, -1)


def _coin(count: int, share: float, device: torch.device) -> Tensor:
    return torch.rand(count, 1, 1, device=device) < share
