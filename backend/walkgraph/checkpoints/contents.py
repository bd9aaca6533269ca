"""The contents of a checkpoint's folder, from its configs and the headers of its safetensors files."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from walkgraph.checkpoints.fields import read_object
from walkgraph.checkpoints.files import Shape, Tensor, stems, tensors
from walkgraph.errors import NotFound, Refused

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
CONFIGS = ("config.json", "llm_config.json", "vit_config.json")
"""Configs that identify the model."""
_CONVERT = (
    "import torch; from safetensors.torch import save_file; "
    "d = torch.load('{}', map_location='cpu', weights_only=True); "
    "parts = {{k: v for k, v in d.items() if isinstance(v, dict)}} or dict(model=d); "
    "[save_file({{n: t.clone() for n, t in p.items()}}, f'{{k}}.safetensors') for k, p in parts.items() "
    "if all(map(torch.is_tensor, p.values()))]"
)
"""Converts one file, or a dictionary of several (V-JEPA 2-AC's encoder and predictor)."""
_PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Contents:
    folder: Path
    configs: Mapping[str, Mapping[str, Any]]
    """File -> its content."""
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict[str, Mapping[str, Tensor]])
    """Stem (`model`, `ema`) -> the tensors of all its shards, by their names in the files."""
    pickles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.configs.get("config.json", {})


def read(folder: Path) -> Contents:
    """Read a folder's metadata. Raises NotFound for a missing folder or missing shards, InvalidInput with the file's
    name for an unreadable file."""
    if not folder.is_dir():
        raise NotFound(
            f"`{folder}` is not a folder; name the folder that holds the checkpoint's `config.json` and weights"
        )
    folder = folder.resolve()
    pickles = sorted(path.name for path in folder.iterdir() if path.is_file() and path.suffix in PICKLES)
    configs = {name: read_object(folder / name) for name in CONFIGS if (folder / name).is_file()}
    return Contents(folder, configs, {stem: tensors(folder, stem) for stem in stems(folder)}, tuple(pickles))


def refuse_pickles(contents: Contents) -> None:
    """Raises Refused for a folder whose weights are pickles, which run code when they are read."""
    if contents.weights or not contents.pickles:
        return
    raise Refused(
        f"the weights in `{contents.name}` are pickles ({', '.join(contents.pickles[:3])}), which can run code when "
        f"they are read, so they are refused; use the model's safetensors files{_conversion(contents.pickles[0])}"
    )


def _conversion(name: str) -> str:
    """How to convert a file by hand. A shell runs this command, so it is left out for names that a shell could
    interpret."""
    if not _PLAIN.fullmatch(name):
        return ""
    return f', or convert those of somebody you trust, in their folder: python -c "{_CONVERT.format(name)}"'


def numbers(shape: Shape) -> int:
    return math.prod(shape)
