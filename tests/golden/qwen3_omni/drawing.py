"""Weights of the tiny Qwen3-Omni parts whose answers are stored: numbers follow from names, so they are not kept."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

SEED = 20261128


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """float32, from the name alone: matrices keep the scale of what they read, no norm is a 1 that could be left
    out, and no bias is 0."""
    digest = hashlib.blake2b(f"{SEED}:{name}".encode(), digest_size=8).digest()
    numbers = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big"))).standard_normal(shape)
    drawn = torch.from_numpy(numbers.astype(np.float32))
    if len(shape) > 1:
        return drawn * (1.5 / np.sqrt(np.prod(shape[1:])))
    return drawn * 0.2 + (0.0 if name.endswith("bias") else 1.0)


def weights(build: Callable[[], nn.Module], prefix: str) -> dict[str, Tensor]:
    """The tensors of a part by their published names."""
    with torch.device("meta"):
        module = build()
    shapes = {f"{prefix}{name}": tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    return {name: weight(name, shape) for name, shape in shapes.items()}


def write_folder(folder: Path, config: Mapping[str, Any], state: Mapping[str, Tensor]) -> Path:
    """A folder in the published layout, with some of its parts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(dict(state), folder / "model.safetensors", metadata={"format": "pt"})
    return folder
