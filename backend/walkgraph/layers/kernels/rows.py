"""`walkgraph.layers.rows` on a GPU: one program for the whole small batch."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather(
    index, live, counters, ints, floats, rows, wide, iteration, ints_out, floats_out, size, pad,
    INTS: tl.constexpr, FLOATS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b = tl.arange(0, BLOCK)
    inside = b < size
    asked = tl.load(index + b, mask=inside, other=0)
    row = tl.where(tl.load(live + asked, mask=inside, other=0) != 0, asked, pad)
    tl.store(rows + b, row.to(tl.int32), mask=inside)
    tl.store(wide + b, row, mask=inside)
    tl.store(iteration + b, tl.load(counters + row, mask=inside, other=0).to(tl.int64), mask=inside)
    for i in tl.static_range(INTS):
        tl.store(ints_out + i * size + b, tl.load(ints + row * INTS + i, mask=inside, other=0), mask=inside)
    for i in tl.static_range(FLOATS):
        tl.store(floats_out + i * size + b, tl.load(floats + row * FLOATS + i, mask=inside, other=0.0), mask=inside)


@triton.jit
def _settle(
    index, wide, iteration, live, counters, times, stopped, sound, out_stop, out_sound, grown, size, table,
    C: tl.constexpr, STOPS: tl.constexpr, SOUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    b = tl.arange(0, BLOCK)
    inside = b < size
    row = tl.load(wide + b, mask=inside, other=0)
    real = inside & (row != table - 1)
    for c in tl.static_range(C):
        at = counters + c * table + row
        tl.store(at, tl.load(at, mask=real, other=0) + tl.load(grown + c), mask=real)
    stop = (tl.load(stopped + b, mask=inside, other=0) != 0) if STOPS else (b < 0)
    good = (tl.load(sound + b, mask=inside, other=0) != 0) if SOUNDS else (b >= 0)
    tl.store(out_stop + b, stop, mask=inside)
    tl.store(out_sound + b, good, mask=inside)
    left = tl.load(iteration + b, mask=inside, other=0) + 1 < tl.load(times + row, mask=inside, other=0)
    more = real & left & (stop == 0) & good
    tl.store(live + tl.load(index + b, mask=inside, other=0), more, mask=inside)


def gather(
    index: Tensor, live: Tensor, counters: Tensor, times: Tensor, ints: Tensor, floats: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    size, on = index.shape[0], index.device
    rows = torch.empty(size, dtype=torch.int32, device=on)
    wide, iteration = torch.empty(2, size, dtype=torch.int64, device=on)
    ints_out = torch.empty(ints.shape[1], size, dtype=torch.int64, device=on)
    floats_out = torch.empty(floats.shape[1], size, dtype=torch.float32, device=on)
    _gather[(1,)](
        index, live, counters, ints, floats, rows, wide, iteration, ints_out, floats_out, size, live.shape[0] - 1,
        INTS=ints.shape[1], FLOATS=floats.shape[1], BLOCK=triton.next_power_of_2(size), num_warps=1,
    )  # fmt: skip
    return rows, wide, iteration, ints_out, floats_out


def settle(
    index: Tensor,
    wide: Tensor,
    iteration: Tensor,
    live: Tensor,
    counters: Tensor,
    times: Tensor,
    grown: Tensor,
    stopped: Tensor | None,
    sound: Tensor | None,
    out: tuple[Tensor, Tensor],
) -> None:
    """`grown` int32 `[C]`."""
    _settle[(1,)](
        index, wide, iteration, live, counters, times, stopped, sound, out[0], out[1], grown,
        index.shape[0], live.shape[0], C=counters.shape[0], STOPS=stopped is not None, SOUNDS=sound is not None,
        BLOCK=triton.next_power_of_2(index.shape[0]), num_warps=1,
    )  # fmt: skip
