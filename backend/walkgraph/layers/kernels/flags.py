"""Flags in memory that several devices see: written behind all that was written before, waited for by one program.

Launches are in stream order, so what a kernel before `signal` wrote, to a peer too, is seen by whatever follows the
`wait` that saw the flag: a release and an acquire of the whole system.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORDS = 4096
"""int32 words that one program copies."""


def signal(flag: Tensor, count: Tensor, given_up: Tensor) -> None:
    """`flag = count`, int64 `[1]`; unless `given_up`, int32 `[1]`, is 1."""
    signal_kernel[(1,)](flag, count, given_up, num_warps=1)  # pyright: ignore[reportArgumentType, reportCallIssue]


def wait(flag: Tensor, count: Tensor, halt: Tensor, given_up: Tensor) -> None:
    """Until `flag >= count`, int64 `[1]`; or `halt` is set, int32 `[1]` in pinned memory: then `given_up` is 1."""
    wait_kernel[(1,)](flag, count, halt, given_up, num_warps=1)  # pyright: ignore[reportArgumentType, reportCallIssue]


def copy(source: Tensor, target: Tensor) -> None:
    """`target` = `source`, both contiguous, of one size in bytes; a kernel's writes can be captured wherever `target`
    lies."""
    if not (source.is_contiguous() and target.is_contiguous()):
        raise ValueError("only what is contiguous is copied to a peer")
    if not source.nbytes:
        return
    whole = source.nbytes % 4 == 0 and source.data_ptr() % 4 == 0
    words = [one.view(-1).view(_words(whole)) for one in (source, target)]
    count = words[0].numel()
    copy_kernel[(triton.cdiv(count, _WORDS),)](
        *words, count, WORDS=_WORDS, num_warps=8  # pyright: ignore[reportArgumentType, reportCallIssue]
    )  # fmt: skip


def _words(whole: bool) -> torch.dtype:
    return torch.int32 if whole else torch.uint8


@triton.jit
def _acquired(flag):
    return tl.inline_asm_elementwise(
        "ld.acquire.sys.global.s64 $0, [$1];", "=l,l", [flag], dtype=tl.int64, is_pure=False, pack=1
    )


@triton.jit
def signal_kernel(flag, count, given_up):
    value = tl.load(count)
    if tl.load(given_up) == 0:
        tl.inline_asm_elementwise(
            "st.release.sys.global.s64 [$1], $2; mov.s64 $0, $2;", "=l,l,l", [flag, value],
            dtype=tl.int64, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def wait_kernel(flag, count, halt, given_up):
    target = tl.load(count)
    value = _acquired(flag)
    halted = 0
    turns = 0
    while (value < target) & (halted == 0):
        turns += 1
        # The host's memory is far away: it is looked at now and then.
        if turns % 64 == 0:
            halted = tl.load(halt, volatile=True)
        value = _acquired(flag)
    if value < target:
        tl.store(given_up, 1)


@triton.jit
def copy_kernel(source, target, count, WORDS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)
