"""A small world to act in: a shape among walls that stop it, and an arrow that flies back and forth by itself.

One picture shows everything that determines the future: the arrow points where it flies, at constant speed, and turns
at walls and borders. Places are shares of the picture's side, x to the right and y downward.

Shape letters: B scenes (any leading axes), W walls, T actions, S numbers of a scene.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

SIDE = 64
"""Pixels of a picture's side, which is 1 in the world."""
MOST = 0.08
"""The longest shift of an action along an axis."""
RADIUS = 4.75 / SIDE
"""Half the side of the shape's box, which walls stop."""
SPEED = 0.045
"""Distance that the arrow flies per step."""
ARROW = 4.0 / SIDE
"""Least distance between the arrow's middle and whatever turns it."""
WALLS = 3
KINDS = ("disc", "block", "diamond")
THICK = 0.08
NEAR = 3 / SIDE
"""A goal counts as reached within this distance,"""
ALIKE = 0.25
"""and with the grip within this difference; a planner ignores smaller changes."""
FAR = 0.2
"""Least distance of a goal from the shape."""
GOALS = 12
_LEG, _WAY = 4, 14
"""Steps of a drive's leg, and of a way to a goal."""
_LANES = 6
_PLACES = 24
_MIDDLE = 16
"""Count of a scene's numbers before those of the walls."""
NUMBERS = _MIDDLE + 4 * WALLS
ROOM = 4 + 6 * WALLS + 3 * _LANES + 2 * _PLACES
"""Count of uniform numbers from which a scene without a goal is drawn."""
UNIFORMS = ROOM + 5 * GOALS


class Scene(NamedTuple):
    """One moment of scenes, float32."""

    place: Tensor
    """`[B, 2]`: x, y of the shape's middle."""
    grip: Tensor
    """`[B]` in [0, 1]: the shape's colour."""
    kind: Tensor
    """`[B]`: index into KINDS."""
    axis: Tensor
    """`[B]`: 0 where the arrow flies along x, 1 along y."""
    lane: Tensor
    """`[B, 3]`: the arrow's place across its flight, and the two ends of the flight."""
    along: Tensor
    """`[B]`: the arrow's place along its flight."""
    heading: Tensor
    """`[B]`: 1 or -1."""
    goal: Tensor
    """`[B, 3]`: x, y and grip to reach."""
    walls: Tensor
    """`[B, W, 4]`: left, top, right, bottom; a missing wall has no size and lies outside."""

    def numbers(self) -> Tensor:
        """`[B, S]`, the numbers that `of` reads."""
        one = [self.grip, self.kind, self.axis, self.along, self.heading]
        parts = [self.place, torch.stack(one, -1), self.lane, self.goal, self.place.new_zeros(*self.grip.shape, 3)]
        return torch.cat([*parts, self.walls.flatten(-2)], -1)

    @classmethod
    def of(cls, numbers: Tensor) -> Self:
        """`[B, S]` -> the scenes."""
        n = numbers
        return cls(
            place=n[..., :2],
            grip=n[..., 2],
            kind=n[..., 3],
            axis=n[..., 4],
            along=n[..., 5],
            heading=n[..., 6],
            lane=n[..., 7:10],
            goal=n[..., 10:13],
            walls=n[..., _MIDDLE:].unflatten(-1, (WALLS, 4)),
        )

    def pose(self) -> Tensor:
        """`[B, 7]`: x, y, 0, no angles, grip."""
        nothing = torch.zeros_like(self.place)
        return torch.cat([self.place, nothing, nothing, self.grip[..., None]], -1)

    def arrow(self) -> Tensor:
        """`[B, 2]`: x, y of the arrow's middle."""
        across = self.lane[..., 0]
        x = torch.where(self.axis > 0.5, across, self.along)
        return torch.stack([x, torch.where(self.axis > 0.5, self.along, across)], -1)


