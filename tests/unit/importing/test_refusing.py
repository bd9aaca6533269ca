"""Checkpoints that can't be loaded are not imported, with the same message; imported ones leave memory for others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.golden import bagel_tiny, pi05_tiny, vjepa2_tiny
from tests.support.checkpoints import (
    LAPTOP,
    QUANTILES,
    imported,
    orpheus,
    pi05,
    refused,
    shapes,
    snac,
    tokenizer,
    written,
)
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.checkpoints.contents import read
from walkgraph.components import catalogue, families
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph import codec
from walkgraph.importing.recognising import recognise
from walkgraph.models.orpheus.config import read_orpheus
from walkgraph.models.pi05.config import read_pi05
from walkgraph.models.pi05.weights import load_pi05
from walkgraph.models.snac.importing import COMPANION
from walkgraph.models.snac.model import SNAC, Snac, load_snac
from walkgraph.placement.document import decode
from walkgraph.placement.hardware import reserve, with_gpus
from walkgraph.placement.plan import plan
from walkgraph.placement.sizes import find_sizes


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
        "line 3 of `merges.txt` is not a merge of two pieces of `vocab.json`",
    ),
    "merges of other pieces": (
        lambda root: rewritten(bagel_tiny.write_folder(root), "merges.txt", "q z\n"),
        "line 1 of `merges.txt` is not a merge",
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
    assert f"no scale of it (`{name}_scale`) is there: convert it to BF16, F16 or F32" in problem
    with pytest.raises(InvalidInput, match=rf"`{name}` holds .* convert it to BF16"):
        load_language_model(folder, read_orpheus(folder).llm)


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
    (part,) = COMPANION.parts(read(tmp_path))
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
