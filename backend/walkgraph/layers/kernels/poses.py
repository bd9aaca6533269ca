"""Poses from actions in one launch: some hundred numbers, between steps that wait for them."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap

BLOCK = 16
"""Poses of a program: a thread then has one angle."""


@triton.jit
def _parts(numbers, BLOCK: tl.constexpr):
    """`[BLOCK, 8]`, those of a turn and of a pose, four each, of which the last is nothing -> x, y and z of both."""
    even, odd = tl.split(tl.reshape(numbers, [BLOCK, 2, 2, 2]))
    x, z = tl.split(even)
    y, _ = tl.split(odd)
    tx, px = tl.split(x)
    ty, py = tl.split(y)
    tz, pz = tl.split(z)
    return tx, ty, tz, px, py, pz


@triton.jit
def _added(pose, action, at, inside):
    return tl.load(pose + at, mask=inside, other=0.0).to(tl.float64) + tl.load(action + at, mask=inside, other=0.0)


@triton.jit
def move_kernel(pose, action, out, count, width, pose_row, pose_sample, action_row, action_sample, locked,
                BLOCK: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """`BLOCK` poses per program, in float64. Strides count numbers, 0 where the samples of a row share one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    pose += (at // width) * pose_row + (at % width) * pose_sample
    action += (at // width) * action_row + (at % width) * action_sample
    out += at * 7
    lane = tl.arange(0, 8)[None, :]
    known = inside[:, None] & (lane % 4 < 3)
    axis, turn = 3 + lane % 4, lane < 4
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    # All angles at once: a function in float64 is long, and so is the wait for its code.
    angles = tl.where(
        turn,
        tl.load(action[:, None] + axis, mask=known & turn, other=0.0),
        tl.load(pose[:, None] + axis, mask=known & (lane >= 4), other=0.0),
    ).to(tl.float64)
    # Rows of the later rotation and columns of the earlier one; each is about x, then y, then z.
    sx, sy, sz, su, sv, sw = _parts(libdevice.sin(angles), BLOCK)
    cx, cy, cz, cu, cv, cw = _parts(libdevice.cos(angles), BLOCK)
    p00, p10, p20 = cw * cv, sw * cv, -sv
    p01, p11, p21 = cw * sv * su - sw * cu, sw * sv * su + cw * cu, cv * su
    p02, p12, p22 = cw * sv * cu + sw * su, sw * sv * cu - cw * su, cv * cu
    a00, a01, a02 = cz * cy, cz * sy * sx - sz * cx, cz * sy * cx + sz * sx
    a10, a11, a12 = sz * cy, sz * sy * sx + cz * cx, sz * sy * cx - cz * sx
    a20, a21, a22 = -sy, cy * sx, cy * cx
    r00 = a00 * p00 + a01 * p10 + a02 * p20
    r10 = a10 * p00 + a11 * p10 + a12 * p20
    r20 = a20 * p00 + a21 * p10 + a22 * p20
    r11 = a10 * p01 + a11 * p11 + a12 * p21
    r12 = a10 * p02 + a11 * p12 + a12 * p22
    r21 = a20 * p01 + a21 * p11 + a22 * p21
    r22 = a20 * p02 + a21 * p12 + a22 * p22
    level = libdevice.sqrt(r00 * r00 + r10 * r10)
    still = level < locked
    above = tl.join(tl.join(tl.where(still, -r12, r21), r10), tl.join(-r20, r20))
    below = tl.join(tl.join(tl.where(still, r11, r22), r00), tl.join(level, level))
    ends, middles = tl.split(libdevice.atan2(above, below))
    first, last = tl.split(ends)
    tl.store(out + 3, first.to(tl.float32), mask=inside)
    tl.store(out + 4, tl.split(middles)[0].to(tl.float32), mask=inside)
    tl.store(out + 5, tl.where(still, 0.0, last).to(tl.float32), mask=inside)
    for i in tl.static_range(3):
        tl.store(out + i, _added(pose, action, i, inside).to(tl.float32), mask=inside)
    grip = tl.minimum(tl.maximum(_added(pose, action, 6, inside), 0.0), 1.0)
    tl.store(out + 6, grip.to(tl.float32), mask=inside)


def move(pose: Tensor, action: Tensor, locked: float) -> Tensor:
    """`layers.poses.move` of float32 `[B, 7]` or `[B, w, 7]`."""
    pose, action = (part if part.stride(-1) == 1 else part.contiguous() for part in (pose, action))
    shape = torch.broadcast_shapes(pose.shape, action.shape)
    out = torch.empty(shape, dtype=torch.float32, device=pose.device)
    count, width = out.numel() // 7, shape[1] if len(shape) == 3 else 1
    strides = [n for part in (pose, action) for n in (*part.expand(shape).stride()[:-1], 0)[:2]]
    overlap = can_overlap()
    move_kernel[(triton.cdiv(count, BLOCK),)](
        pose, action, out, count, width, *strides, locked, BLOCK=BLOCK, PDL=overlap, num_warps=4, launch_pdl=overlap
    )
    return out
