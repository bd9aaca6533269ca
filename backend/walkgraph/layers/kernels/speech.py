"""`walkgraph.layers.sound.speech` on a GPU: one launch for each function; shape letters as there."""
# Triton has no types for launches and compile-time values.
# pyright: reportAssignmentType=false, reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from walkgraph.layers.kernels.gpu import can_overlap

_CODES = 256
"""Codes of a program."""


def spoken_rows(text: Tensor, frame: Tensor, heard: Tensor, rows: Tensor, words: Tensor, pad: int, eos: int) -> Tensor:
    batch, width = frame.shape
    made = frame.new_empty(batch, width)
    spoken_kernel[(batch,)](
        text, text.stride(0), frame, frame.stride(0), heard, rows, words, len(words), made, pad, eos, W=width,
        BLOCK=triton.next_power_of_2(width), PDL=can_overlap(), launch_pdl=can_overlap(),
    )  # fmt: skip
    return made


def bar_codes(logits: Tensor, begin: int, eos: int, frame: Tensor, least: Tensor) -> None:
    batch, codes = logits.shape
    bar_kernel[(batch, triton.cdiv(codes - begin, _CODES))](
        logits, logits.stride(0), codes, begin, eos, frame, least, BLOCK=_CODES, PDL=can_overlap(),
        launch_pdl=can_overlap(),
    )  # fmt: skip


def verdicts(
    token: Tensor, heard: Tensor, rows: Tensor, frame: Tensor, allowed: Tensor, eos: int, after: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, code = len(token), torch.empty_like(token)
    stop, derailed, finite = (torch.empty(batch, dtype=torch.bool, device=token.device) for _ in range(3))
    verdicts_kernel[(1,)](
        token, heard, rows, frame, allowed, code, stop, derailed, finite, batch, eos, after,
        BLOCK=triton.next_power_of_2(batch), PDL=can_overlap(), num_warps=1, launch_pdl=can_overlap(),
    )  # fmt: skip
    return code, stop, derailed, finite


def whole_frames(tokens: Tensor, first: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (batch, groups), width = tokens.shape, first.shape[1]
    codes, embedding = torch.empty_like(tokens), torch.empty_like(first)
    finite = torch.empty(batch, dtype=torch.bool, device=tokens.device)
    frames_kernel[(batch,)](
        tokens, first, table, codes, embedding, finite, len(table) // (groups - 1), C=groups, W=width,
        PLACES=triton.next_power_of_2(groups), BLOCK=triton.next_power_of_2(width), PDL=can_overlap(),
        launch_pdl=can_overlap(),
    )  # fmt: skip
    return codes, embedding, finite


def frame_rows(codes: Tensor, table: Tensor) -> Tensor:
    size, width = codes.shape[-1], table.shape[1]
    made = table.new_empty(*codes.shape[:-1], width)
    rows_kernel[(codes.numel() // size,)](
        codes.contiguous(), table, made, len(table) // size, C=size, W=width, BLOCK=triton.next_power_of_2(width),
        PDL=can_overlap(), launch_pdl=can_overlap(),
    )  # fmt: skip
    return made


@triton.jit(do_not_specialize=["text_stride", "frame_stride", "vocabulary", "pad", "eos"])
def spoken_kernel(
    text, text_stride, frame, frame_stride, heard, rows, words, vocabulary, made, pad, eos,
    W: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    word, at = tl.load(text + b * text_stride), heard + tl.load(rows + b).to(tl.int64) * 4
    count, ended, place = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    silent = word < 0
    # Every thread has read before one writes.
    tl.debug_barrier()
    tl.store(at, count + tl.where(silent, 0.0, 1.0))
    tl.store(at + 1, tl.where(silent, 1.0, ended))
    tl.store(at + 3, place)
    word = tl.minimum(tl.where(silent, tl.where(ended > 0, pad, eos), word), vocabulary - 1).to(tl.int64)
    inside = column < W
    value = tl.load(words + word * W + column, mask=inside).to(tl.float32)
    value += tl.load(frame + b * frame_stride + column, mask=inside).to(tl.float32)
    tl.store(made + b * W + column, value.to(made.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["stride", "codes", "begin", "eos"])
def bar_kernel(logits, stride, codes, begin, eos, frame, least, BLOCK: tl.constexpr, PDL: tl.constexpr):
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b = tl.program_id(0).to(tl.int64)
    code = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    barred = (code != eos) | (tl.load(frame + b) < tl.load(least + b))
    tl.store(logits + b * stride + code, float("-inf"), mask=(code < codes) & barred)


@triton.jit(do_not_specialize=["batch", "eos", "after"])
def verdicts_kernel(
    token, heard, rows, frame, allowed, code, stop, derailed, finite, batch, eos, after,
    BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b = tl.arange(0, BLOCK)
    there = b < batch
    chosen, most = tl.load(token + b, mask=there, other=0), tl.load(allowed + b, mask=there, other=0)
    at = heard + tl.load(rows + b, mask=there, other=0).to(tl.int64) * 4
    words = tl.load(at, mask=there, other=0.0).to(tl.int64)
    ended = tl.load(at + 1, mask=there, other=0.0) > 0
    late = tl.load(frame + b, mask=there, other=0) >= most * words + after
    lost = (most > 0) & ended & (words > 0) & late
    tl.store(code + b, tl.maximum(chosen, 0), mask=there)
    tl.store(stop + b, (chosen == eos) | lost | (words == 0), mask=there)
    tl.store(derailed + b, lost, mask=there)
    tl.store(finite + b, chosen >= 0, mask=there)


@triton.jit(do_not_specialize=["vocabulary"])
def frames_kernel(
    tokens, first, table, codes, embedding, finite, vocabulary,
    C: tl.constexpr, W: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b, column, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), tl.arange(0, PLACES)
    inside = column < W
    found = tl.load(tokens + b * C + place, mask=place < C, other=0)
    tl.store(codes + b * C + place, tl.maximum(found, 0), mask=place < C)
    tl.store(finite + b, tl.min(tl.where((place > 0) & (place < C), found, 0), 0) >= 0)
    total = tl.zeros([BLOCK], tl.float32)
    for group in tl.static_range(1, C):
        code = tl.maximum(tl.load(tokens + b * C + group), 0)
        row = (group - 1) * vocabulary.to(tl.int64) + code
        total += tl.load(table + row * W + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(first + b * W + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(embedding + b * W + column, total.to(embedding.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["vocabulary"])
def rows_kernel(
    codes, table, made, vocabulary, C: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
    b, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside, total = column < W, tl.zeros([BLOCK], tl.float32)
    for group in tl.static_range(C):
        row = group * vocabulary.to(tl.int64) + tl.load(codes + b * C + group)
        total += tl.load(table + row * W + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(made + b * W + column, (total / C).to(made.dtype.element_ty), mask=inside)
