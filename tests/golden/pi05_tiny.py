"""A tiny pi0.5 in the public layouts, its cameras and prompts: all that the answers were made from.

`make_pi05.py` gives them to the published code, the parity tests to ours. Everything follows from names and seeds, so
that only answers are stored.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.models.pi05.config import Pi05Config, Widths, pi05_json

FILE = Path(__file__).parent / "pi05_tiny.npz"
SEED = 20250422
CONFIG = Pi05Config(
    vision=SiglipConfig(width=48, hidden=72, layers=2, heads=3, patch=8, side=3),
    prefix=Widths(width=48, hidden=96),
    expert=Widths(width=32, hidden=64),
    layers=3,
    heads=8,
    kv_heads=1,
    head_dim=16,
    vocab=300,
    action_width=6,
)
HORIZON, TEXT, STEPS = 5, 12, 10
"""Actions of a chunk; tokens of the padded prompt; flow steps."""
TIMES = (1.0, 0.6, 0.1)
CAMERAS = ("base", "left_wrist", "right_wrist")


class Asked(NamedTuple):
    lengths: tuple[int, ...]
    """Tokens of each row's prompt."""
    present: tuple[tuple[bool, bool, bool], ...]
    """The cameras that each row has."""


ASKED = {
    "three": Asked((TEXT, 7), ((True, True, True), (True, True, True))),
    "masked": Asked((9, 4), ((True, True, False), (True, False, True))),
    "one": Asked((5,), ((False, True, False),)),
}


def drawn(name: str, shape: Sequence[int]) -> Tensor:
    """float32 numbers of one tensor of the weights, by its public name. Nothing is 0 or 1 that could be left out."""
    generator = np.random.default_rng(int.from_bytes(hashlib.blake2b(f"{SEED}:{name}".encode()).digest()[:7]))
    numbers = torch.from_numpy(generator.standard_normal(tuple(shape), np.float32))
    if len(shape) > 1:
        # Sharp attention: an answer depends on single tokens.
        return numbers * (1.7 if "proj" in name else 1.0) / math.sqrt(math.prod(shape[1:]))
    return numbers * 0.3


def pixels(row: int, camera: int) -> Tensor:
    """float32 `[3, h, w]` in [-1, 1]."""
    side = CONFIG.picture
    generator = np.random.default_rng(1000 + 10 * row + camera)
    return torch.from_numpy(generator.uniform(-1, 1, (3, side, side)).astype(np.float32))


def ids(row: int, length: int) -> Tensor:
    """int64 `[length]`"""
    generator = np.random.default_rng(2000 + row)
    return torch.from_numpy(generator.integers(3, CONFIG.vocab, TEXT))[:length]


def noise(row: int) -> Tensor:
    """float32 `[t, a]`"""
    generator = np.random.default_rng(3000 + row)
    return torch.from_numpy(generator.standard_normal((HORIZON, CONFIG.action_width), np.float32))


@cache
def answers() -> dict[str, np.ndarray]:
    """The results of the published code."""
    with np.load(FILE) as file:
        return dict(file)


def weights() -> dict[str, Tensor]:
    """With the names and shapes of the published code's file."""
    lines = [line.split(" ") for line in answers()["shapes"].tolist()]
    return {name: drawn(name, [int(size) for size in shape]) for name, *shape in lines}


def write_folder(folder: Path, layout: str = "openpi", shards: int = 1) -> Path:
    """A checkpoint: `openpi`'s names or `lerobot`'s."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(pi05_json(CONFIG))
    state = {("model." if layout == "lerobot" else "") + name: tensor for name, tensor in weights().items()}
    if shards == 1:
        save_file(state, folder / "model.safetensors")
        return folder
    files = {name: f"model-{index % shards + 1:05}-of-{shards:05}.safetensors" for index, name in enumerate(state)}
    for file in set(files.values()):
        save_file({name: tensor for name, tensor in state.items() if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder
