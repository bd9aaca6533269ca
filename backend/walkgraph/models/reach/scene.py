"""A planar arm of two links that must bring its tip to the named target, one of two or three coloured ones: numbers
only.

The world is the square [-1, 1] x [-1, 1], y upwards; angles are in radians, turns counterclockwise. The elbow always
bends one way (its angle is positive), so that every place has one pair of joints.

A scene is a row of `WIDTH` numbers: the joints (2), the index of the named target (1), and for each of three targets
colour, x and y (9); a missing target has colour -1.

Shape letters: B scenes, T actions of a chunk.
"""

import torch
from torch import Tensor

BASE = (0.0, -0.5)
LINKS = (0.7, 0.6)
TARGETS = 3
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")
WIDTH = 3 + 3 * TARGETS
RADIUS = 0.08
"""A target is reached when the tip is closer than this to its centre."""
HORIZON = 8
PERIOD = 0.1
"""Seconds that an action lasts."""
SPEED = 1.5
"""The highest speed of a joint, in radians per second."""
LOW, HIGH = (-1.0, 0.1), (3.2, 2.7)
"""Lowest and highest angles of the joints, in radians."""
_GAIN = 0.5
"""Share of the remaining way that the expert covers in one action, where the speed limit allows it."""
_NEAR, _FAR = 0.5, 1.22
"""Nearest and farthest distance of a target from the base."""
_AHEAD = 0.2, 2.94
"""Range of directions of a target from the base, in radians."""
_SIDE, _TOP = 0.88, 0.8
_APART = 0.36
"""Least distance between targets, and between the tip and a target when a scene begins, if a draw allows it."""
_DRAWS = 12


def drawn(count: int, generator: torch.Generator) -> Tensor:
    """Initial scenes `[B, WIDTH]` on the generator's device: no target near the tip, at most one target of each
    colour."""
    device = generator.device
    numbers = torch.rand(count, _DRAWS, 2 + 2 * TARGETS, generator=generator, device=device)
    joints = torch.stack([0.1 + 2.6 * numbers[..., 0], 0.3 + 2.0 * numbers[..., 1]], -1)
    radius = (_NEAR**2 + (_FAR**2 - _NEAR**2) * numbers[..., 2 : 2 + TARGETS]).sqrt()
    ahead = _AHEAD[0] + (_AHEAD[1] - _AHEAD[0]) * numbers[..., 2 + TARGETS :]
    x, y = radius * ahead.cos(), radius * ahead.sin() + BASE[1]
    places = torch.stack([x.clamp(-_SIDE, _SIDE), y.clamp(max=_TOP)], -1)
    order = torch.rand(count, len(COLOURS), generator=generator, device=device).argsort(1)[:, :TARGETS]
    chance = torch.rand(count, 2, generator=generator, device=device)
    there = torch.where(chance[:, 0] < 0.5, TARGETS, TARGETS - 1)
    chosen = _best(_gap(joints, places))
    joints, places = (part[torch.arange(count, device=device), chosen] for part in (joints, places))
    colour = torch.where(torch.arange(TARGETS, device=device) < there[:, None], order, -1).to(places.dtype)
    goal = (chance[:, 1] * there).floor().clamp(max=TARGETS - 1)
    targets = torch.cat([colour[..., None], places], -1).flatten(1)
    return torch.cat([joints, goal[:, None], targets], 1)


def scene(seed: int, colour: int | None = None) -> Tensor:
    """A scene `[WIDTH]` on the CPU. If a colour is given, the named target has it: where no target has it, the named
    one is recoloured."""
    state = drawn(1, torch.Generator("cpu").manual_seed(seed))[0]
    if colour is not None:
        colours = targets(state)[:, 0].tolist()
        if colour in colours:
            state[2] = colours.index(colour)
        else:
            state[3 + 3 * int(state[2])] = colour
    return state


def targets(state: Tensor) -> Tensor:
    """`[..., WIDTH]` -> `[..., TARGETS, 3]`: colour, x, y."""
    return state[..., 3:].unflatten(-1, (TARGETS, 3))


def named(state: Tensor) -> Tensor:
    """`[..., WIDTH]` -> `[..., 3]`: colour, x and y of the target to reach."""
    goal = state[..., 2].long()[..., None, None].expand(*state.shape[:-1], 1, 3)
    return targets(state).gather(-2, goal).squeeze(-2)


