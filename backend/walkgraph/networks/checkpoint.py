"""Weights in the public layout: safetensors only, whole or sharded, strict, built on `meta` and assigned.

A folder of BAGEL holds `ema.safetensors` (or `ema.safetensors.index.json` and its shards) and `ae.safetensors`, and
either our own `config.json` (`"format": "walkgraph/bagel@1"`) or the published `llm_config.json` and `vit_config.json`.

A folder of Orpheus holds `model.safetensors` (or its index and shards) and the public `config.json`; where its special
tokens are not the published ones, `"speech_tokens"` in that file names them.
"""

import dataclasses
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.layers.unset import unset
from walkgraph.networks.bagel import BAGEL_7B_MOT, Bagel, BagelConfig
from walkgraph.networks.flux_vae import AutoEncoder
from walkgraph.networks.llama import Llama, LlamaConfig, OrpheusConfig, SpeechTokens

FORMAT = "walkgraph/bagel@1"
M = TypeVar("M", bound=nn.Module)
Progress = Callable[[int], None]
"""Called with the bytes of every tensor that was loaded."""


def read_config(folder: Path) -> BagelConfig:
    """The config of a checkpoint folder; raises `InvalidInput` or `NotFound` with the file's name."""
    own = _read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    try:
        if own.get("format") == FORMAT:
            return BagelConfig.from_json({k: v for k, v in own.items() if k != "format"})
        return _published(_read_json(folder / "llm_config.json"), _read_json(folder / "vit_config.json"))
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(f"the config in `{folder.name}` does not describe a BAGEL model: {error}") from error


def config_json(config: BagelConfig) -> str:
    """What `read_config` reads back."""
    return json.dumps({"format": FORMAT, **dataclasses.asdict(config)}, indent=2) + "\n"


def load_bagel(
    folder: Path,
    config: BagelConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Bagel:
    """The model without its autoencoder, on `device`; strict."""
    return load(lambda: Bagel(config), folder, "ema", device=device, dtype=dtype, progress=progress)


def load_autoencoder(
    folder: Path,
    config: BagelConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> AutoEncoder:
    return load(lambda: AutoEncoder(config.vae), folder, "ae", device=device, dtype=dtype, progress=progress)


def read_orpheus(folder: Path) -> OrpheusConfig:
    """As `read_config`, of an Orpheus folder."""
    public = _read_json(folder / "config.json")
    try:
        tokens = SpeechTokens(**public.get("speech_tokens", {}))
        return OrpheusConfig(llm=LlamaConfig.published(public), tokens=tokens)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidInput(f"the config in `{folder.name}` does not describe an Orpheus model: {error}") from error


def load_llama(
    folder: Path,
    config: LlamaConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Llama:
    """The model, packed; strict. With tied embeddings a file may hold a head too: it is the table again."""
    spare = ("lm_head.weight",) if config.tied else ()
    on: dict[str, Any] = {"device": device, "dtype": dtype, "progress": progress}
    return load(lambda: Llama(config), folder, "model", **on, spare=spare).pack()


def load(
    build: Callable[[], M],
    folder: Path,
    stem: str,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
    spare: Collection[str] = (),
) -> M:
    """Build on `meta`, then assign every tensor of `<stem>.safetensors` (or of its shards), cast to `dtype`.

    `spare`: tensors that may be there and are not read.

    Raises `NotFound` for a missing file and `InvalidInput` for missing, unknown or misshapen tensors.
    """
    with unset():
        module = build()
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    state: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for name, tensor in _tensors(folder, stem, str(device), spare):
        if name not in wanted:
            problems.append(f"unknown tensor `{name}`")
        elif tuple(tensor.shape) != wanted[name]:
            problems.append(f"`{name}` is {list(tensor.shape)}, the config wants {list(wanted[name])}")
        else:
            state[name] = tensor.to(dtype)
            if progress is not None:
                progress(tensor.nbytes)
    problems += [f"missing tensor `{name}`" for name in wanted.keys() - state.keys() if not _named(name, problems)]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        shown = "; ".join(sorted(problems)[:5])
        raise InvalidInput(f"`{stem}` in `{folder.name}` does not fit its config: {shown}{more}")
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def files(folder: Path, stem: str) -> list[Path]:
    """The safetensors files of one stem: the single file, or the shards that its index names."""
    single, index = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise NotFound(f"`{folder.name}` has neither `{single.name}` nor `{index.name}`")
    names = sorted(set(_read_json(index).get("weight_map", {}).values()))
    if any(Path(name).name != name for name in names):
        raise InvalidInput(f"`{index.name}` names a shard outside its folder")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise NotFound(f"`{index.name}` names shards that are not there: {missing}")
    return [folder / name for name in names]


def _named(name: str, problems: list[str]) -> bool:
    return any(f"`{name}`" in problem for problem in problems)


def _tensors(folder: Path, stem: str, device: str, spare: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    for path in files(folder, stem):
        try:
            with safe_open(path, framework="pt", device=device) as shard:
                for name in shard.keys():  # noqa: SIM118 (a handle, not a mapping)
                    if name not in spare:
                        yield name, shard.get_tensor(name)
        except SafetensorError as error:
            raise InvalidInput(f"`{path.name}` is not a readable safetensors file: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise NotFound(f"`{path.parent.name}` has no `{path.name}`")
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InvalidInput(f"`{path.name}` is not valid JSON: {error}") from error


def _published(llm: dict[str, Any], vit: dict[str, Any]) -> BagelConfig:
    """The published config files say the sizes; what they leave out is the published model's."""
    base = BAGEL_7B_MOT
    return dataclasses.replace(
        base,
        llm=dataclasses.replace(
            base.llm,
            width=llm["hidden_size"],
            hidden=llm["intermediate_size"],
            layers=llm["num_hidden_layers"],
            heads=llm["num_attention_heads"],
            kv_heads=llm["num_key_value_heads"],
            head_dim=llm.get("head_dim", llm["hidden_size"] // llm["num_attention_heads"]),
            vocab=llm["vocab_size"],
            rope_theta=llm.get("rope_theta", base.llm.rope_theta),
            norm_eps=llm.get("rms_norm_eps", base.llm.norm_eps),
        ),
        vit=dataclasses.replace(
            base.vit,
            width=vit["hidden_size"],
            hidden=vit["intermediate_size"],
            # The last layer of the published encoder is not used, and not in the checkpoint.
            layers=vit["num_hidden_layers"] - 1,
            heads=vit["num_attention_heads"],
            patch=vit["patch_size"],
            norm_eps=vit.get("layer_norm_eps", base.vit.norm_eps),
        ),
    )
