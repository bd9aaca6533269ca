"""The linears of a decode step of full-size models, as `gpu_linear.py` measures them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    name: str
    n: int
    k: int
    gated: bool = False
    norm: bool = False
    residual: bool = False
    bias: bool = False

    @property
    def width(self) -> int:
        return self.n * (2 if self.gated else 1)


@dataclass(frozen=True)
class Model:
    shapes: tuple[Shape, ...]
    heads: int
    groups: int
    context: int
    qk_norm: bool
    rows: tuple[int, ...]


MODELS = {
    "orpheus": Model(
        (
            Shape("qkv", 5120, 3072, norm=True),
            Shape("o", 3072, 3072, residual=True),
            Shape("gate_up", 8192, 3072, gated=True, norm=True),
            Shape("down", 3072, 8192, residual=True),
            Shape("head", 156940, 3072, norm=True),
        ),
        heads=24, groups=8, context=330, qk_norm=False, rows=(16, 64, 32, 8, 2, 4),
    ),
    "bagel": Model(
        (
            Shape("qkv", 4608, 3584, norm=True, bias=True),
            Shape("o", 3584, 3584, residual=True),
            Shape("gate_up", 18944, 3584, gated=True, norm=True),
            Shape("down", 3584, 18944, residual=True),
            Shape("head", 152064, 3584, norm=True),
        ),
        heads=28, groups=4, context=6000, qk_norm=True, rows=(1, 16, 8, 2, 32, 4),
    ),
    "qwen3-8b": Model(
        (
            Shape("qkv", 6144, 4096, norm=True),
            Shape("o", 4096, 4096, residual=True),
            Shape("gate_up", 12288, 4096, gated=True, norm=True),
            Shape("down", 4096, 12288, residual=True),
            Shape("head", 151936, 4096, norm=True),
        ),
        heads=32, groups=8, context=330, qk_norm=True, rows=(1, 16, 64, 32, 8, 2, 4),
    ),
    "qwen3-30b-a3b": Model(
        (
            Shape("qkv", 5120, 2048, norm=True),
            Shape("o", 2048, 4096, residual=True),
            Shape("head", 151936, 2048, norm=True),
        ),
        heads=32, groups=4, context=330, qk_norm=True, rows=(1, 16, 64, 32, 8, 2, 4),
    ),
    "qwen3-omni-talker": Model(
        (
            Shape("qkv", 2560, 1024, norm=True),
            Shape("o", 1024, 2048, residual=True),
            # The MLP that each row uses beside its experts.
            Shape("gate_up", 768, 1024, gated=True, norm=True),
            Shape("down", 1024, 768, residual=True),
            Shape("head", 3072, 1024, norm=True),
        ),
        heads=16, groups=2, context=330, qk_norm=True, rows=(1, 16, 32, 64, 8, 2, 4),
    ),
    "qwen3-omni-predictor": Model(
        (
            Shape("qkv", 4096, 1024, norm=True),
            Shape("o", 1024, 2048, residual=True),
            Shape("gate_up", 3072, 1024, gated=True, norm=True),
            Shape("down", 1024, 3072, residual=True),
            Shape("head", 2048, 1024, norm=True),
        ),
        heads=16, groups=8, context=16, qk_norm=True, rows=(1, 16, 32, 64, 2, 8, 4),
    ),
}  # fmt: skip