def elbow(joints: Tensor) -> Tensor:
    """`[..., 2]` -> place of the elbow `[..., 2]`."""
    first = joints[..., 0]
    return torch.stack([BASE[0] + LINKS[0] * first.cos(), BASE[1] + LINKS[0] * first.sin()], -1)


def tip(joints: Tensor) -> Tensor:
    """`[..., 2]` -> place of the tip `[..., 2]`."""
    both = joints.sum(-1)
    return elbow(joints) + LINKS[1] * torch.stack([both.cos(), both.sin()], -1)


def joints_at(place: Tensor) -> Tensor:
    """`[..., 2]` -> the joints that bring the tip there, or as near as possible."""
    x, y = place[..., 0] - BASE[0], place[..., 1] - BASE[1]
    a, b = LINKS
    second = ((x * x + y * y - a * a - b * b) / (2 * a * b)).clamp(-1, 1).acos()
    first = torch.atan2(y, x) - torch.atan2(b * second.sin(), a + b * second.cos())
    return limited(torch.stack([first, second], -1))


def limited(joints: Tensor) -> Tensor:
    """`[..., 2]`, clamped to the joints' limits."""
    first, second = joints.unbind(-1)
    return torch.stack([first.clamp(LOW[0], HIGH[0]), second.clamp(LOW[1], HIGH[1])], -1)


def distances(state: Tensor) -> Tensor:
    """`[..., WIDTH]` -> distance of the tip from every target `[..., TARGETS]`; infinite for targets that aren't
    there."""
    known = targets(state)
    apart = (known[..., 1:] - tip(state[..., :2])[..., None, :]).norm(dim=-1)
    return torch.where(known[..., 0] >= 0, apart, torch.inf)


def reached(state: Tensor) -> Tensor:
    """`[..., WIDTH]` -> bool `[...]`: true where the tip is at the named target."""
    return (tip(state[..., :2]) - named(state)[..., 1:]).norm(dim=-1) < RADIUS


def moved(state: Tensor, action: Tensor) -> Tensor:
    """The scene `[..., WIDTH]` after one action `[..., 2]`, the joints' speeds in radians a second."""
    joints = limited(state[..., :2] + action.clamp(-SPEED, SPEED) * PERIOD)
    return torch.cat([joints, state[..., 2:]], -1)


def driven(state: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Scenes `[B, WIDTH]` after actions `[B, T, 2]`, and the number of actions taken `[B]`: none after the target is
    reached."""
    taken = torch.zeros(len(state), dtype=torch.int64, device=state.device)
    for action in actions.unbind(1):
        goes = ~reached(state)
        state = torch.where(goes[:, None], moved(state, action), state)
        taken = taken + goes
    return state, taken


def expert(state: Tensor, horizon: int = HORIZON) -> Tensor:
    """The expert's actions `[B, horizon, 2]` for scenes `[B, WIDTH]`. Both joints arrive together, slowing down."""
    goal, joints = joints_at(named(state)[..., 1:]), state[..., :2]
    actions: list[Tensor] = []
    for _ in range(horizon):
        speed = _GAIN * (goal - joints) / PERIOD
        speed = speed * (SPEED / speed.abs().amax(-1, keepdim=True).clamp(min=SPEED))
        joints = joints + speed * PERIOD
        actions.append(speed)
    return torch.stack(actions, -2)


def _gap(joints: Tensor, places: Tensor) -> Tensor:
    """joints `[..., 2]`, places `[..., TARGETS, 2]` -> the smallest distance between any two of tip and targets."""
    points = torch.cat([tip(joints)[..., None, :], places], -2)
    apart = (points[..., :, None, :] - points[..., None, :, :]).norm(dim=-1)
    return (apart + 9 * torch.eye(points.shape[-2], device=points.device)).flatten(-2).amin(-1)


def _best(gap: Tensor) -> Tensor:
    """`[B, draws]` -> `[B]`: the first draw with enough room, or else the one with the most."""
    draws = torch.arange(gap.shape[1], device=gap.device)
    return torch.where(gap >= _APART, 100.0 - draws, gap).argmax(1)
