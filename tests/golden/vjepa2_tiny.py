"""A tiny V-JEPA 2-AC in the public layout, and the requests from which the stored answers were made.

`make_vjepa2.py` gives them to the published code, the parity tests to ours. Everything follows from names and seeds, so
that only answers are stored.
"""

import hashlib
import math
from functools import cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from walkgraph.models.vjepa2.config import TransformerConfig, Vjepa2Config, vjepa2_json
from walkgraph.models.vjepa2.model import Vjepa2

SEED = 20250611
CONFIG = Vjepa2Config(
    encoder=TransformerConfig(width=96, hidden=160, layers=3, heads=2),
    predictor=TransformerConfig(width=80, hidden=120, layers=3, heads=4),
    patch=8,
    side=4,
)
"""Heads of 48 numbers, all of which turn, and of 20, of which two don't."""
FRAMES, HORIZON = 3, 4
ROUNDS, SAMPLES, TOP, STEPS = 3, 12, 4, 2
MAX_NORM, MOMENTUM_MEAN, MOMENTUM_STD = 0.05, 0.25, 0.35


def drawn(name: str, shape: tuple[int, ...], scale: float = 1.0) -> Tensor:
    """float32 normal numbers that follow from the name alone."""
    digest = hashlib.blake2b(f"{SEED}:{name}".encode(), digest_size=8).digest()
    numbers = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big"))).standard_normal(shape)
    return torch.from_numpy(numbers.astype(np.float32)) * scale


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """Matrices keep the scale of what they multiply; nothing is 0 or 1."""
    if len(shape) > 1:
        return drawn(name, shape, 1 / math.sqrt(math.prod(shape[1:])))
    return drawn(name, shape, 0.1) + (0.0 if name.endswith("bias") else 1.0)


def weights() -> dict[str, Tensor]:
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in Vjepa2(CONFIG).state_dict().items()}
    return {name: weight(name, shape) for name, shape in shapes.items()}


def pictures() -> Tensor:
    """Two, float32 `[2, 3, 32, 32]` in [-1, 1]."""
    return drawn("pictures", (2, 3, CONFIG.pixels, CONFIG.pixels), 0.5).clamp(-1, 1)


SHOTS = {
    "wide": (160, 90),
    "narrow": (64, 48),
    "portrait": (48, 64),
    "odd": (101, 38),
    "nearly": (37, 35),
    "small": (7, 5),
    "line": (9, 1),
    "square": (45, 45),
}
"""Width and height of pictures as a camera gives them, by name. None has sides that differ by one pixel: the published
transform draws at random which one it leaves out."""
CAMERAS = {"hd": (1280, 720), "full": (1920, 1080), "vga": (640, 480), "upright": (270, 481), "tiny": (11, 6)}
"""Likewise, for the published side of a picture."""
PUBLISHED_SIDE, TOLD = 256, 19
"""Only every n-th row and column of its pixels has stored answers."""


def shot(width: int, height: int) -> np.ndarray:
    """uint8 `[height, width, 3]`: noise over slopes, so that a resize of another kind or place shows."""
    y, x = np.mgrid[0:height, 0:width]
    slopes = np.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (width + height)], -1)
    noise = np.random.default_rng(width * 10_000 + height).integers(-90, 91, (height, width, 3))
    return np.clip(slopes + noise, 0, 255).astype(np.uint8)


def kept() -> Tensor:
    """Patches of each picture that a masked encoder sees, not in their order."""
    return torch.tensor([[0, 3, 15, 7, 8, 2], [5, 4, 14, 1, 9, 10]])


def frames() -> Tensor:
    return drawn("frames", (1, FRAMES, CONFIG.patches, CONFIG.encoder.width))


def actions() -> Tensor:
    """`[HORIZON, 7]`"""
    return drawn("actions", (HORIZON, 7), 0.2)


def poses() -> Tensor:
    """`[HORIZON, 7]`; the first one begins the rollout. Its grip comes to its bound."""
    return drawn("poses", (HORIZON, 7), 0.8) + torch.tensor([0, 0, 0, 0, 0, 0, 0.5])


def noise() -> Tensor:
    """Shifts and grip of every round, step and sample."""
    return drawn("noise", (ROUNDS, STEPS, SAMPLES, 4))


def write_folder(root: Path) -> Path:
    """As the public checkpoint's parts, one file each, with names as a training run gives them."""
    folder = root / "vjepa2-tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(vjepa2_json(CONFIG))
    whole = weights()
    for part, wrapper in (("encoder", "module.backbone."), ("predictor", "module.")):
        mine = {n.removeprefix(f"{part}."): t for n, t in whole.items() if n.startswith(f"{part}.")}
        save_file({wrapper + name: tensor for name, tensor in mine.items()}, folder / f"{part}.safetensors")
    return folder


@cache
def answers() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("vjepa2_tiny.npz")) as stored:
        return dict(stored)
