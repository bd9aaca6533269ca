"""A tiny vision encoder in the published layout, and the pictures from which the stored answers were made.

`make_seeing.py` gives them to `transformers`, the parity tests to ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.qwen3_omni.drawing import weights, write_folder
from walkgraph.models.qwen3_omni.parts import PREFIXES, VISION
from walkgraph.models.qwen3_omni.seeing.config import VISION_TINY
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder

ANSWERS = Path(__file__).parent / "seeing.npz"
KEPT = 7
"""Every so many rows of patches, and of a video's embeddings, are stored."""
PICTURES: Mapping[str, tuple[int, int]] = {
    "small": (30, 40),
    "whole cells": (64, 96),
    "halves": (80, 112),
    "tall": (333, 77),
    "wide": (20, 400),
    "a photo": (180, 240),
}
"""Height and width. A small picture is enlarged; sides of two and a half cells are rounded to two, of three and a half
to four."""
VIDEOS: Mapping[str, tuple[int, int, int]] = {"odd": (3, 90, 200), "even": (2, 370, 400)}
"""Frames, height and width."""
PUBLISHED: Mapping[str, Any] = {
    "model_type": "qwen3_omni_moe_vision_encoder",
    "depth": VISION_TINY.layers,
    "hidden_size": VISION_TINY.width,
    "intermediate_size": VISION_TINY.hidden,
    "num_heads": VISION_TINY.heads,
    "out_hidden_size": VISION_TINY.out,
    "num_position_embeddings": VISION_TINY.side**2,
    "deepstack_visual_indexes": list(VISION_TINY.deepstack),
    "patch_size": VISION_TINY.patch,
    "temporal_patch_size": VISION_TINY.frames,
    "spatial_merge_size": VISION_TINY.merge,
    "in_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
}
"""The section `thinker_config.vision_config`."""
CONFIG: Mapping[str, Any] = {"model_type": "qwen3_omni_moe", "thinker_config": {"vision_config": PUBLISHED}}


def levels(height: int, width: int, seed: int = 0) -> np.ndarray:
    """uint8 `[h, w, 3]`: waves with grain, and a hard edge."""
    dice = np.random.Generator(np.random.Philox(seed * 10**8 + height * 10**4 + width))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (5 + 3 * c) + seed) * np.cos(y / (7 + 2 * c)) for c in range(3)]
    grain = dice.normal(0, 12, (height, width, 3))
    made = 128 + 100 * np.stack(waves, -1) + grain
    made[height // 3 : height // 2, width // 4 : width // 2] = (250, 5, 128)
    return made.clip(0, 255).astype(np.uint8)


def frames(name: str) -> np.ndarray:
    """uint8 `[F, h, w, 3]`"""
    count, height, width = VIDEOS[name]
    return np.stack([levels(height, width, seed) for seed in range(count)])


def folder(root: Path) -> Path:
    return write_folder(root / "seeing", CONFIG, weights(lambda: VisionEncoder(VISION_TINY), PREFIXES[VISION]))
