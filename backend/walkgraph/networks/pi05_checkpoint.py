"""pi0.5's weights and statistics in the public layouts, and in our own.

A folder holds `model.safetensors` (or its index and shards): openpi's names, or lerobot's, which begin with `model.`.
The language model's head is its table of embeddings, under either name; the expert's own head is not used. Its
`config.json` is our own (`"format": "walkgraph/pi05@1"`), or says the published variants.

Statistics of states and actions lie where openpi keeps them (`assets/ROBOT/norm_stats.json`, or `norm_stats.json` in
the folder itself), or in the states of lerobot's processors (`policy_preprocessor.json`, `policy_postprocessor.json`).

In 16 bits, what is small and decides much stays in float32: the prefix's norms, the maps into and out of the expert and
the time's MLP. What a flow time makes of the expert's norms is computed in float32, once, from weights as they are.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.networks.checkpoint import Names, Progress, load, opened, read_json
from walkgraph.networks.pi05 import PI05_BASE, Pi05, Pi05Config, Widths

FORMAT = "walkgraph/pi05@1"
_VARIANTS = {"gemma_2b": Widths(width=2048, hidden=16384), "gemma_300m": Widths(width=1024, hidden=4096)}
_PREFIX, _BOTH = "model.", "paligemma_with_expert."
_HEAD = f"{_BOTH}paligemma.lm_head.weight"
_TABLE = f"{_BOTH}paligemma.model.language_model.embed_tokens.weight"
_EXACT = ("action_in_proj.", "action_out_proj.", "time_mlp_in.", "time_mlp_out.")
_STATISTICS = "norm_stats.json"
_EPS = 1e-6


class Scaling(NamedTuple):
    """Between a robot's units and [-1, 1]: float64 `[n]`."""

    low: Tensor
    span: Tensor
    """From -1 to 1, in the robot's units."""

    @classmethod
    def none(cls) -> Self:
        """Of numbers in [-1, 1] already, however many."""
        return cls(torch.tensor([-1.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64))

    def inside(self, values: Tensor) -> Tensor:
        """`[..., m]` -> float64, like it: about [-1, 1]. Raises ValueError for more numbers than are known."""
        return (values.double() - self._fit(self.low, values)) / self._fit(self.span, values) * 2 - 1

    def outside(self, values: Tensor) -> Tensor:
        """The inverse. Numbers behind those that are known stay as they are."""
        known = values.shape[-1] if self.low.shape[0] == 1 else min(values.shape[-1], self.low.shape[0])
        mine = values[..., :known].double()
        back = (mine + 1) / 2 * self._fit(self.span, mine) + self._fit(self.low, mine)
        return torch.cat([back, values[..., known:].double()], -1)

    def _fit(self, of: Tensor, values: Tensor) -> Tensor:
        count = values.shape[-1]
        if of.shape[0] not in (1, *range(count, of.shape[0] + 1)):
            known = of.shape[0]
            raise ValueError(f"{count} numbers came, and the model knows statistics of {known}; send {known} at most")
        return of if of.shape[0] == 1 else of[:count]


class Statistics(NamedTuple):
    state: Scaling
    actions: Scaling


def read_pi05(folder: Path) -> Pi05Config:
    """Raises `InvalidInput` or `NotFound` with the file's name."""
    document = read_json(folder / "config.json")
    try:
        if document.get("format") == FORMAT:
            return Pi05Config.from_json({key: value for key, value in document.items() if key != "format"})
        return _published(document)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(f"the config in `{folder.name}` does not describe a pi0.5 model: {error}") from error


def config_json(config: Pi05Config) -> str:
    """What `read_pi05` reads back."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


def statistics_json(state: Sequence[tuple[float, float]], actions: Sequence[tuple[float, float]]) -> str:
    """Quantiles (1 %, 99 %) of every number, as `read_statistics` reads them back from `norm_stats.json`."""
    named = {"state": state, "actions": actions}
    quantiles = {
        name: dict(zip(("q01", "q99"), map(list, zip(*of, strict=True)), strict=True)) for name, of in named.items()
    }
    return json.dumps({"norm_stats": quantiles}, indent=2) + "\n"


def load_pi05(
    folder: Path,
    config: Pi05Config,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Pi05:
    """The model, packed; strict."""
    on: dict[str, Any] = {"device": device, "dtype": dtype, "progress": progress}
    names = Names(rename=_own_name, spare=(f"{_BOTH}gemma_expert.lm_head.weight",), exact=exact)
    return load(lambda: Pi05(config), folder, "model", **on, names=names).pack()


def exact(name: str) -> bool:
    """Whether a parameter stays in float32."""
    return name.startswith(_EXACT) or (name.endswith("norm.weight") and ".language_model." in name)


def read_statistics(folder: Path, robot: str = "") -> Statistics:
    """`robot`: the folder under `assets`, where there are several. Raises `NotFound` or `InvalidInput`."""
    path = _openpi_file(folder, robot)
    if path is not None:
        return _of_openpi(path)
    if (folder / "policy_preprocessor.json").is_file():
        return _of_lerobot(folder)
    raise NotFound(
        f"`{folder.name}` has no statistics of states and actions; put `{_STATISTICS}` there (openpi's, or lerobot's "
        "`policy_preprocessor.json` and `policy_postprocessor.json` with their states)"
    )


def _own_name(name: str) -> str:
    mine = name.removeprefix(_PREFIX)
    return _TABLE if mine == _HEAD else mine


def _published(document: Mapping[str, Any]) -> Pi05Config:
    """openpi's and lerobot's files say the two variants by name."""
    if document.get("type", "pi05") != "pi05" or document.get("pi05", True) is not True:
        raise ValueError("`type` must be `pi05`")
    widths = [document[f"{part}_variant"] for part in ("paligemma", "action_expert")]
    unknown = [name for name in widths if name not in _VARIANTS]
    if unknown:
        raise ValueError(f"variants {unknown} are not known; have {sorted(_VARIANTS)}")
    prefix, expert = (_VARIANTS[name] for name in widths)
    side = PI05_BASE.picture
    if list(document.get("image_resolution", (side, side))) != [side, side]:
        raise ValueError(f"`image_resolution` must be {side} by {side}")
    horizon = document.get("action_horizon") or document.get("chunk_size")
    return dataclasses.replace(
        PI05_BASE,
        prefix=prefix,
        expert=expert,
        action_width=document.get("action_dim") or document.get("max_action_dim") or PI05_BASE.action_width,
        horizons=(horizon,) if horizon else PI05_BASE.horizons,
        periods=(document.get("min_period", PI05_BASE.periods[0]), document.get("max_period", PI05_BASE.periods[1])),
    )


def _openpi_file(folder: Path, robot: str) -> Path | None:
    if (folder / _STATISTICS).is_file():
        return folder / _STATISTICS
    found = {path.parent.relative_to(folder / "assets").as_posix(): path for path in _assets(folder)}
    if robot:
        if robot not in found:
            raise NotFound(f"`{folder.name}` has no statistics of robot `{robot}`; have {sorted(found)}")
        return found[robot]
    if len(found) > 1:
        raise InvalidInput(f"`{folder.name}` has statistics of several robots; set `robot` to one of {sorted(found)}")
    return next(iter(found.values()), None)


def _assets(folder: Path) -> list[Path]:
    return sorted((folder / "assets").rglob(_STATISTICS))


def _of_openpi(path: Path) -> Statistics:
    document = read_json(path)
    try:
        both = document.get("norm_stats", document)
        state, actions = (
            [torch.tensor(both[name][key], dtype=torch.float64).flatten() for key in ("q01", "q99")]
            for name in ("state", "actions")
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"`{path.name}` has no quantiles `q01` and `q99` of `state` and `actions`") from error
    return Statistics(*(Scaling(low, high - low + _EPS) for low, high in (state, actions)))


def _of_lerobot(folder: Path) -> Statistics:
    state = _lerobot_step(folder, "policy_preprocessor.json", "normalizer_processor", "observation.state", "STATE")
    action = _lerobot_step(folder, "policy_postprocessor.json", "unnormalizer_processor", "action", "ACTION")
    return Statistics(state, action)


def _lerobot_step(folder: Path, file: str, step: str, key: str, kind: str) -> Scaling:
    steps = [one for one in read_json(folder / file).get("steps", ()) if one.get("registry_name") == step]
    state = str(steps[0].get("state_file", "")) if steps else ""
    if not state or Path(state).name != state or not (folder / state).is_file():
        raise NotFound(f"`{file}` in `{folder.name}` names no state of a `{step}` that is there")
    mode = steps[0].get("config", {}).get("norm_map", {}).get(kind, "QUANTILES")
    if mode != "QUANTILES":
        raise InvalidInput(f"`{file}` scales `{key}` by {mode}, and only QUANTILES can be run")
    with opened(folder / state, "cpu") as tensors:
        names = [f"{key}.q01", f"{key}.q99"]
        if not set(names) <= set(tensors.keys()):
            raise InvalidInput(f"`{state}` has no quantiles {names}; export the processors with them")
        low, high = (tensors.get_tensor(name).double().flatten() for name in names)
    span = high - low
    return Scaling(low, span.where(span != 0, _lerobot_eps(steps[0])))


def _lerobot_eps(step: Mapping[str, Any]) -> float:
    return float(step.get("config", {}).get("eps", 1e-8))
