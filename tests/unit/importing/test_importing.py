"""Public checkpoints become graphs and placements: tables of tensors against the networks themselves, folders in the
public layouts, and what is said of those that don't fit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.golden import bagel_tiny, pi05_tiny, vjepa2_tiny
from walkgraph.checkpoints.bagel import BAGEL_7B_MOT, bagel_json
from walkgraph.checkpoints.orpheus import ORPHEUS_3B, OrpheusConfig, read_orpheus
from walkgraph.checkpoints.pi05 import PI05_BASE, pi05_json, read_pi05
from walkgraph.checkpoints.statistics import statistics_json
from walkgraph.checkpoints.vjepa2 import VJEPA2_AC_VITG, vjepa2_json
from walkgraph.components import catalogue, families
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.importing import vocoder
from walkgraph.importing.contents import Contents, read
from walkgraph.importing.making import Made, graph_name, make
from walkgraph.importing.recognising import Recognised, known, recognise
from walkgraph.layers.unset import unset
from walkgraph.networks.bagel import Bagel
from walkgraph.networks.checkpoint import load_llama
from walkgraph.networks.flux_vae import AutoEncoder
from walkgraph.networks.llama import Llama
from walkgraph.networks.pi05 import Pi05
from walkgraph.networks.pi05_checkpoint import load_pi05
from walkgraph.networks.presets import BAGEL, ORPHEUS, PI05, VJEPA2, drawn
from walkgraph.networks.snac import SNAC, Snac, load_snac
from walkgraph.networks.vjepa2 import Vjepa2Encoder, Vjepa2Predictor
from walkgraph.placement.document import decode
from walkgraph.placement.hardware import Device, Hardware, reserve, with_gpus
from walkgraph.placement.plan import plan
from walkgraph.placement.sizes import find_sizes, weights_folder

GIB = 2**30
LAPTOP = Hardware(
    host="here", cores=4, shm=GIB, devices=(Device(name="cpu", total=64 * GIB, free=64 * GIB, label="test"),)
)


def llama_json(config: OrpheusConfig) -> dict[str, Any]:
    """As Transformers publishes it."""
    llm = config.llm
    return {
        "model_type": "llama", "hidden_size": llm.width, "intermediate_size": llm.hidden,
        "num_hidden_layers": llm.layers, "num_attention_heads": llm.heads, "num_key_value_heads": llm.kv_heads,
        "head_dim": llm.head_dim, "vocab_size": llm.vocab, "rope_theta": llm.rope_theta, "rms_norm_eps": llm.norm_eps,
        "tie_word_embeddings": llm.tied, "speech_tokens": vars(config.tokens),
    }  # fmt: skip


QUANTILES = statistics_json([(-1.0, 1.0)] * 7, [(-1.0, 1.0)] * 7)


def tokenizer(folder: Path) -> None:
    """A trained one."""
    source = weights_folder("starter:reach", ()) / "tokenizer.json"
    (folder / "tokenizer.json").write_bytes(source.read_bytes())


def written(folder: Path, name: str = "config") -> Callable[[dict[str, Any]], Path]:
    def write(document: dict[str, Any]) -> Path:
        folder.mkdir(exist_ok=True, parents=True)
        (folder / f"{name}.json").write_text(json.dumps(document))
        return folder

    return write


def orpheus(folder: Path) -> Path:
    written(folder)(llama_json(ORPHEUS["orpheus-tiny"]))
    tokenizer(folder)
    with unset():
        model = Llama(ORPHEUS["orpheus-tiny"].llm)
    save_file(
        {name: torch.zeros(tensor.shape) for name, tensor in model.state_dict().items()}, folder / "model.safetensors"
    )
    return folder


def snac(folder: Path) -> Path:
    config = SNAC["snac-tiny"]
    written(folder)({name: list(v) if isinstance(v, tuple) else v for name, v in vars(config).items()})
    model = drawn(lambda: Snac(config), 0, device=torch.device("cpu"), dtype=torch.float32)
    save_file(model.state_dict(), folder / "model.safetensors")
    return folder


def pi05(folder: Path, layout: str) -> Path:
    pi05_tiny.write_folder(folder, layout, shards=2 if layout == "lerobot" else 1)
    tokenizer(folder)
    (folder / "norm_stats.json").write_text(QUANTILES)
    return folder


CHECKPOINTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "bagel": ("bagel", bagel_tiny.write_folder),
    "orpheus": ("orpheus", lambda root: orpheus(root / "orpheus-tiny")),
    "openpi": ("pi05", lambda root: pi05(root / "pi05-openpi", "openpi")),
    "lerobot": ("pi05", lambda root: pi05(root / "pi05-lerobot", "lerobot")),
    "vjepa2": ("vjepa2", vjepa2_tiny.write_folder),
}


def imported(folder: Path, hardware: Hardware = LAPTOP) -> tuple[Recognised, Made]:
    found = recognise(read(folder))
    assert found.problems() == []
    return found, make(found, None, hardware)


# ── the tables against the networks ─────────────────────────────────────────────────────────────


def of_config(family: str, folder: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    contents = read(folder)
    return {part.stem: dict(part.expected) for part in known()[family].parts(contents)}


def shapes(build: Callable[[], nn.Module]) -> dict[str, tuple[int, ...]]:
    with unset():
        return {name: tuple(tensor.shape) for name, tensor in build().state_dict().items()}


def own(text: str, folder: Path) -> Path:
    (folder / "config.json").write_text(text)
    return folder


@pytest.mark.parametrize("config", [BAGEL["bagel-tiny"], BAGEL_7B_MOT], ids=["tiny", "7b"])
def test_bagels_tensors_are_those_of_its_network(tmp_path: Path, config: Any) -> None:
    found = of_config("bagel", own(bagel_json(config), tmp_path))
    assert found == {"ema": shapes(lambda: Bagel(config)), "ae": shapes(lambda: AutoEncoder(config.vae))}


@pytest.mark.parametrize("config", [ORPHEUS["orpheus-tiny"], ORPHEUS_3B], ids=["tiny", "3b"])
def test_orpheus_tensors_are_those_of_its_network(tmp_path: Path, config: OrpheusConfig) -> None:
    found = of_config("orpheus", written(tmp_path)(llama_json(config)))
    assert found == {"model": shapes(lambda: Llama(config.llm))}


@pytest.mark.parametrize("config", [PI05["pi05-tiny"], PI05_BASE], ids=["tiny", "base"])
def test_pi05s_tensors_are_those_of_its_network(tmp_path: Path, config: Any) -> None:
    wanted = {"model": shapes(lambda: Pi05(config))}
    assert of_config("pi05", own(pi05_json(config), tmp_path)) == wanted
    if config is PI05_BASE:
        public = {"paligemma_variant": "gemma_2b", "action_expert_variant": "gemma_300m", "action_dim": 32}
        assert of_config("pi05", written(tmp_path)(public)) == wanted
        assert of_config("pi05", written(tmp_path)({**public, "type": "pi05", "chunk_size": 50})) == wanted


@pytest.mark.parametrize("config", [VJEPA2["vjepa2-ac-tiny"], VJEPA2_AC_VITG], ids=["tiny", "vitg"])
def test_vjepa2s_tensors_are_those_of_its_networks(tmp_path: Path, config: Any) -> None:
    wanted = {"encoder": shapes(lambda: Vjepa2Encoder(config)), "predictor": shapes(lambda: Vjepa2Predictor(config))}
    assert of_config("vjepa2", own(vjepa2_json(config), tmp_path)) == wanted
    if config is VJEPA2_AC_VITG:
        assert of_config("vjepa2", written(tmp_path)({})) == wanted


# ── folders ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    family, make_folder = CHECKPOINTS[request.param]
    return family, make_folder(tmp_path_factory.mktemp("roots"))


def test_a_public_folder_becomes_a_graph_that_can_be_deployed(checkpoint: tuple[str, Path]) -> None:
    family, folder = checkpoint
    found, made = imported(folder)
    assert found.family.name == family
    report = check(made.graph, catalogue())
    assert report.ok, report.problems
    assert f"checkpoint:{folder.name}" in {weights["source"] for weights in made.graph["weights"].values()}
    assert [placement["name"] for placement in made.placements] == [f"{made.graph['name']}_one_cpu"]
    assert made.unfit == {}


def test_every_tensor_that_is_gone_odd_or_unknown_is_named(checkpoint: tuple[str, Path], tmp_path: Path) -> None:
    family, folder = checkpoint
    copy = tmp_path / folder.name
    copy.mkdir()
    for path in folder.iterdir():
        if not path.name.endswith(".index.json"):
            (copy / path.name).write_bytes(path.read_bytes())
    path = min(copy.glob("*.safetensors"))
    state = load_file(path)
    gone, odd = sorted(name for name, tensor in state.items() if tensor.dim() == 1)[:2]
    del state[gone]
    save_file({**state, odd: torch.zeros(77), "surplus": torch.zeros(1)}, path)
    told = " ".join(recognise(read(copy)).problems())
    bare = {name: name.removeprefix("model.").removeprefix("module.").removeprefix("backbone.") for name in (gone, odd)}
    bare = bare if family != "orpheus" else {gone: gone, odd: odd}
    assert f"lacks `{bare[gone]}`" in told
    assert f"`{bare[odd]}` is 77, not " in told
    assert "doesn't read: `surplus`" in told


def test_an_encoder_of_transformers_fits_too(tmp_path: Path) -> None:
    folder = vjepa2_tiny.write_folder(tmp_path)
    state = {n.removeprefix("module.backbone."): t for n, t in load_file(folder / "encoder.safetensors").items()}
    renamed: dict[str, torch.Tensor] = {"predictor.layernorm.weight": torch.zeros(1)}
    for name, tensor in state.items():
        for old, new in (
            ("patch_embed.", "embeddings.patch_embeddings."),
            ("norm.", "layernorm."),
            ("blocks.", "layer."),
        ):
            if name.startswith(old):
                name = f"encoder.{new}{name.removeprefix(old)}".replace(".attn.proj.", ".attention.proj.")
                break
        if ".attn.qkv." in name:
            for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[name.replace(".attn.qkv.", f".attention.{part}.")] = third.contiguous()
        else:
            renamed[name] = tensor
    save_file(renamed, folder / "encoder.safetensors")
    assert recognise(read(folder)).problems() == []


def test_a_graph_that_no_parameter_allows_is_refused(tmp_path: Path) -> None:
    folder = pi05(tmp_path / "pi05", "openpi")
    found = recognise(read(folder))
    document = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**document, "action_width": 4000}))
    with pytest.raises(InvalidInput, match="no graph can serve what the config of `pi05` asks for"):
        make(dataclasses.replace(found, contents=read(folder)), None, LAPTOP)


def test_sizes_of_the_config_are_those_of_the_graph(tmp_path: Path) -> None:
    side = vjepa2_tiny.CONFIG.side
    _, made = imported(vjepa2_tiny.write_folder(tmp_path))
    assert made.graph["nodes"]["picture_in"]["params"]["size"] == vjepa2_tiny.CONFIG.pixels
    assert made.graph["states"]["dream"]["capacity"] == f"{side * side + 2} * horizon"
    _, made = imported(pi05(tmp_path / "pi05", "openpi"))
    assert made.graph["nodes"]["noise"]["params"]["width"] == pi05_tiny.CONFIG.action_width


def test_statistics_of_several_robots_are_told_apart(tmp_path: Path) -> None:
    folder = pi05(tmp_path / "pi05", "openpi")
    (folder / "norm_stats.json").unlink()
    for robot in ("droid", "trossen"):
        (folder / "assets" / robot).mkdir(parents=True)
        (folder / "assets" / robot / "norm_stats.json").write_text(QUANTILES)
    _, made = imported(folder)
    assert made.graph["nodes"]["prompt"]["params"]["robot"] == "droid"
    assert "droid, trossen" in made.warnings[0]


def test_a_vocoder_beside_it_is_found_and_its_absence_told(tmp_path: Path) -> None:
    _, made = imported(orpheus(tmp_path / "orpheus"))
    assert "noise" in made.warnings[0]
    assert made.graph["weights"]["snac"]["source"].startswith("random:")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    snac(tmp_path / "snac_24khz")
    _, made = imported(tmp_path / "orpheus")
    assert made.warnings == ()
    assert made.graph["weights"]["snac"]["source"] == "checkpoint:snac_24khz"


# ── placements ──────────────────────────────────────────────────────────────────────────────────


def test_placements_are_for_the_gpus_at_hand(tmp_path: Path) -> None:
    folder = bagel_tiny.write_folder(tmp_path)
    _, made = imported(folder, with_gpus(LAPTOP, 1, 141 * 10**9))
    assert [placement["name"] for placement in made.placements] == ["bagel_tiny_one_gpu"]
    _, made = imported(folder, with_gpus(LAPTOP, 2, 141 * 10**9))
    names = [placement["name"] for placement in made.placements]
    assert names[0] == "bagel_tiny_one_gpu"
    assert "bagel_tiny_cfg2_two_gpus" in names
    assert "bagel_tiny_cfg3" not in names, "it needs three"
    assert all(placement["graph"] == "bagel_tiny" for placement in made.placements)


def test_what_does_not_fit_is_told_with_its_reason(tmp_path: Path) -> None:
    _, made = imported(bagel_tiny.write_folder(tmp_path), with_gpus(LAPTOP, 1, 2**20))
    assert made.placements == ()
    assert "rank 0" in made.unfit["bagel_tiny_one_gpu"]


# ── what is refused ─────────────────────────────────────────────────────────────────────────────


def refused(folder: Path) -> str:
    with pytest.raises((Refused, NotFound, InvalidInput)) as caught:
        recognise(read(folder))
    return str(caught.value)


def test_pickles_are_refused_with_how_to_convert(tmp_path: Path) -> None:
    folder = written(tmp_path / "o")(llama_json(ORPHEUS["orpheus-tiny"]))
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "pytorch_model.bin" in refused(folder)
    orpheus(folder)
    assert recognise(read(folder)).problems() == [], "beside safetensors, they are passed over"


def converted(folder: Path) -> Recognised:
    """By the command that the refusal tells."""
    command = refused(folder).partition('python -c "')[2].removesuffix('"')
    with contextlib.chdir(folder):
        exec(command, {})
    return recognise(read(folder))


def test_the_command_that_converts_pickles_does(tmp_path: Path) -> None:
    folder = orpheus(tmp_path / "orpheus")
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert converted(folder).problems() == []
    folder = vjepa2_tiny.write_folder(tmp_path)
    parts: dict[str, Any] = {name: load_file(folder / f"{name}.safetensors") for name in ("encoder", "predictor")}
    for path in folder.glob("*.safetensors"):
        path.unlink()
    torch.save({**parts, "epoch": 3, "opt": {"state": {}, "lr": 0.1}}, folder / "vjepa2.pt")
    assert converted(folder).problems() == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama4"}, "the nearest is Orpheus"),
        ({"architectures": ["VJEPA2ForVideoClassification"]}, "the nearest is V-JEPA 2-AC"),
        ({"model_type": "whisper"}, "of no family that can be imported (its config says `whisper`)"),
        ({}, "it has no `config.json`"),
        (llama_json(ORPHEUS_3B) | {"vocab_size": 128256, "speech_tokens": None}, "a Llama that only writes"),
        (llama_json(ORPHEUS_3B) | {"vocab_size": "many"}, '`vocab_size` is "many"'),
        ({"model_type": "llama", "attention_bias": True}, "biases"),
        ({"type": "pi05", "pi05": False}, "it is pi0, not pi0.5"),
        ({"paligemma_variant": "gemma_9b"}, '"gemma_9b"'),
        ({"model_type": "bagel"}, "nor `llm_config`"),
    ],
)
def test_folders_of_others_are_refused_by_name(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    folder = written(tmp_path / "f")(config) if config else tmp_path
    save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
    assert said in refused(folder)


def test_files_that_are_not_whole_are_told_by_name(tmp_path: Path) -> None:
    folder = orpheus(tmp_path / "o")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for data, said in (
        (whole[:-10], "ends too early"),
        (b"short", "no safetensors file"),
        (len(b"{]xx").to_bytes(8, "little") + b"{]xx", "header of `model.safetensors` is broken"),
        ((2**40).to_bytes(8, "little") + b"{}", "no safetensors file"),
    ):
        path.write_bytes(data)
        assert said in refused(folder)
    path.unlink()
    assert "without weights" in refused(folder)
    for index, said in (({"a": "gone.safetensors"}, "gone.safetensors"), ({"a": "../x.safetensors"}, "outside")):
        written(folder, "model.safetensors.index")({"weight_map": index})
        assert said in refused(folder)
    (folder / "config.json").write_text("{")
    assert "`config.json` is not valid JSON" in refused(folder)
    assert "is no folder" in refused(tmp_path / "nowhere")


# ── what could be imported and not loaded ───────────────────────────────────────────────────────


def changed(folder: Path, file: str, *, without: str = "", **entries: Any) -> Path:
    path = folder / file
    document = {key: value for key, value in json.loads(path.read_text()).items() if key != without}
    path.write_text(json.dumps({**document, **entries}))
    return folder


def rewritten(folder: Path, file: str, text: str) -> Path:
    (folder / file).write_text(text)
    return folder


def processors(folder: Path, mode: str) -> Path:
    """lerobot's, in the place of openpi's statistics."""
    (folder / "norm_stats.json").unlink()
    for file, step, key in (
        ("policy_preprocessor", "normalizer_processor", "STATE"),
        ("policy_postprocessor", "unnormalizer_processor", "ACTION"),
    ):
        entry = {"registry_name": step, "state_file": f"{step}.safetensors", "config": {"norm_map": {key: mode}}}
        (folder / f"{file}.json").write_text(json.dumps({"steps": [entry]}))
        name = {"STATE": "observation.state", "ACTION": "action"}[key]
        state = {f"{name}.{which}": torch.linspace(0, 1, 7) for which in ("q01", "q99", "mean", "std")}
        save_file(state, folder / f"{step}.safetensors")
    return folder


MEAN = json.dumps({"norm_stats": {name: {"mean": [0.0], "std": [1.0]} for name in ("state", "actions")}})
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a rotation of another kind": (
        lambda root: changed(orpheus(root / "o"), "config.json", rope_scaling={"rope_type": "yarn", "factor": 4}),
        '`rope_scaling.rope_type` is "yarn", and only "default" or "llama3" can be run',
    ),
    "a stretch without its factor": (
        lambda root: changed(orpheus(root / "o"), "config.json", rope_scaling={"rope_type": "llama3"}),
        "`rope_scaling.factor` is missing in the config, and must be a number from 1",
    ),
    "another activation": (
        lambda root: changed(orpheus(root / "o"), "config.json", hidden_act="gelu"),
        '`hidden_act` is "gelu", and only "silu" can be run',
    ),
    "no epsilon": (
        lambda root: changed(orpheus(root / "o"), "config.json", without="rms_norm_eps"),
        "`rms_norm_eps` is missing in the config, and must be a number above 0 to 1",
    ),
    "a tokenizer that is none": (
        lambda root: rewritten(orpheus(root / "o"), "tokenizer.json", "{}"),
        "`tokenizer.json` is not a readable tokenizer",
    ),
    "merges that are none": (
        lambda root: rewritten(bagel_tiny.write_folder(root), "merges.txt", "#version: 0.2\nh e\nthree of them\n"),
        "line 3 of `merges.txt` is no merge of two pieces of `vocab.json`",
    ),
    "merges of other pieces": (
        lambda root: rewritten(bagel_tiny.write_folder(root), "merges.txt", "q z\n"),
        "line 1 of `merges.txt` is no merge",
    ),
    "other special tokens": (
        lambda root: rewritten(bagel_tiny.write_folder(root), "tokenizer_config.json", "{}"),
        "no token `<|im_start|>`",
    ),
    "another vision tower": (
        lambda root: changed(bagel_tiny.write_folder(root), "vit_config.json", hidden_act="quick_gelu"),
        '`vit_config.hidden_act` is "quick_gelu"',
    ),
    "mean and deviation, as lerobot has them": (
        lambda root: processors(pi05(root / "p", "lerobot"), "MEAN_STD"),
        "scales `observation.state` by MEAN_STD, and only QUANTILES can be run",
    ),
    "mean and deviation, as openpi has them": (
        lambda root: rewritten(pi05(root / "p", "openpi"), "norm_stats.json", MEAN),
        "has no quantiles `q01` and `q99` of `state` and `actions` (it has mean and deviation",
    ),
    "periods that end before they begin": (
        lambda root: changed(pi05(root / "p", "openpi"), "config.json", periods=[4.0, 4e-3]),
        "the shortest of `periods` must be below the longest",
    ),
    "a billion layers": (
        lambda root: changed(orpheus(root / "o"), "config.json", num_hidden_layers=1_000_000_000),
        "`num_hidden_layers` is 1000000000 in the config, and must be a whole number from 1 to 1024",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_be_loaded_is_not_imported(tmp_path: Path, case: str) -> None:
    make_folder, said = REFUSED[case]
    try:
        told = " ".join(recognise(read(make_folder(tmp_path))).problems())
    except InvalidInput as error:
        told = str(error)
    assert said in told


def test_quantiles_of_lerobots_processors_are_read(tmp_path: Path) -> None:
    assert recognise(read(processors(pi05(tmp_path / "p", "lerobot"), "QUANTILES"))).problems() == []


def test_a_robot_whose_statistics_can_be_read_is_taken(tmp_path: Path) -> None:
    folder = pi05(tmp_path / "pi05", "openpi")
    (folder / "norm_stats.json").unlink()
    for robot, text in (("arx", MEAN), ("droid", QUANTILES)):
        (folder / "assets" / robot).mkdir(parents=True)
        (folder / "assets" / robot / "norm_stats.json").write_text(text)
    _, made = imported(folder)
    assert made.graph["nodes"]["prompt"]["params"]["robot"] == "droid"


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2, torch.int32])
def test_numbers_without_their_scale_are_refused_by_import_and_by_loading(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = orpheus(tmp_path / "o")
    path, name = folder / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    state = load_file(path)
    save_file({**state, name: state[name].to(dtype)}, path)
    (problem,) = recognise(read(folder)).problems()
    assert f"`{name}` holds " in problem
    assert f"no scale of it (`{name}_scale`) is there: bring it in BF16, F16 or F32" in problem
    with pytest.raises(InvalidInput, match=rf"`{name}` holds .* bring it in BF16"):
        load_llama(folder, read_orpheus(folder).llm)


def test_a_vocoder_in_eight_bits_is_refused_too(tmp_path: Path) -> None:
    folder = snac(tmp_path / "snac")
    state = load_file(folder / "model.safetensors")
    name = "quantizer.quantizers.0.codebook.weight"
    save_file({**state, name: state[name].to(torch.int8)}, folder / "model.safetensors")
    with pytest.raises(InvalidInput, match=rf"`{name}` holds I8|`{name}` holds int8"):
        load_snac(folder)
    _, made = imported(orpheus(tmp_path / "orpheus"))
    assert f"`{name}` holds I8 numbers" in made.warnings[0]
    assert "noise" in made.warnings[0]
    assert made.graph["weights"]["snac"]["source"].startswith("random:")


@pytest.mark.parametrize("config", [SNAC["snac-tiny"], SNAC["snac-24khz"]], ids=["tiny", "24khz"])
@pytest.mark.parametrize("change", [{}, {"noise": False}, {"depthwise": False}], ids=str)
def test_snacs_tensors_are_those_of_its_network(tmp_path: Path, config: Any, change: dict[str, Any]) -> None:
    config = dataclasses.replace(config, **change)
    written(tmp_path)({name: list(v) if isinstance(v, tuple) else v for name, v in vars(config).items()})
    (part,) = vocoder.parts(read(tmp_path))
    assert dict(part.expected) == shapes(lambda: Snac(config))


def test_shards_without_an_index_are_read_and_loaded(tmp_path: Path) -> None:
    folder = pi05_tiny.write_folder(tmp_path / "p", "lerobot", shards=3)
    tokenizer(folder)
    (folder / "norm_stats.json").write_text(QUANTILES)
    (folder / "model.safetensors.index.json").unlink()
    assert recognise(read(folder)).problems() == []
    load_pi05(folder, read_pi05(folder))
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "has 2 of 3 shards of `model` and lacks `model-00002-of-00003.safetensors`" in refused(folder)
    with pytest.raises(NotFound, match="lacks `model-00002-of-00003"):
        load_pi05(folder, read_pi05(folder))


def test_an_index_that_promises_too_much_is_refused_by_import_and_by_loading(tmp_path: Path) -> None:
    folder = pi05(tmp_path / "p", "lerobot")
    index = folder / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": {**where, "model.ghost": "model-00001-of-00002.safetensors"}}))
    said = "says that `model.ghost` is in `model-00001-of-00002.safetensors`, which lacks it"
    assert said in refused(folder)
    with pytest.raises(InvalidInput, match=said):
        load_pi05(folder, read_pi05(folder))


def test_vocabularies_of_any_size_lie_beside_the_weights(tmp_path: Path) -> None:
    folder = bagel_tiny.write_folder(tmp_path)
    (folder / "generation.json").write_text('{"any": [' + "0," * 2_000_000 + "0]}")
    assert recognise(read(folder)).problems() == []


def test_placements_that_are_made_name_memory_and_leave_room(tmp_path: Path) -> None:
    folder = vjepa2_tiny.write_folder(tmp_path)
    _, made = imported(folder)
    (placement,) = made.placements
    assert placement["groups"] == [{"nodes": ["*"], "ranks": [0], "memory": placement["groups"][0]["memory"]}]
    left, sizes = LAPTOP, find_sizes(families(), (tmp_path,))
    for _ in range(3):
        result = plan(codec.load(made.graph), decode(placement), left, catalogue(), sizes)
        assert result.plan is not None
        assert {problem.code for problem in result.problems} == set()
        left = reserve(left, [result.plan])
    assert left.devices[0].free > LAPTOP.devices[0].free // 2


def test_a_placement_on_a_gpu_takes_what_the_bundled_one_takes(tmp_path: Path) -> None:
    for card in (24 * 10**9, 80 * 10**9, 141 * 10**9):
        _, made = imported(vjepa2_tiny.write_folder(tmp_path / str(card)), with_gpus(LAPTOP, 1, card))
        assert made.placements[0]["groups"][0]["memory"] == "75%"


def test_names_of_graphs_are_made_of_folders(tmp_path: Path) -> None:
    assert graph_name("BAGEL-7B-MoT") == "bagel_7b_mot"
    assert graph_name("3b.ft") == "model_3b_ft"
    folder = bagel_tiny.write_folder(tmp_path).rename(tmp_path / "a b")
    with pytest.raises(InvalidInput, match="rename the folder"):
        make(recognise(read(folder)), None, LAPTOP)


def test_nothing_of_it_imports_torch() -> None:
    code = "import sys\nfrom walkgraph.importing import making, recognising\nrecognising.known()\n"
    code += "print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_a_folder_tells_its_tensors(tmp_path: Path) -> None:
    contents: Contents = read(orpheus(tmp_path / "o"))
    found = recognise(contents)
    assert found.bytes == 4 * found.parameters
    assert set(found.dtypes) == {"F32"}
