"""The launches of every kernel that a GPU without a special form makes, at sizes of published models. Tensors are
empty: nothing reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from walkgraph.abi.step import PagedRows
from walkgraph.checkpoints.language import ExpertSizes
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.attention.paged_rows import StepArguments
from walkgraph.layers.attention.tiles import TILE_ROWS, Tiles, height_of
from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead
from walkgraph.layers.kernels import (
    append,
    block_heads,
    channels,
    depthwise,
    experts,
    few_attention,
    flow_end,
    fp8,
    frames,
    gate_up,
    gated,
    group_norm,
    int4,
    layer_norm,
    linear,
    linear_config,
    modulated,
    modulated_config,
    modulated_rows,
    narrow_attention,
    norm,
    packed_attention,
    paged_blocks,
    pixels,
    poses,
    rows,
    sampling,
    sampling_totals,
    shared_gate,
    snake,
    speech,
    step_attention,
    window_attention,
)
from walkgraph.layers.kernels.gpu import Gpu
from walkgraph.layers.moe.packed_experts import PackedExperts
from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum
from walkgraph.layers.pictures.frames import ConditionMaps, FrameAngles
from walkgraph.layers.sampling_params import SamplingParams

PAGE = 16
HEADS = {"orpheus": (24, 8, 128), "qwen3": (32, 8, 128), "bagel": (28, 4, 128), "pi05": (8, 1, 256)}
"""Query heads, key heads, width."""


class Case(NamedTuple):
    run: Callable[[], object]
    serves: Callable[[Gpu], bool] = lambda gpu: True
    """True for GPUs on which the layers take these kernels; on others they compute in torch."""


def _hopper(gpu: Gpu) -> bool:
    return gpu.capability[0] == 9


def _bf16(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)


def _floats(*shape: int) -> Tensor:
    return torch.empty(shape)


def _ints(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def _rows(batch: int, pages: int) -> PagedRows:
    return PagedRows(_ints(batch), _ints(batch, pages), _ints(batch), _ints(batch))


def _caches(pages: int, groups: int, width: int) -> tuple[Tensor, Tensor]:
    return _bf16(pages * PAGE, groups, width), _bf16(pages * PAGE, groups, width)


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def _one_token(model: str) -> None:
    heads, groups, width = HEADS[model]
    norms = (_bf16(width), _bf16(width)) if model != "orpheus" else (None, None)
    for batch in (1, 8, 16, 64):
        qkv, pages = _bf16(batch, (heads + 2 * groups) * width), _rows(batch, 256)
        step = StepArguments(qkv, *_caches(512, groups, width), pages, _floats(width // 2), heads, *norms)
        step_attention.launch(step)


def _few(model: str) -> None:
    heads, groups, width = HEADS[model]
    numbers = _ints(1, dtype=torch.int64), _ints(9, 4, dtype=torch.int64), _ints(64, dtype=torch.int64)
    for count, height in ((128, TILE_ROWS), (4096, height_of(heads // groups))):
        few_attention.launch(_bf16(count, heads, width), *_caches(64, groups, width), Tiles(*numbers, height), PAGE)


def _narrow() -> None:
    heads, groups, width = HEADS["pi05"]
    for batch in (1, 2, 4, 8, 64):
        q, bounds = _bf16(batch * 50, heads, width), _ints(batch, 2)
        keys = _bf16(1100 * batch, groups, width)
        narrow_attention.narrow_attention(q, keys, keys, bounds)


def _blocks() -> None:
    heads, width, tokens = 16, 64, 258
    for batch in (1, 8, 64):
        turn, (k, v), pages = _floats(batch, tokens, width), _caches(2048, heads, width), _rows(batch, 512)
        qkv = _bf16(batch * tokens, 3 * heads * width)
        q = paged_blocks.place(qkv, turn, turn, k, v, pages, tokens, PAGE)
        paged_blocks.attend(q, k, v, pages, tokens, PAGE)


def _heads_of_blocks() -> None:
    heads, groups, width = HEADS["bagel"]
    for each in (False, True):
        tokens = 4096
        turn = _floats(2, tokens, width // 2) if each else _floats(2, width // 2)
        slots = _ints(2 * tokens, dtype=torch.int64)
        to = HeadTargets(_bf16(2 * tokens, heads, width), *_caches(1024, groups, width), slots)
        norms = None if each else HeadNorms(_bf16(width), _bf16(width), 1e-6)
        qkv = _bf16(2 * tokens, (heads + 2 * groups) * width)
        block_heads.place(qkv, RotaryTable(turn, turn), norms, to, 0)
    block_heads.turns(_ints(2, dtype=torch.int64), 50, _floats(width // 2))


def _window() -> None:
    pasts = _bf16(4, 8, 2, 71, 16, 64)
    rows, start = _ints(4, dtype=torch.int64), _ints(4, dtype=torch.int64)
    window_attention.window_attention(_bf16(4 * 25, 48 * 64), pasts[:, 1], rows, start, _floats(32), 25, 16)


# ── linears ──────────────────────────────────────────────────────────────────────────────────────


def _linears() -> None:
    for n, k, gates in ((5120, 3072, False), (3072, 8192, False), (8192, 3072, True)):
        for count, cut in linear_config.TABLE[n, k, gates].items():
            weight = _bf16(n * (2 if gates else 1), k)
            residual = None if gates else _bf16(count, n)
            linear.stream_linear(cut, _bf16(count, k), weight, norm=_bf16(k), gated=gates, residual=residual)


def _four_bits() -> None:
    for n, k, gates in ((5120, 3072, False), (3072, 8192, False), (18944, 3584, True)):
        numbers, scales = torch.empty(n * (1 + gates), k // 2, dtype=torch.uint8), _bf16(n * (1 + gates), k // 128)
        for count in (1, 32, 64, 65, 4096):
            residual = None if gates else _bf16(count, n)
            int4.multiply(_bf16(count, k), numbers, scales, norm=_bf16(k), gated=gates, residual=residual)


def _eight_bits() -> None:
    fp8.norm_fp8(_bf16(4096, 3584), _bf16(3584), 1e-6)
    fp8.rows_fp8(_bf16(2, 4096, 3584))
    fp8.gated_fp8(_bf16(4096, 2 * 18944))


def _experts(eight: bool) -> None:
    count, width, hidden = 128, 2048, 768
    kind = torch.float8_e4m3fn if eight else torch.bfloat16
    gate_up, down = (torch.empty(shape, dtype=kind) for shape in ((count, 2 * hidden, width), (count, width, hidden)))
    scales = (_floats(count, 2 * hidden), _floats(count, width)) if eight else ()
    packed, sizes = (
        PackedExperts(gate_up, down, *scales),
        ExpertSizes(experts=count, chosen=8, hidden=hidden, renormed=True),
    )
    for batch in (1, 9, 64):
        x = _bf16(batch, width)
        experts.sparse_step(x, _floats(batch, count), packed, sizes, _bf16(width), 1e-6, residual=x)


def _modulated() -> None:
    for case, cuts in modulated_config.TABLE.items():
        for count, cut in cuts.items():
            _modulated_by(cut, count, *case)


def _modulated_by(cut: modulated_config.Cut, count: int, height: int, depth: int, half: int) -> None:
    """`half`: as in `Case` of the table; the width of half a head, or of a gate."""
    squares, table, weight = _floats(32, count), _bf16(1, max(height, depth)), _bf16(height, depth)
    if not half:
        gate = table[:, :height]
        modulated.added(cut, _bf16(count, height), _bf16(count, depth), weight, gate, gate)
    elif half == height // 2:
        modulated.gated(cut, _bf16(count, depth), squares, weight, table[:, :height], 1e-6)
    else:
        turn, slots = _floats(1, half), _ints(count, dtype=torch.int64)
        to = HeadTargets(_bf16(count, 8, 2 * half), *_caches(64, 1, 2 * half), slots)
        turns = RotaryTable(turn, turn)
        modulated.placed(cut, _bf16(count, depth), squares, weight, table[:, :height], 1e-6, turns, to)


# ── norms, activations, pictures, sound ──────────────────────────────────────────────────────────


def _norms() -> None:
    norm.wide_rms_norm(_bf16(4096, 3584), _bf16(3584), 1e-6)
    for count in (196, 8192):
        layer_norm.norm_rows(_bf16(count, 1152), _bf16(count, 1152), _bf16(1152), _bf16(1152), 1e-6)
        layer_norm.shifted_rows(_bf16(count, 1408), _bf16(1408), _bf16(1408), _bf16(1408), 1e-6)
        layer_norm.sum_rows(_bf16(count, 1408), 64)


def _gates() -> None:
    for gelu in (False, True):
        gated.gated_rows(_bf16(4096, 2 * 18944), gelu=gelu)
    shared_gate.gated_rows(_bf16(16, 1024), _bf16(16, 1024), _bf16(1, 1024), _bf16(1024), 1e-6)


def _picture(dtype: torch.dtype) -> None:
    for size in (64, 1024):
        held = torch.empty(1, 256, size, size, dtype=dtype, memory_format=torch.channels_last)
        weights = GroupNormWeights(32, _floats(256).to(dtype), _floats(256).to(dtype), 1e-6)
        for add in (None, held):
            group_norm.add_norm(PictureSum(held, weights.bias, add), weights, silu=True, keep=True)
    group_norm.added(PictureSum(held, weights.bias, held), pad=True)


def _pixels() -> None:
    pixels.sum_taps(_bf16(27, 64 * 64), _floats(3), (1, 64, 64))
    pixels.softmax(_floats(64, 4096), 0.06, torch.bfloat16)


def _packed_attention() -> None:
    q, k, v = _bf16(64, 3 * 20 * 64).unflatten(1, (3, 20, 64)).unbind(1)
    packed_attention.packed_attention(q, k, v, _ints(9), 104)


def _speech() -> None:
    """A talker's frames, and a vocoder's."""
    codes, table, frame = _ints(4, dtype=torch.int64), _bf16(15 * 2048, 1024), _bf16(4, 1024)
    heard, at = _floats(9, 4), _ints(4)
    speech.spoken_rows(codes, frame, heard, at, table, 1, 2)
    speech.bar_codes(_bf16(4, 3072), 2048, 2150, codes, codes)
    speech.verdicts(codes, heard, at, codes, codes, 2150, 64)
    speech.whole_frames(_ints(4, 16, dtype=torch.int64), frame, table)
    speech.frame_rows(_ints(4, 25, 16, dtype=torch.int64), _bf16(16 * 2048, 1024))


def _snakes() -> None:
    x, alpha = _bf16(4, 512, 4096), _bf16(512)
    snake.snake(x, alpha, x, alpha, _bf16(4, 4096), keep=True)
    snake.place_noise(_ints(4, dtype=torch.int64), 1, _ints(4, dtype=torch.int64), 4096)
    snake.snake_beta(_bf16(4, 4096, 768), _bf16(768), _bf16(768), _bf16(768), _bf16(4, 4096, 768))


def _depthwise() -> None:
    tail = _bf16(4, 6 * 1024)
    taps, one = _bf16(1024, 7), _bf16(1024)
    depthwise.depthwise_norm(_bf16(4, 25, 1024), one, one, tail, tail, taps, one, nn.LayerNorm(1024).bfloat16())


def _flow_end() -> None:
    table = _floats(8, 3 * 1024)
    head = VelocityHead(table[:, 1024:2048], table[:, 2048:], 1e-6, _floats(32, 1024), _floats(32))
    flow_end.launch(_bf16(8 * 50, 1024), head, _floats(8, 50, 32), FlowInterval(_floats(8), _floats(8)))


def _rows_enter() -> None:
    x, scale = _bf16(50, 1024), _bf16(1, 1024)
    modulated_rows.weigh(x, scale)
    modulated_rows.modulate(x, scale, scale, 1e-6)
    modulated_rows.enter(_floats(50, 32), _floats(1024, 32), _floats(1024), scale, torch.bfloat16)


def _frames() -> None:
    maps, angles = ConditionMaps(_floats(2, 7, 1024), _floats(2, 1024)), FrameAngles(_floats(64), _floats(258, 64))
    frames.enter(_bf16(256, 1024), _floats(2, 1, 7), maps, angles, _ints(1), _ints(4))


def _poses() -> None:
    poses.move(_floats(8, 400, 7), _floats(8, 400, 7), 1.0)


# ── a step's tables, sampling ────────────────────────────────────────────────────────────────────


def _tables() -> None:
    wide, live = _ints(32, dtype=torch.int64), torch.zeros(33, dtype=torch.bool)
    counts, times = _ints(2, 33), _ints(33)
    rows.gather(wide, live, counts[0], times, _ints(33, 3, dtype=torch.int64), _floats(33, 7))
    flags = torch.zeros(32, dtype=torch.bool), torch.zeros(32, dtype=torch.bool)
    rows.settle(wide, wide, wide, live, counts, times, _ints(2), *flags, flags)
    k = _bf16(256, 8, 128)
    append.append(k, k, _ints(256, dtype=torch.int64), k, k, _ints(256, dtype=torch.int64))


def _channels() -> None:
    links, row, one = _ints(8, 12, dtype=torch.int64), _ints(1), _ints(1, dtype=torch.int64)
    value, came = _bf16(1, 64, 64, 64), torch.zeros(1, dtype=torch.bool)
    channels.send(value, links, row, 2, one)
    channels.receive(links, row, 2, one, 1, value, value, came, 5.0)


def _sampling() -> None:
    for count, vocabulary in ((1, 156940), (64, 156940), (16, 2048)):
        logits, of_row = _bf16(count, vocabulary), _floats(count)
        seed, rows_ = _ints(count, dtype=torch.int64), _ints(count)
        counts = _ints(count, vocabulary, dtype=torch.int16)
        for used in (True, False):
            more = {"repetition": of_row, "presence": of_row, "frequency": of_row} if used else {}
            less = {"top_k": seed, "top_p": of_row, "min_p": of_row} if used else {}
            params = SamplingParams(seed, seed, temperature=of_row, **more, **less)
            sampling.sample(logits, params, counts, rows_)
        sampling.count(counts, rows_, seed)
        sampling_totals.totals(logits, seed)


CASES: Mapping[str, Case] = {
    **{
        f"one token, {model}": Case(lambda model=model: _one_token(model))
        for model in ("orpheus", "qwen3", "bagel", "pi05")
    },
    **{f"few rows, {model}": Case(lambda model=model: _few(model)) for model in ("orpheus", "bagel")},
    "narrow blocks": Case(_narrow),
    "blocks in pages": Case(_blocks),
    "heads of blocks": Case(_heads_of_blocks),
    "sliding windows": Case(_window, _hopper),
    "linears": Case(_linears, _hopper),
    "four bits": Case(_four_bits),
    "eight bits": Case(_eight_bits, lambda gpu: gpu.capability >= (9, 0)),
    "gate and up": Case(lambda: gate_up.gate_up(_bf16(4096, 3584), _bf16(2 * 18944, 3584), 132), _hopper),
    "experts": Case(lambda: _experts(eight=False), lambda gpu: gpu.capability[0] in (9, 10)),
    "experts in eight bits": Case(lambda: _experts(eight=True), lambda gpu: gpu.capability[0] in (9, 10)),
    "modulated": Case(_modulated, _hopper),
    "modulated rows": Case(_rows_enter, _hopper),
    "norms": Case(_norms),
    "gates": Case(_gates),
    "pictures": Case(lambda: _picture(torch.bfloat16)),
    "exact pictures": Case(lambda: _picture(torch.float32)),
    "pixels": Case(_pixels),
    "packed blocks": Case(_packed_attention),
    "snakes": Case(_snakes),
    "speech": Case(_speech),
    "depthwise": Case(_depthwise),
    "end of a flow": Case(_flow_end),
    "frames": Case(_frames),
    "poses": Case(_poses),
    "tables": Case(_tables),
    "channels": Case(_channels),
    "sampling": Case(_sampling),
}
