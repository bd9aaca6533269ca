"""The safetensors files of a folder, by their headers: which files belong together, and which tensors they hold.

A *stem* (`model`, `ema`) is one file, or the shards `STEM-00001-of-00002.safetensors` and so on: those named by an
index or, without an index, all of them.
"""

import json
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from walkgraph.checkpoints.fields import open_file, read_object
from walkgraph.errors import InvalidInput, NotFound

Shape = tuple[int, ...]
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Types whose numbers stand for themselves. Fewer bits, or integers, are codes that need a scale."""
TOKENIZER = "tokenizer.json"
TOKENIZER_PARTS = ("vocab.json", "merges.txt", "tokenizer_config.json")
"""A tokenizer in several files, as Qwen2 publishes it."""
_SUFFIX = ".safetensors"
_INDEX = ".safetensors.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d+)-of-(?P<count>\d+)")
_MAX_HEADER = 16 * 2**20
_MAX_TENSORS = 2**18
"""The most files of one stem. The largest published models have 100,000."""
_MAX_SIDES = 16
_MAX_NAME = 512
_MAX_FILE_NAME = 255
"""Bytes that a file system allows."""
_BYTES = {
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 8),
}
"""Type -> bytes of a number."""
_LISTED = 5


@dataclass(frozen=True)
class Tensor:
    shape: Shape
    dtype: str
    """The file's name for it: `BF16`."""
    bytes: int


def stems(folder: Path) -> list[str]:
    """All stems with a file, shards or an index here; a file named by an index is a shard. Raises InvalidInput for an
    invalid index."""
    paths = [path for path in folder.iterdir() if path.is_file()]
    indices = [path for path in paths if path.name.endswith(_INDEX)]
    named = {file for index in indices for file in _weight_map(index).values()}
    found = {index.name.removesuffix(_INDEX) for index in indices}
    for path in paths:
        if path.suffix == _SUFFIX and path.name not in named:
            found.add(shard["stem"] if (shard := _SHARD.fullmatch(path.stem)) else path.stem)
    return sorted(found)


def files(folder: Path, stem: str) -> list[Path]:
    """The files of one stem. Raises NotFound for missing files, InvalidInput for shards that can't belong to one
    model."""
    single, index = folder / f"{stem}{_SUFFIX}", folder / f"{stem}{_INDEX}"
    if single.is_file():
        return [single]
    if index.is_file():
        return _indexed(index)
    return _counted(folder, stem)


def tensors(folder: Path, stem: str) -> dict[str, Tensor]:
    """The tensors of all files of a stem, by their names there. Raises as `files` does, and InvalidInput for a tensor
    in two shards, or one that the index names and its shard lacks."""
    found: dict[str, Tensor] = {}
    where: dict[str, Path] = {}
    for path in files(folder, stem):
        for name, tensor in header(path).items():
            if name in where:
                raise InvalidInput(f"`{where[name].name}` and `{path.name}` both hold the tensor `{name}`; keep one")
            found[name], where[name] = tensor, path
        if len(found) > _MAX_TENSORS:
            raise InvalidInput(f"`{stem}` in `{folder.name}` has more than {_MAX_TENSORS} tensors; no network has them")
    index = folder / f"{stem}{_INDEX}"
    if index.is_file() and not (folder / f"{stem}{_SUFFIX}").is_file():
        for name, file in _weight_map(index).items():
            if name not in where or where[name].name != file:
                raise InvalidInput(
                    f"`{index.name}` says that `{name}` is in `{file}`, which lacks it; fetch both again"
                )
    return found


