"""`walkgraph.layers.channels` on a GPU: one program waits, many copy.

Launches run in stream order, so whatever a kernel wrote before a release, even to another device, is visible to work
after the acquire that saw the number.
"""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORDS = 2048
"""Words that one program copies."""
_LOOKS = tl.constexpr(32)
"""Polls of the number between two polls of the host's memory, which is far away."""


def receive(
    links: Tensor, row: Tensor, column: int, iteration: Tensor, lag: int, first: Tensor | None, out: Tensor,
    came: Tensor, patience: float,
) -> None:  # fmt: skip
    """`layers.channels.receive` into `out` `[1, *shape]` and `came` bool `[1]`. `column`: the channel's first column in
    `links`; `lag`: 1 for the value of the iteration before; `patience`: seconds."""
    _wait[(1,)](links, row, iteration, came, links.shape[1], int(patience * 1e9), COLUMN=column, LAG=lag, num_warps=1)
    words, unit = _words(out)
    _fetch[(triton.cdiv(words, _WORDS),)](
        links, row, iteration, _flat(out, unit), None if first is None else _flat(first, unit), words, links.shape[1],
        COLUMN=column, LAG=lag, WORDS=_WORDS, num_warps=8,
    )  # fmt: skip


def send(value: Tensor, links: Tensor, row: Tensor, column: int, iteration: Tensor) -> None:
    """`layers.channels.send` of a contiguous value `[1, *shape]`."""
    words, unit = _words(value)
    _put[(triton.cdiv(words, _WORDS),)](
        links, row, _flat(value, unit), words, links.shape[1], COLUMN=column, WORDS=_WORDS, num_warps=8
    )
    _release[(1,)](links, row, iteration, links.shape[1], COLUMN=column, num_warps=1)


def _words(value: Tensor) -> tuple[int, torch.dtype]:
    unit = torch.int32 if value.nbytes % 4 == 0 else torch.uint8
    return value.nbytes // unit.itemsize, unit


def _flat(value: Tensor, unit: torch.dtype) -> Tensor:
    return value.contiguous().view(-1).view(unit)


@triton.jit
def _acquired(number):
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.s64 $0, [$1];", "=l,l", [number], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def _halted(halt):
    return tl.inline_asm_elementwise(
        "ld.relaxed.sys.global.s32 $0, [$1];", "=r,l", [halt], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _rested():
    """The device's clock in nanoseconds, after a short sleep."""
    return tl.inline_asm_elementwise(
        "nanosleep.u32 100; mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def _wait(links, row, iteration, came, width, patience, COLUMN: tl.constexpr, LAG: tl.constexpr):
    link = links + tl.load(row) * width
    number = tl.load(link + COLUMN + 1)
    wanted = tl.load(iteration) + 1 - LAG
    arrived = (number == 0) | (wanted <= 0)
    if arrived == 0:
        wanted += tl.load(link + COLUMN + 2)
        halt = tl.load(link)
        began = _rested()
        looks = 0
        going = 1
        arrived = _acquired(number) >= wanted
        while (going != 0) & (arrived == 0):
            looks += 1
            arrived = _acquired(number) >= wanted
            if looks % _LOOKS == 0:
                late = _rested() - began > patience
                going = tl.where((_halted(halt) != 0) | late, 0, 1)
    tl.store(came, arrived)


@triton.jit
def _fetch(
    links, row, iteration, out, first, count, width,
    COLUMN: tl.constexpr, LAG: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    data = tl.load(links + tl.load(row) * width + COLUMN)
    there = (data != 0) & (tl.load(iteration) >= LAG)
    at = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    source = tl.multiple_of(data, 16).to(tl.pointer_type(out.dtype.element_ty))
    value = tl.load(source + at, mask=(at < count) & there, other=0)
    if LAG:
        value = tl.where(there, value, tl.load(first + at, mask=(at < count) & (there == 0), other=0))
    tl.store(out + at, value, mask=at < count)


@triton.jit
def _put(links, row, value, count, width, COLUMN: tl.constexpr, WORDS: tl.constexpr):
    data = tl.load(links + tl.load(row) * width + COLUMN)
    at = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    target = tl.multiple_of(data, 16).to(tl.pointer_type(value.dtype.element_ty))
    inside = (at < count) & (data != 0)
    tl.store(target + at, tl.load(value + at, mask=inside, other=0), mask=inside)


@triton.jit
def _release(links, row, iteration, width, COLUMN: tl.constexpr):
    link = links + tl.load(row) * width
    number = tl.load(link + COLUMN + 1)
    if number != 0:
        value = tl.load(link + COLUMN + 2) + tl.load(iteration) + 1
        tl.inline_asm_elementwise(
            "st.release.sys.global.s64 [$1], $2; mov.s64 $0, $2;", "=l,l,l", [number, value],
            dtype=tl.int64, is_pure=False, pack=1,
        )  # fmt: skip
