"""Public checkpoints become graphs and placements: tables of tensors against the networks themselves, folders in the
public layouts, and what is said of those that don't fit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.golden import bagel_tiny, llm_tiny, pi05_tiny, vjepa2_tiny
from tests.support.checkpoints import (
    LAPTOP,
    QUANTILES,
    imported,
    language_model,
    llama_json,
    orpheus,
    pi05,
    refused,
    shapes,
    snac,
    written,
)
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.checkpoints.contents import Contents, read
from walkgraph.checkpoints.known_templates import digest
from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.graph.check import check
from walkgraph.importing.making import graph_name, make
from walkgraph.importing.recognising import Recognised, known, recognise
from walkgraph.models.bagel.config import BAGEL_7B_MOT, bagel_json
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.llm.config import read_llm
from walkgraph.models.orpheus.config import ORPHEUS_3B, OrpheusConfig
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.models.pi05.config import PI05_BASE, pi05_json
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.presets import PI05
from walkgraph.models.vjepa2.config import VJEPA2_AC_VITG, vjepa2_json
from walkgraph.models.vjepa2.model import Vjepa2Encoder, Vjepa2Predictor
from walkgraph.models.vjepa2.presets import VJEPA2
from walkgraph.placement.hardware import with_gpus

CHECKPOINTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "bagel": ("bagel", bagel_tiny.write_folder),
    "orpheus": ("orpheus", lambda root: orpheus(root / "orpheus-tiny")),
    **{kind: ("llm", partial(language_model, kind)) for kind in llm_tiny.CONFIGS},
    "openpi": ("pi05", lambda root: pi05(root / "pi05-openpi", "openpi")),
    "lerobot": ("pi05", lambda root: pi05(root / "pi05-lerobot", "lerobot")),
    "vjepa2": ("vjepa2", vjepa2_tiny.write_folder),
}


# ── the tables against the networks ─────────────────────────────────────────────────────────────


def of_config(family: str, folder: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    contents = read(folder)
    return {part.stem: dict(part.expected) for part in known()[family].parts(contents)}


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
    assert found == {"model": shapes(lambda: LanguageModel(config.llm))}


@pytest.mark.parametrize("kind", llm_tiny.CONFIGS)
def test_a_language_models_tensors_are_those_of_its_network(tmp_path: Path, kind: str) -> None:
    found = of_config("llm", written(tmp_path)(dict(llm_tiny.CONFIGS[kind])))
    assert found == {"model": shapes(lambda: LanguageModel(read_llm(tmp_path).llm))}


def test_a_llama_is_orpheus_where_its_vocabulary_ends_in_audio_tokens(tmp_path: Path) -> None:
    def family(number: int, **changed: Any) -> str:
        folder = written(tmp_path / str(number))(llama_json(ORPHEUS_3B) | {"speech_tokens": None} | changed)
        if "added" in changed:
            tokens = [{"id": 5, "content": changed["added"]}]
            (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
        save_file({"x": torch.zeros(1)}, folder / "model.safetensors")
        return recognise(read(folder)).family.name

    assert family(0) == "orpheus"
    assert family(1, added="<custom_token_7>") == "orpheus"
    assert family(2, added="<|im_end|>", vocab_size=256000) == "llm"
    assert family(3, vocab_size=128256) == "llm"
    assert family(4, vocab_size=156937) == "llm"
    assert family(5, vocab_size=156938, architectures=["LlamaForCausalLM"], model_type=None) == "orpheus"


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
    bare = bare if family not in ("orpheus", "llm") else {gone: gone, odd: odd}
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
    with pytest.raises(InvalidInput, match="no graph can serve the config of `pi05`"):
        make(dataclasses.replace(found, contents=read(folder)), None, LAPTOP)


def test_sizes_of_the_config_are_those_of_the_graph(tmp_path: Path) -> None:
    side = vjepa2_tiny.CONFIG.side
    _, made = imported(vjepa2_tiny.write_folder(tmp_path))
    wanted = {"size": vjepa2_tiny.CONFIG.pixels, "crop": True, "resample": "bilinear"}
    assert made.graph["nodes"]["picture_in"]["params"] == wanted
    assert made.graph["states"]["dream"]["capacity"] == f"{side * side + 2} * horizon"
    _, made = imported(pi05(tmp_path / "pi05", "openpi"))
    assert made.graph["nodes"]["noise"]["params"]["width"] == pi05_tiny.CONFIG.action_width


def test_a_language_models_task_has_the_folders_defaults(tmp_path: Path) -> None:
    folder = language_model("qwen3", tmp_path)
    config = {**llm_tiny.CONFIGS["qwen3"], "max_position_embeddings": 40960}
    (folder / "config.json").write_text(json.dumps(config))
    generation = {"temperature": 0.6, "top_p": 0.95, "top_k": 30, "do_sample": True, "eos_token_id": [3, 4]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    _, made = imported(folder)
    params = made.graph["tasks"]["complete"]["params"]
    assert (params["temperature"]["default"], params["top_p"]["default"], params["top_k"]["default"]) == (0.6, 0.95, 30)
    assert (params["max_prompt"]["max"], params["max_prompt"]["default"]) == (40960, 4096)
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 100}))
    (folder / "generation_config.json").write_text('{"do_sample": false}')
    _, made = imported(folder)
    params = made.graph["tasks"]["complete"]["params"]
    assert params["temperature"]["default"] == 0
    assert [params[name][key] for name in ("max_prompt", "max_tokens") for key in ("default", "max")] == [100] * 4
    (folder / "generation_config.json").write_text('{"temperature": 9}')
    with pytest.raises(InvalidInput, match="`temperature` is 9"):
        imported(folder)


def test_a_language_models_chat_template_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = language_model("qwen3", tmp_path)
    _, made = imported(folder)
    assert list(made.graph["tasks"]) == ["complete"]
    assert f"`{folder.name}` has no chat template, so the graph continues texts and has no task `chat`" in made.warnings
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    _, made = imported(folder)
    assert list(made.graph["tasks"]) == ["complete"]
    assert "is not known here, so the graph" in made.warnings[0]
    monkeypatch.setattr("walkgraph.checkpoints.known_templates.DIGESTS", {digest("{{ messages }}"): "qwen3"})
    (folder / "generation_config.json").write_text('{"temperature": 0.6}')
    _, made = imported(folder)
    assert made.warnings == ()
    assert made.graph["nodes"]["chat_prompt"]["params"]["template"] == "qwen3"
    defaults = [task["params"]["temperature"]["default"] for task in made.graph["tasks"].values()]
    assert defaults == [0.6, 0.6]


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


def test_pickles_are_refused_with_how_to_convert(tmp_path: Path) -> None:
    folder = written(tmp_path / "o")(llama_json(ORPHEUS["orpheus-tiny"]))
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "pytorch_model.bin" in refused(folder)
    orpheus(folder)
    assert recognise(read(folder)).problems() == [], "beside safetensors, they are passed over"


@pytest.mark.parametrize("name", ["$(touch made).bin", "a';import os;'.pt", "a b.pth", '".pt', "`id`.ckpt", "-c.pt"])
def test_no_command_is_shown_with_a_name_that_a_shell_could_read_as_more(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path / "o")(llama_json(ORPHEUS["orpheus-tiny"]))
    (folder / name).write_bytes(b"\x80\x04.")
    assert "python -c" not in refused(folder)


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
        ({"model_type": "llama4"}, "the nearest is Language model"),
        ({"model_type": "qwen3_next"}, "the nearest is Language model"),
        ({"architectures": ["VJEPA2ForVideoClassification"]}, "the nearest is V-JEPA 2-AC"),
        ({"model_type": "whisper"}, "not of a family that can be imported (its config says `whisper`)"),
        ({}, "it has no `config.json`"),
        (llama_json(ORPHEUS_3B) | {"vocab_size": 128256, "speech_tokens": {"bos": 3}}, "a Llama that only writes"),
        (llm_tiny.CONFIGS["mistral"] | {"sliding_window": 4096}, "a sliding window"),
        (llm_tiny.CONFIGS["qwen3"] | {"layer_types": ["full_attention", "sliding_attention"]}, "a sliding window"),
        (llm_tiny.CONFIGS["qwen3"] | {"attention_bias": True}, "biases"),
        (llm_tiny.CONFIGS["qwen3"] | {"rope_scaling": {"rope_type": "yarn"}}, '"yarn"'),
        (llm_tiny.CONFIGS["qwen3_moe"] | {"num_experts_per_tok": 9}, "can't choose 9 of 8 experts"),
        (llm_tiny.CONFIGS["qwen3_moe"] | {"num_experts": 4096, "num_hidden_layers": 64}, "at most 65536"),
        (llm_tiny.CONFIGS["llama"] | {"eos_token_id": 160}, "`eos_token_id` is 160"),
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
        (b"short", "not a safetensors file"),
        (len(b"{]xx").to_bytes(8, "little") + b"{]xx", "header of `model.safetensors` is broken"),
        ((2**40).to_bytes(8, "little") + b"{}", "not a safetensors file"),
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
    assert "is not a folder" in refused(tmp_path / "nowhere")


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