def drawn(seeds: Sequence[int], device: torch.device | str = "cpu") -> Scene:
    """Scenes `[B]` determined by their seeds."""
    rows = [torch.rand(UNIFORMS, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return scenes(torch.stack(rows).to(device))


def scenes(uniform: Tensor) -> Scene:
    """Uniform numbers `[B, UNIFORMS]` in [0, 1) -> scenes."""
    return with_goal(rooms(uniform[..., :ROOM]), uniform[..., ROOM:].unflatten(-1, (GOALS, 5)))


def rooms(uniform: Tensor) -> Scene:
    """Uniform numbers `[B, ROOM]` in [0, 1) -> scenes whose goal is the shape's place."""
    first, walls, lanes, places = uniform.split([4, 6 * WALLS, 3 * _LANES, 2 * _PLACES], -1)
    stand = _walls(walls.unflatten(-1, (WALLS, 6)))
    axis, lane, along = _flight(lanes.unflatten(-1, (_LANES, 3)), stand)
    place = free_place(places.unflatten(-1, (_PLACES, 2)), stand)
    grip = first[..., 0]
    return Scene(
        place=place,
        grip=grip,
        kind=(first[..., 1] * len(KINDS)).floor(),
        axis=axis,
        lane=lane,
        along=along,
        heading=torch.where(first[..., 2] < 0.5, 1.0, -1.0),
        goal=torch.cat([place, grip[..., None]], -1),
        walls=stand,
    )


def free_place(uniform: Tensor, walls: Tensor) -> Tensor:
    """The first of places `[B, n, 2]`, drawn from uniform numbers, where the shape fits between walls `[B, W, 4]`, or
    the last if none fits -> `[B, 2]`."""
    places = RADIUS + uniform * (1 - 2 * RADIUS)
    low, high = walls[..., None, :, :2] - RADIUS, walls[..., None, :, 2:] + RADIUS
    inside = ((places[..., None, :] > low) & (places[..., None, :] < high)).all(-1).any(-1)
    order = torch.arange(places.shape[-2], 0, -1, device=places.device)
    best = torch.where(inside, 0, order).argmax(-1)
    return places.take_along_dim(best[..., None, None], -2).squeeze(-2)


def moved(scene: Scene, action: Tensor) -> Scene:
    """The next moment: action `[B, 7]`, of which x and y shift the shape (at most MOST along each) and the last number
    shifts its grip. The shape goes along x and then along y, and stops where it touches."""
    shift = action[..., :2].clamp(-MOST, MOST)
    x = _stopped(scene.place, shift[..., 0], scene.walls, 0)
    place = torch.stack([x, scene.place[..., 1]], -1)
    y = _stopped(place, shift[..., 1], scene.walls, 1)
    along, (_, low, high) = scene.along + scene.heading * SPEED, scene.lane.unbind(-1)
    over, under = along > high, along < low
    back = torch.where(over, 2 * high - along, torch.where(under, 2 * low - along, along))
    return scene._replace(
        place=torch.stack([x, y], -1),
        grip=(scene.grip + action[..., 6]).clamp(0, 1),
        along=back.clamp(low, high),
        heading=torch.where(over, -1.0, torch.where(under, 1.0, scene.heading)),
    )


def run(scene: Scene, actions: Tensor) -> Scene:
    """Actions `[B, T, 7]` -> the scenes after each, with the axis T behind B."""
    after: list[Scene] = []
    for action in actions.unbind(-2):
        scene = moved(scene, action)
        after.append(scene)
    return Scene(*(torch.stack(parts, len(scene.grip.shape)) for parts in zip(*after, strict=True)))


def with_goal(scene: Scene, uniform: Tensor) -> Scene:
    """Uniform numbers `[B, C, 5]` -> scenes whose goal lies away from the shape and can be reached by heading straight
    for it.

    The goal is the end of the first of C two-legged drives that ends at such a place, or else of the one that ends
    nearest to one.
    """
    legs = (uniform[..., :4] * 2 - 1).unflatten(-1, (2, 2))
    legs = MOST * legs / legs.abs().amax(-1, keepdim=True).clamp(min=1e-3)
    start = Scene(*(part.unsqueeze(scene.grip.dim()) for part in scene))
    start = start._replace(place=start.place.expand((*legs.shape[:-2], 2)))
    there = start
    for leg in legs.unbind(-2):
        for _ in range(_LEG):
            there = moved(there, _shift(leg))
    at = start
    for _ in range(_WAY):
        at = moved(at, _shift(there.place - at.place))
    off = (there.place - start.place).norm(dim=-1)
    missed = (there.place - at.place).norm(dim=-1)
    fits = ((off > FAR).float() - 10 * (missed > 1e-3).float()).argmax(-1)
    place = there.place.take_along_dim(fits[..., None, None], -2).squeeze(-2)
    return scene._replace(goal=torch.cat([place, uniform[..., 0, 4:]], -1))


def _shift(shift: Tensor) -> Tensor:
    """`[B, 2]` -> the action `[B, 7]`."""
    return torch.cat([shift, shift.new_zeros(*shift.shape[:-1], 5)], -1)


def at_goal(scene: Scene) -> Scene:
    """The scene at its goal: the shape where it should be, the arrow where it is."""
    return scene._replace(place=scene.goal[..., :2], grip=scene.goal[..., 2])


def apart(scene: Scene) -> tuple[Tensor, Tensor]:
    """`[B]`: distance of the shape from its goal, and bool: true where place and grip are reached."""
    off = (scene.place - scene.goal[..., :2]).norm(dim=-1)
    return off, (off <= NEAR) & ((scene.grip - scene.goal[..., 2]).abs() <= ALIKE)


def _walls(uniform: Tensor) -> Tensor:
    """Vertical or horizontal bars `[B, W, 6]` -> `[B, W, 4]`; one in five is missing."""
    there, lies, long, x, y, _ = uniform.unbind(-1)
    half = 0.13 + 0.14 * long
    wide = torch.where(lies < 0.5, half, THICK / 2)
    tall = torch.where(lies < 0.5, THICK / 2, half)
    x, y = 0.12 + 0.76 * x, 0.12 + 0.76 * y
    wall = torch.stack([x - wide, y - tall, x + wide, y + tall], -1).clamp(0, 1)
    return torch.where(there[..., None] < 0.2, -1.0, wall)


def _flight(uniform: Tensor, walls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The arrow's axis `[B]`, its lane `[B, 3]` and its place on the lane: the first lane of `[B, L, 3]` that is long
    enough, or the longest one."""
    axis = (uniform[..., 0] < 0.5).float()
    across = 0.1 + 0.8 * uniform[..., 1]
    middle = uniform[..., 2]
    flat = axis[..., None] > 0.5
    wall = walls[..., None, :, :]
    near, far = (torch.where(flat, wall[..., 1 + e], wall[..., e]) for e in (0, 2))
    side, other = (torch.where(flat, wall[..., e], wall[..., 1 + e]) for e in (0, 2))
    hit = (across[..., None] > side - ARROW) & (across[..., None] < other + ARROW)
    within = hit & (middle[..., None] > near - ARROW) & (middle[..., None] < far + ARROW)
    low = torch.where(hit & (far <= middle[..., None]), far, 0.0).amax(-1) + ARROW
    high = torch.where(hit & (near >= middle[..., None]), near, 1.0).amin(-1) - ARROW
    length = torch.where(within.any(-1), -1.0, high - low).clamp(max=0.35)
    best = length.argmax(-1, keepdim=True)
    lane = torch.stack([across, low, high], -1).take_along_dim(best[..., None], -2).squeeze(-2)
    along = middle.take_along_dim(best, -1).squeeze(-1).clamp(lane[..., 1], lane[..., 2])
    return axis.take_along_dim(best, -1).squeeze(-1), lane, along


def _stopped(place: Tensor, shift: Tensor, walls: Tensor, axis: int) -> Tensor:
    """The place where the shape stops along an axis: place `[B, 2]`, shift `[B]` -> `[B]`."""
    at, across = place[..., axis, None], place[..., 1 - axis, None]
    beside = (across > walls[..., 1 - axis] - RADIUS) & (across < walls[..., 3 - axis] + RADIUS)
    # Half a hundredth of a pixel of slack covers rounding where the shape touches a wall.
    slack = 1e-4
    ahead = beside & (walls[..., axis] - RADIUS >= at - slack)
    behind = beside & (walls[..., 2 + axis] + RADIUS <= at + slack)
    high = torch.where(ahead, walls[..., axis] - RADIUS, 1 - RADIUS).amin(-1)
    low = torch.where(behind, walls[..., 2 + axis] + RADIUS, RADIUS).amax(-1)
    return (place[..., axis] + shift).clamp(low, high)
