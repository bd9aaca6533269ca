"""The published folder: which tensors it has to have, in both layouts, and checkpoints without a talker."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.golden.qwen3_omni import whole
from tests.golden.qwen3_omni.published import CONFIG, NUMBERS, TENSORS
from tests.support.checkpoints import LAPTOP, imported
from walkgraph.checkpoints.contents import read
from walkgraph.components import families
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec
from walkgraph.graph.document import Weights
from walkgraph.importing.recognising import recognise
from walkgraph.layers.unset import unset
from walkgraph.models.qwen3_omni import parts
from walkgraph.models.qwen3_omni.config import read_omni
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_TINY, read_audio
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.presets import OMNI
from walkgraph.models.qwen3_omni.seeing.config import VISION_TINY, read_vision
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder
from walkgraph.models.qwen3_omni.tensors import published_tensors
from walkgraph.placement.hardware import with_gpus
from walkgraph.placement.sizes import find_sizes

TINY = OMNI["qwen3-omni-tiny"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return whole.folder(tmp_path)


def changed(folder: Path, **config: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return folder


def renamed(folder: Path, rename: Any) -> Path:
    path = folder / "model.safetensors"
    state = load_file(path)
    save_file({rename(name): tensor for name, tensor in state.items() if rename(name)}, path)
    return folder


def test_the_published_folder_has_every_tensor_that_its_config_requires(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    config, audio, vision = read_omni(tmp_path), read_audio(tmp_path), read_vision(tmp_path)
    assert config == OMNI["qwen3-omni-30b-a3b"]
    found = published_tensors(config, audio, vision)
    assert (len(found), sum(math.prod(shape) for shape in found.values())) == (TENSORS, NUMBERS)


def test_the_tables_are_those_of_the_networks() -> None:
    with unset():
        built = {parts.AUDIO: AudioEncoder(AUDIO_TINY), parts.VISION: VisionEncoder(VISION_TINY)}
    found = published_tensors(TINY, AUDIO_TINY, VISION_TINY)
    for part, network in built.items():
        mine = {name: shape for name, shape in found.items() if parts.part_of(name) == part}
        own = {f"{parts.PREFIXES[part]}{name}": tuple(one.shape) for name, one in network.state_dict().items()}
        assert mine == own


def test_both_layouts_are_recognised(folder: Path) -> None:
    plain, _ = imported(folder)

    def nested(name: str) -> str:
        inner = re.sub(r"^thinker\.(audio_tower|visual)\.", r"thinker.model.\1.", name)
        return re.sub(r"^thinker\.model\.(?!audio_tower|visual)", "thinker.model.language_model.", inner)

    later, made = imported(renamed(folder, nested))
    assert later.parameters == plain.parameters
    assert later.family.name == "qwen3_omni"
    assert made.graph["weights"]["omni"]["source"] == "checkpoint:whole"


def test_each_part_has_its_size(folder: Path) -> None:
    known = find_sizes(families(), [folder.parent])(Weights(family="qwen3_omni", source="checkpoint:whole"))
    drawn = find_sizes(families())(Weights(family="qwen3_omni", source="random:qwen3-omni-tiny:0"))
    # Loading multiplies the vocoder's scales into other weights.
    close = {part: pytest.approx(count, rel=0.01) for part, count in drawn.numbers.items()}
    assert dict(known.numbers) == close
    assert known.caches == drawn.caches


@pytest.mark.parametrize(
    ("config", "spoken"),
    [({"enable_audio_output": False}, False), ({"talker_config": None}, False), ({"enable_audio_output": False}, True)],
)
def test_a_checkpoint_without_a_talker_only_writes(folder: Path, config: dict[str, Any], spoken: bool) -> None:
    changed(folder, **config)
    if not spoken:
        renamed(folder, lambda name: "" if name.startswith(("talker.", "code2wav.")) else name)
    _, made = imported(folder)
    graph = codec.load(made.graph)
    assert {task.outputs for task in graph.tasks.values()} == {("text",)}
    assert not {"talker", "projection", "code_predictor", "code2wav", "audio_out", "script"} & graph.nodes.keys()
    assert graph.tasks.keys() == {"chat", "converse", "watch"}
    assert graph.streams == ()
    assert "speech" not in graph.description
    assert graph.tasks["chat"].params["system_prompt"].default == ""
    assert any("no talker" in line for line in made.warnings)


def test_a_model_that_only_writes_is_placed_on_two_gpus_with_its_encoders_apart(folder: Path) -> None:
    changed(folder, talker_config=None)
    renamed(folder, lambda name: "" if name.startswith(("talker.", "code2wav.")) else name)
    _, made = imported(folder, with_gpus(LAPTOP, 2, 141 * 10**9))
    assert made.unfit == {}
    one, two = made.placements
    assert [one["name"], two["name"]] == ["whole_one_gpu", "whole_encoders_apart_two_gpus"]
    apart = next(group for group in two["groups"] if group["ranks"] == [1])
    assert set(apart["nodes"]) == {"audio_encoder", "vision_encoder", "video_encoder", "track_encoder"}


def test_one_that_speaks_has_both_placements_on_two_gpus(folder: Path) -> None:
    _, made = imported(folder, with_gpus(LAPTOP, 2, 141 * 10**9))
    names = [document["name"] for document in made.placements]
    assert names == ["whole_one_gpu", "whole_encoders_apart_two_gpus", "whole_two_gpus"]
    assert made.unfit == {}


def test_voices_and_contexts_are_those_of_the_config(folder: Path) -> None:
    document = json.loads((folder / "config.json").read_text())
    document["talker_config"]["speaker_id"] = {"Una": 76, "duo": 77}
    document["thinker_config"]["text_config"]["max_position_embeddings"] = 600
    changed(folder, **document)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.4}))
    _, made = imported(folder)
    for task in made.graph["tasks"].values():
        assert task["params"]["speaker"]["choices"] == ["duo", "una"]
        assert task["params"]["speaker"]["default"] == "duo"
        assert task["params"]["context"]["max"] == 600
        assert 512 <= task["params"]["context"]["default"] <= 600
        if "temperature" in task["params"]:
            assert task["params"]["temperature"]["default"] == 0.4
    assert "temperature" not in made.graph["tasks"]["say"]["params"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("thinker.lm_head.weight", "lacks"),
        ("thinker.visual.merger_list.2.ln_q.weight", "lacks"),
        ("talker.model.layers.1.mlp.shared_expert_gate.weight", "lacks"),
        ("code2wav.decoder.6.conv.weight", "lacks"),
    ],
)
def test_a_missing_tensor_is_named(folder: Path, name: str, said: str) -> None:
    renamed(folder, lambda one: "" if one == name else one)
    (problem,) = recognise(read(folder)).problems()
    assert said in problem
    assert name in problem


def test_a_misshapen_tensor_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({**load_file(path), "talker.codec_head.weight": torch.zeros(2, 3), "odd": torch.zeros(1)}, path)
    told = " ".join(recognise(read(folder)).problems())
    assert "`talker.codec_head.weight` is 2 x 3" in told
    assert "`odd`" in told


def test_a_whole_config_without_a_part_is_refused(folder: Path) -> None:
    changed(folder, code2wav_config=None)
    with pytest.raises(InvalidInput, match="code2wav_config"):
        read_omni(folder)
