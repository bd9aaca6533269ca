"""Weights in the public layout: safetensors only, whole or sharded, strict, built on `meta` and assigned.

A folder of BAGEL holds `ema.safetensors` (or `ema.safetensors.index.json` and its shards) and `ae.safetensors`, and
either our own `config.json` (`"format": "walkgraph/bagel@1"`) or what is published: `llm_config.json`,
`vit_config.json`, a `config.json` that may hold both of them, and the tokenizer.

A folder of Orpheus holds `model.safetensors` (or its index and shards) and the public `config.json`; where its special
tokens are not the published ones, `"speech_tokens"` in that file names them.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.layers.unset import unset
from walkgraph.networks.bagel import BAGEL_7B_MOT, Bagel, BagelConfig, SpecialTokens
from walkgraph.networks.flux_vae import AutoEncoder
from walkgraph.networks.llama import Llama, LlamaConfig, OrpheusConfig, SpeechTokens

FORMAT = "walkgraph/bagel@1"
M = TypeVar("M", bound=nn.Module)
Named = tuple[str, torch.Tensor]
Progress = Callable[[int], None]
"""Called with the bytes of every tensor that was loaded."""


def _none(name: str) -> bool:
    return False


class Names(NamedTuple):
    """How the tensors of a file are those of a module."""

    rename: Callable[[str], str] = str
    """A tensor's name in the file -> in the module."""
    spare: Collection[str] = ()
    """Tensors that may be there and are not read, by their names in the module."""
    exact: Callable[[str], bool] = _none
    """Whether a tensor of the module is kept in float32."""
    regroup: Callable[[Iterable[Named]], Iterable[Named]] = iter
    """A file's tensors, renamed, -> the module's: some may be joined, or left out."""


def read_config(folder: Path) -> BagelConfig:
    """The config of a checkpoint folder; raises `InvalidInput` or `NotFound` with the file's name."""
    own = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    try:
        if own.get("format") == FORMAT:
            return BagelConfig.from_json({k: v for k, v in own.items() if k != "format"})
        return _published(folder, own)
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
    public = read_json(folder / "config.json")
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
    return load(lambda: Llama(config), folder, "model", **on, names=Names(spare=spare)).pack()


def load(
    build: Callable[[], M],
    folder: Path,
    stem: str,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
    names: Names = Names(),  # noqa: B008 (of values that don't change)
) -> M:
    """Build on `meta`, then assign every tensor of `<stem>.safetensors` (or of its shards), cast to `dtype`.

    Raises `NotFound` for a missing file and `InvalidInput` for missing, unknown or misshapen tensors.
    """
    with unset():
        module = build()
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    state: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for name, tensor in names.regroup(_tensors(folder, stem, str(device), names)):
        if name not in wanted:
            problems.append(f"unknown tensor `{name}`")
        elif tuple(tensor.shape) != wanted[name]:
            problems.append(f"`{name}` is {list(tensor.shape)}, the config wants {list(wanted[name])}")
        else:
            state[name] = tensor.to(torch.float32 if names.exact(name) else dtype)
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
    names = sorted(set(read_json(index).get("weight_map", {}).values()))
    if any(Path(name).name != name for name in names):
        raise InvalidInput(f"`{index.name}` names a shard outside its folder")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing or not names:
        raise NotFound(f"`{index.name}` names shards that are not there: {missing}")
    return [folder / name for name in names]


def _named(name: str, problems: list[str]) -> bool:
    return any(f"`{name}`" in problem for problem in problems)


def _tensors(folder: Path, stem: str, device: str, names: Names) -> Iterator[tuple[str, torch.Tensor]]:
    for path in files(folder, stem):
        with opened(path, device) as shard:
            for filed in shard.keys():  # noqa: SIM118 (a handle, not a mapping)
                name = names.rename(filed)
                if name not in names.spare:
                    yield name, shard.get_tensor(filed)


