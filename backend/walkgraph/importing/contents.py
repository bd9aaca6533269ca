"""What lies in a checkpoint's folder, as its configs and the headers of its safetensors files tell it."""

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.graph.guard import read_json

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_MAX_HEADER = 100 * 2**20
_MAX_CONFIG = 16 * 2**20
_CONVERT = (
    "import torch; from safetensors.torch import save_file; "
    "d = torch.load('{}', map_location='cpu', weights_only=True); "
    "parts = {{k: v for k, v in d.items() if isinstance(v, dict)}} or dict(model=d); "
    "[save_file({{n: t.clone() for n, t in p.items()}}, f'{{k}}.safetensors') for k, p in parts.items() "
    "if all(map(torch.is_tensor, p.values()))]"
)
"""One file, or a dictionary of several (V-JEPA 2-AC's encoder and predictor)."""
_SHARD = re.compile(r"-\d+(-of-\d+)?$")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    shape: Shape
    dtype: str
    """As the file calls it: `BF16`."""
    bytes: int


@dataclass(frozen=True)
class Contents:
    folder: Path
    configs: Mapping[str, Mapping[str, Any]]
    """File -> what is in it, of the JSON files beside the weights that hold an object."""
    weights: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict[str, Mapping[str, Tensor]])
    """Stem (`model`, `ema`) -> tensors by the names in the files, of all its shards."""
    pickles: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def config(self) -> Mapping[str, Any]:
        return self.configs.get("config.json", {})

    def has(self, file: str) -> bool:
        return (self.folder / file).is_file()

    @property
    def tensors(self) -> Iterator[Tensor]:
        for found in self.weights.values():
            yield from found.values()


def read(folder: Path) -> Contents:
    """Raises NotFound for what is no folder, InvalidInput with the file's name for one that can't be read."""
    if not folder.is_dir():
        raise NotFound(
            f"`{folder}` is no folder; name the folder that holds the checkpoint's `config.json` and weights"
        )
    folder = folder.resolve()
    entries = sorted(path for path in folder.iterdir() if path.is_file())
    pickles = tuple(path.name for path in entries if path.suffix in PICKLES)
    configs = {path.name: found for path in entries if path.suffix == ".json" if (found := _config(path)) is not None}
    return Contents(folder, configs, _weights(folder, entries, configs), pickles)


def refuse_pickles(contents: Contents) -> None:
    """Raises Refused for a folder whose weights are pickles, which run code when they are read."""
    if contents.weights or not contents.pickles:
        return
    raise Refused(
        f"the weights in `{contents.name}` are pickles ({', '.join(contents.pickles[:3])}), which can run code when "
        "they are read, and are not; take the safetensors files of the same model, or convert those of somebody you "
        f'trust, in their folder: python -c "{_CONVERT.format(contents.pickles[0])}"'
    )


def _config(path: Path) -> Mapping[str, Any] | None:
    """An object; None for other JSON, and for what is no config by its size."""
    if path.stat().st_size > _MAX_CONFIG:
        return None
    try:
        found = read_json(path.read_bytes())
    except InvalidInput as error:
        raise InvalidInput(f"`{path.name}` is not valid JSON: {error}") from None
    except OSError:
        raise InvalidInput(f"`{path.name}` can't be read; check its permissions") from None
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else None


def _weights(
    folder: Path, entries: list[Path], configs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Tensor]]:
    """As the loader finds them: a stem's one file, or the shards of its index."""
    single = {path.stem: path for path in entries if path.suffix == ".safetensors" and not _SHARD.search(path.stem)}
    found: dict[str, Mapping[str, Tensor]] = {stem: _header(path) for stem, path in single.items()}
    for name, index in configs.items():
        stem = name.removesuffix(".safetensors.index.json")
        if stem != name and stem not in found:
            found[stem] = _shards(folder, name, index)
    return found


def _shards(folder: Path, name: str, index: Mapping[str, Any]) -> dict[str, Tensor]:
    listed: Any = index.get("weight_map")
    files = sorted({str(file) for file in cast(Mapping[str, Any], listed).values()}) if isinstance(listed, dict) else []
    if any(Path(file).name != file for file in files):
        raise InvalidInput(f"`{name}` names a shard outside its folder")
    missing = [file for file in files if not (folder / file).is_file()]
    if missing or not files:
        raise NotFound(f"`{name}` names shards that are not there: {', '.join(missing) or 'none at all'}; fetch them")
    return {tensor: found for file in files for tensor, found in _header(folder / file).items()}


def _header(path: Path) -> dict[str, Tensor]:
    """Of one file. Raises InvalidInput for what is no safetensors file, or one that was cut off."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(8)
            (length,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise InvalidInput(f"`{path.name}` is no safetensors file, or is not whole; fetch it again")
            header: Any = json.loads(stream.read(length))
        found = {name: _tensor(told) for name, told in header.items() if name != "__metadata__"}
        end = max((told["data_offsets"][1] for name, told in header.items() if name != "__metadata__"), default=0)
    except OSError:
        raise InvalidInput(f"`{path.name}` can't be read; check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise InvalidInput(f"the header of `{path.name}` is broken; fetch it again") from None
    if 8 + length + end > size:
        raise InvalidInput(f"`{path.name}` ends too early ({size} of {8 + length + end} bytes); fetch it again")
    return found


def _tensor(told: Mapping[str, Any]) -> Tensor:
    shape = tuple(int(side) for side in told["shape"])
    start, end = told["data_offsets"]
    if any(side < 0 for side in shape) or not 0 <= start <= end:
        raise ValueError
    return Tensor(shape, str(told["dtype"]), int(end) - int(start))


def numbers(shape: Shape) -> int:
    return math.prod(shape)
