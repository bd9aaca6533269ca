"""pi0.5's statistics of states and actions: quantiles, where openpi keeps them (`assets/ROBOT/norm_stats.json`, or
`norm_stats.json` in the folder itself), or in the states of lerobot's processors (`policy_preprocessor.json`,
`policy_postprocessor.json`)."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from walkgraph.checkpoints.fields import Fields, open_file, read_object
from walkgraph.checkpoints.files import header
from walkgraph.errors import InvalidInput, NotFound

FILE = "norm_stats.json"
PROCESSORS = ("policy_preprocessor.json", "policy_postprocessor.json")
_EPS = 1e-6
_LEROBOT_EPS = 1e-8
_NUMBERS = 2**16
_FORMATS = {"F64": "d", "F32": "f", "F16": "e"}


class Quantiles(NamedTuple):
    """Scaling between a robot's units and [-1, 1]."""

    low: tuple[float, ...]
    span: tuple[float, ...]
    """The distance from -1 to 1 in the robot's units."""


class Statistics(NamedTuple):
    state: Quantiles
    actions: Quantiles


def statistics_json(state: Sequence[tuple[float, float]], actions: Sequence[tuple[float, float]]) -> str:
    """Quantiles (1 %, 99 %) of every number, in the form of `norm_stats.json` that `read_statistics` reads."""
    named = {"state": state, "actions": actions}
    quantiles = {
        name: dict(zip(("q01", "q99"), map(list, zip(*of, strict=True)), strict=True)) for name, of in named.items()
    }
    return json.dumps({"norm_stats": quantiles}, indent=2) + "\n"


def robots(folder: Path) -> list[str]:
    """Robots with statistics under `assets`; empty if there is one set for all."""
    return [] if (folder / FILE).is_file() else sorted(_assets(folder))


def read_statistics(folder: Path, robot: str = "") -> Statistics:
    """Read a folder's statistics. `robot`: the folder under `assets`, if there are several. Raises `NotFound` or
    `InvalidInput`."""
    path = _openpi_file(folder, robot)
    if path is not None:
        return _of_openpi(path)
    if (folder / PROCESSORS[0]).is_file():
        return _of_lerobot(folder)
    raise NotFound(
        f"`{folder.name}` has no statistics of states and actions; put `{FILE}` there (openpi's, or lerobot's "
        f"`{PROCESSORS[0]}` and `{PROCESSORS[1]}` with their states)"
    )


def _openpi_file(folder: Path, robot: str) -> Path | None:
    if (folder / FILE).is_file():
        return folder / FILE
    found = _assets(folder)
    if robot:
        if robot not in found:
            raise NotFound(f"`{folder.name}` has no statistics of robot `{robot}`; use one of {sorted(found)}")
        return found[robot]
    if len(found) > 1:
        raise InvalidInput(f"`{folder.name}` has statistics of several robots; set `robot` to one of {sorted(found)}")
    return next(iter(found.values()), None)


def _assets(folder: Path) -> dict[str, Path]:
    assets = folder / "assets"
    return {path.parent.relative_to(assets).as_posix(): path for path in sorted(assets.rglob(FILE))}


def _of_openpi(path: Path) -> Statistics:
    document = Fields(read_object(path))
    both = document.section("norm_stats") if "norm_stats" in document.values else document
    found = [_quantiles(path, both, name) for name in ("state", "actions")]
    return Statistics(
        *(Quantiles(low, tuple(b - a + _EPS for a, b in zip(low, high, strict=True))) for low, high in found)
    )


def _quantiles(path: Path, both: Fields, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    of: Any = both.values.get(name)
    known = cast(Mapping[str, Any], of) if isinstance(of, dict) else dict[str, Any]()
    low, high = (_flat(known.get(key)) for key in ("q01", "q99"))
    if low is None or high is None or len(low) != len(high):
        others = " (it has mean and deviation, by which nothing can be scaled here)" if "mean" in known else ""
        raise InvalidInput(f"`{path.name}` has no quantiles `q01` and `q99` of `state` and `actions`{others}")
    return low, high


def _flat(value: Any) -> tuple[float, ...] | None:
    """The numbers of a list, nested or not; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | list):
        return None
    if not isinstance(value, list):
        return (float(value),) if math.isfinite(value) else None
    found: list[float] = []
    for one in cast(list[Any], value):
        inner = _flat(one)
        if inner is None or len(found) + len(inner) > _NUMBERS:
            return None
        found += inner
    return tuple(found) or None


def _of_lerobot(folder: Path) -> Statistics:
    before, after = PROCESSORS
    state = _lerobot_step(folder, before, "normalizer_processor", "observation.state", "STATE")
    action = _lerobot_step(folder, after, "unnormalizer_processor", "action", "ACTION")
    return Statistics(state, action)


def _lerobot_step(folder: Path, file: str, step: str, key: str, kind: str) -> Quantiles:
    listed: Any = read_object(folder / file).get("steps")
    steps = cast(list[Any], listed) if isinstance(listed, list) else []
    mine = [Fields(cast(dict[str, Any], one), f"{file}: {step}.") for one in steps if isinstance(one, dict)]
    found = next((one for one in mine if one.values.get("registry_name") == step), Fields({}))
    state = str(found.values.get("state_file") or "")
    if not state or Path(state).name != state or not (folder / state).is_file():
        raise NotFound(f"`{file}` in `{folder.name}` names no state of a `{step}` that is there")
    config = found.section_or_empty("config")
    mode = config.section_or_empty("norm_map").values.get(kind, "QUANTILES")
    if mode != "QUANTILES":
        raise InvalidInput(f"`{file}` scales `{key}` by {mode}, and only QUANTILES can be run")
    low, high = (_numbers(folder / state, f"{key}.{name}") for name in ("q01", "q99"))
    if low is None or high is None or len(low) != len(high):
        names = [f"{key}.q01", f"{key}.q99"]
        raise InvalidInput(f"`{state}` has no quantiles {names}; export the processors with them")
    eps = config.number("eps", 1.0, least=0, default=_LEROBOT_EPS)
    return Quantiles(low, tuple((b - a) or eps for a, b in zip(low, high, strict=True)))


def _numbers(path: Path, name: str) -> tuple[float, ...] | None:
    """The numbers of one small tensor in a safetensors file; None if they are missing or not finite."""
    tensor = header(path).get(name)
    if tensor is None or not 0 < math.prod(tensor.shape) <= _NUMBERS:
        return None
    with open_file(path) as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
        file.seek(8 + length + entries[name]["data_offsets"][0])
        data = file.read(tensor.bytes)
    if tensor.dtype == "BF16":
        # BF16 is the upper half of a float32.
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    code = "f" if tensor.dtype == "BF16" else _FORMATS.get(tensor.dtype)
    if code is None or len(data) != math.prod(tensor.shape) * struct.calcsize(code):
        return None
    found = struct.unpack(f"<{math.prod(tensor.shape)}{code}", data)
    return found if all(map(math.isfinite, found)) else None