@contextmanager
def opened(path: Path, device: str) -> Iterator[Any]:
    """A safetensors file; raises `InvalidInput` for one that isn't."""
    try:
        with safe_open(path, framework="pt", device=device) as shard:
            yield shard
    except SafetensorError as error:
        raise InvalidInput(f"`{path.name}` is not a readable safetensors file: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Raises `NotFound` or `InvalidInput` with the file's name."""
    if not path.is_file():
        raise NotFound(f"`{path.parent.name}` has no `{path.name}`")
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise InvalidInput(f"`{path.name}` is not valid JSON: {error}") from error


def _published(folder: Path, own: dict[str, Any]) -> BagelConfig:
    """The published files say the sizes; what they leave out is the published model's. Raises ValueError for a model of
    other parts."""
    llm, vit = _part(folder, own, "llm_config"), _part(folder, own, "vit_config")
    _refuse_others(own, llm, vit)
    base, vae = BAGEL_7B_MOT, own.get("vae_config") or {}
    return dataclasses.replace(
        base,
        llm=dataclasses.replace(
            base.llm,
            width=llm["hidden_size"],
            hidden=llm["intermediate_size"],
            layers=llm["num_hidden_layers"],
            heads=llm["num_attention_heads"],
            kv_heads=llm["num_key_value_heads"],
            head_dim=llm.get("head_dim") or llm["hidden_size"] // llm["num_attention_heads"],
            vocab=llm["vocab_size"],
            rope_theta=llm.get("rope_theta") or _rope(llm).get("rope_theta", base.llm.rope_theta),
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
            side=vit["image_size"] // vit["patch_size"] if "image_size" in vit else base.vit.side,
            norm_eps=vit.get("layer_norm_eps", base.vit.norm_eps),
        ),
        vae=dataclasses.replace(
            base.vae,
            channels=vae.get("ch", base.vae.channels),
            multipliers=tuple(vae.get("ch_mult", base.vae.multipliers)),
            blocks=vae.get("num_res_blocks", base.vae.blocks),
            latent_channels=vae.get("z_channels", base.vae.latent_channels),
        ),
        tokens=_special_tokens(folder) or base.tokens,
        latent_patch=own.get("latent_patch_size", base.latent_patch),
        latent_side=_latent_side(folder) or base.latent_side,
    )


def _part(folder: Path, own: dict[str, Any], name: str) -> dict[str, Any]:
    """A config in a file of its own, or inside `config.json`; raises `NotFound`."""
    path = folder / f"{name}.json"
    if not path.is_file() and isinstance(own.get(name), dict):
        return own[name]
    return read_json(path)


def _refuse_others(own: dict[str, Any], llm: dict[str, Any], vit: dict[str, Any]) -> None:
    """Settings under which the same weights mean another model, none of which the published one has."""
    gelu = "gelu_pytorch_tanh"
    wanted: list[tuple[str, Any, Any]] = [
        ("connector_act", own.get("connector_act", gelu), gelu),
        ("interpolate_pos", bool(own.get("interpolate_pos")), False),
        ("llm_config.hidden_act", llm.get("hidden_act", "silu"), "silu"),
        ("llm_config.rope_scaling", _rope(llm).get("rope_type", _rope(llm).get("type", "default")), "default"),
        ("vit_config.hidden_act", vit.get("hidden_act", gelu), gelu),
    ]
    for name, found, only in wanted:
        if found != only:
            raise ValueError(f"`{name}` is {json.dumps(found)}, and only {json.dumps(only)} can be run")


def _rope(llm: dict[str, Any]) -> dict[str, Any]:
    """What newer and older files say of the rotation besides its base, which newer ones keep there too."""
    return llm.get("rope_parameters") or llm.get("rope_scaling") or {}


def _latent_side(folder: Path) -> int | None:
    """Of the table of latent positions, as it is in the weights: the published `max_latent_size` says less."""
    name = "latent_pos_embed.pos_embed"
    if not any(folder.glob("ema*.safetensors")):
        return None
    for path in files(folder, "ema"):
        with opened(path, "cpu") as shard:
            if name in shard.keys():  # noqa: SIM118 (a handle, not a mapping)
                rows = shard.get_slice(name).get_shape()[0]
                if math.isqrt(rows) ** 2 != rows:
                    raise ValueError(f"`{name}` has {rows} rows, which are no square of positions")
                return math.isqrt(rows)
    return None


def _special_tokens(folder: Path) -> SpecialTokens | None:
    """As the folder's tokenizer numbers them; None where there is no tokenizer."""
    names = {"bos": "<|im_start|>", "eos": "<|im_end|>", "boi": "<|vision_start|>", "eoi": "<|vision_end|>"}
    known = added_tokens(folder)
    if known is None:
        return None
    missing = [name for name in names.values() if name not in known]
    if missing:
        raise ValueError(f"its tokenizer has no token {', '.join(f'`{name}`' for name in missing)}")
    return SpecialTokens(**{key: known[name] for key, name in names.items()})


def added_tokens(folder: Path) -> dict[str, int] | None:
    """Tokens that are no pieces of text, by name, as `tokenizer.json` or `tokenizer_config.json` lists them; None where
    there is neither. Raises `InvalidInput`."""
    whole, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    path = whole if whole.is_file() else config
    if not path.is_file():
        return None
    document = read_json(path)
    try:
        if path == whole:
            return {token["content"]: int(token["id"]) for token in document.get("added_tokens") or ()}
        return {token["content"]: int(key) for key, token in (document.get("added_tokens_decoder") or {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"the added tokens in `{path.name}` are not readable; export it again") from error
