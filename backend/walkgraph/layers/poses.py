"""An arm's pose after an action, as numbers alone.

A pose is a position (metres), three angles (radians, about the fixed axes x, y and z in turn) and a grip in [0, 1]; an
action is a shift, a turn of the same kind and a change of the grip.
"""

import torch
from torch import Tensor

_LOCKED = 1e-7
"""Cosine of the middle angle below which the first and the last rotation share an axis; the last angle is then taken as
0."""


def move(pose: Tensor, action: Tensor) -> Tensor:
    """pose and action float32 `[B, 7]` or `[B, w, 7]`, broadcast -> the next pose, float32, computed in float64."""
    if pose.is_cuda:
        from walkgraph.layers.kernels.poses import move as launched

        return launched(pose, action, _LOCKED)
    return plain_move(pose, action)


def plain_move(pose: Tensor, action: Tensor) -> Tensor:
    """`move` in torch operations, for any leading axes."""
    pose, action = torch.broadcast_tensors(pose.double(), action.double())
    ends = pose + action
    angles = euler(rotation(torch.stack([action[..., 3:6], pose[..., 3:6]], -2)))
    return torch.cat([ends[..., :3], angles, ends[..., 6:].clamp(0, 1)], -1).float()


def rotation(angles: Tensor) -> Tensor:
    """Angles float64 `[..., 2, 3]` of two rotations, the second of which is applied first -> `[..., 3, 3]`."""
    still, even, odd = (part.to(angles.device) for part in _AXES)
    cos, sin = angles.cos()[..., None, None], angles.sin()[..., None, None]
    # About x, then y, then z, for both rotations at once.
    x, y, z = torch.addcmul(torch.addcmul(still, cos, even), sin, odd).unbind(-3)
    last, first = _times(_times(z, y), x).unbind(-3)
    return _times(last, first)


def euler(matrix: Tensor) -> Tensor:
    """`[..., 3, 3]` -> angles `[..., 3]` about x, y and z, with the middle one within a quarter turn."""
    r = matrix.flatten(-2)
    level = torch.hypot(r[..., 0], r[..., 3])
    locked = level < _LOCKED
    first = torch.atan2(torch.where(locked, -r[..., 5], r[..., 7]), torch.where(locked, r[..., 4], r[..., 8]))
    last = torch.atan2(r[..., 3], r[..., 0]).masked_fill(locked, 0.0)
    return torch.stack([first, torch.atan2(-r[..., 6], level), last], -1)


def _times(a: Tensor, b: Tensor) -> Tensor:
    """`[..., 3, 3]`; summed in the same order for every batch."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def _axes() -> tuple[Tensor, Tensor, Tensor]:
    """For rotations about x, y and z: the constant part, the factors of the cosine and those of the sine, each `[3, 3,
    3]`."""
    still, odd = torch.zeros(2, 3, 3, 3, dtype=torch.float64)
    for axis in range(3):
        one, two = (axis + 1) % 3, (axis + 2) % 3
        still[axis, axis, axis] = 1.0
        odd[axis, one, two], odd[axis, two, one] = -1.0, 1.0
    return still, torch.eye(3, dtype=torch.float64) - still, odd


_AXES = _axes()
