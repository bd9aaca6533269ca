"""What lies in a checkpoint's folder, as its configs and the headers of its safetensors files tell it."""

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
"""Those that say whose weights these are."""
_CONVERT = (
    "import torch; from safetensors.torch import save_file; "
    "d = torch.load('{}', map_location='cpu', weights_only=True); "
    "parts = {{k: v for k, v in d.items() if isinstance(v, dict)}} or dict(model=d); "
    "[save_file({{n: t.clone() for n, t in p.items()}}, f'{{k}}.safetensors') for k, p in parts.items() "
    "if all(map(torch.is_tensor, p.values()))]"
)
"""One file, or a dictionary of several (V-JEPA 2-AC's encoder and predictor)."""
_PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Contents:
    folder: Path
    configs: Mapping[str, Mapping[str, Any]]
    """File -> what is in it."""
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict[str, Mapping[str, Tensor]])
    """Stem (`model`, `ema`) -> tensors by the names in the files, of all its shards."""
    pickles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.configs.get("config.json", {})


def read(folder: Path) -> Contents:
    """Raises NotFound for what is no folder or lacks shards, InvalidInput with the file's name for one that can't be
    read."""
    if not folder.is_dir():
        raise NotFound(
            f"`{folder}` is no folder; name the folder that holds the checkpoint's `config.json` and weights"
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
        f"they are read, and are not; take the safetensors files of the same model{_conversion(contents.pickles[0])}"
    )


def _conversion(name: str) -> str:
    """How to convert a file by hand. A shell runs what is shown, so a name that it could read as more is not in it."""
    if not _PLAIN.fullmatch(name):
        return ""
    return f', or convert those of somebody you trust, in their folder: python -c "{_CONVERT.format(name)}"'


def numbers(shape: Shape) -> int:
    return math.prod(shape)