def header(path: Path) -> dict[str, Tensor]:
    """The tensors of one file, from its header. Raises InvalidInput for a file that isn't safetensors, or is
    truncated."""
    try:
        with open_file(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(8)
            (length,) = struct.unpack("<Q", start) if len(start) == 8 else (0,)
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                raise InvalidInput(f"`{path.name}` is not a safetensors file, or is incomplete; fetch it again")
            declared: Any = json.loads(stream.read(length))
        entries = {name: entry for name, entry in declared.items() if name != "__metadata__"}
        found = {_tensor_name(name): _tensor(entry) for name, entry in entries.items()}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except OSError:
        raise InvalidInput(f"`{path.name}` can't be read; check its permissions") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise InvalidInput(f"the header of `{path.name}` is broken; fetch it again") from None
    if 8 + length + end > size:
        raise InvalidInput(f"`{path.name}` ends too early ({size} of {8 + length + end} bytes); fetch it again")
    return found


def coded(name: str, dtype: str, names: Iterable[str] = ()) -> str | None:
    """Why a tensor's numbers can't be used as they are, in a sentence; None if they can. `names`: all tensors beside
    it."""
    if dtype in FLOATS:
        return None
    there = [other for other in names if other != name and other.startswith(name) and "scale" in other]
    scale = f"its scale (`{there[0]}`) isn't read" if there else f"no scale of it (`{name}_scale`) is there"
    return f"`{name}` holds {dtype} numbers, which need a scale, and {scale}: convert it to BF16, F16 or F32"


def _tensor_name(name: str) -> str:
    """Raises ValueError for a name that no message could show."""
    if len(name) > _MAX_NAME or not name.isprintable():
        raise ValueError
    return name


def _tensor(declared: Mapping[str, Any]) -> Tensor:
    """Raises ValueError for a shape that doesn't take the bytes that it has."""
    dtype: Any = declared["dtype"]
    shape: list[Any] = list(declared["shape"])
    start, end = declared["data_offsets"]
    numbers = [*shape, start, end]
    if not isinstance(dtype, str) or len(numbers) > _MAX_SIDES + 2:
        raise ValueError
    if any(type(number) is not int or not 0 <= number < 2**63 for number in numbers):
        raise ValueError
    count = math.prod(shape)
    # Types that aren't known here have at least one bit a number.
    fits = end - start == count * _BYTES[dtype] if dtype in _BYTES else count <= 8 * (end - start)
    if start > end or not fits:
        raise ValueError
    return Tensor(tuple(shape), dtype, end - start)


def _weight_map(index: Path) -> dict[str, str]:
    listed: Any = read_object(index).get("weight_map")
    if not isinstance(listed, dict) or not all(isinstance(file, str) for file in cast(dict[str, Any], listed).values()):
        raise InvalidInput(f"`{index.name}` has no `weight_map` of tensors and their files; fetch it again")
    return cast(dict[str, str], listed)


def _indexed(index: Path) -> list[Path]:
    names = sorted(set(_weight_map(index).values()))
    if any(Path(name).name != name or not _is_file_name(name) for name in names):
        raise InvalidInput(f"`{index.name}` names a shard outside its folder")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        raise NotFound(f"`{index.name}` names shards that are not there: {_list(missing) or 'none at all'}; fetch them")
    return [index.parent / name for name in names]


def _is_file_name(name: str) -> bool:
    return name not in {"", ".", ".."} and name.isprintable() and len(name.encode()) <= _MAX_FILE_NAME


def _counted(folder: Path, stem: str) -> list[Path]:
    """Shards without an index, found by the numbers in their names."""
    shards: dict[int, dict[int, Path]] = {}
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        shard = _SHARD.fullmatch(path.stem)
        if shard is not None and shard["stem"] == stem:
            shards.setdefault(int(shard["count"]), {})[int(shard["number"])] = path
    if not shards:
        raise NotFound(f"`{folder.name}` has neither `{stem}{_SUFFIX}` nor `{stem}{_INDEX}`, nor shards of `{stem}`")
    if len(shards) > 1:
        counts = " and of ".join(map(str, sorted(shards)))
        raise InvalidInput(f"`{folder.name}` has shards of `{stem}` of {counts} files; keep those of one")
    ((count, found),) = shards.items()
    if count < 1 or count > 100_000 or not all(1 <= number <= count for number in found):
        raise InvalidInput(
            f"shards of `{stem}` in `{folder.name}` are not numbered from 1 to {count}; fetch them again"
        )
    missing = [f"{stem}-{number:05}-of-{count:05}{_SUFFIX}" for number in range(1, count + 1) if number not in found]
    if missing:
        raise NotFound(f"`{folder.name}` has {len(found)} of {count} shards of `{stem}` and lacks {_list(missing)}")
    return [found[number] for number in sorted(found)]


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(f"`{name}`" for name in names[:_LISTED]) + more


def tokenizer_file(folder: Path) -> Path:
    """`tokenizer.json`, or `vocab.json` of a tokenizer in several files. Raises NotFound."""
    if (folder / TOKENIZER).is_file():
        return folder / TOKENIZER
    if all((folder / name).is_file() for name in TOKENIZER_PARTS):
        return folder / TOKENIZER_PARTS[0]
    raise NotFound(
        f"`{folder.name}` has no `{TOKENIZER}`, nor `vocab.json`, `merges.txt` and `tokenizer_config.json`; put the "
        "model's tokenizer beside its weights"
    )
