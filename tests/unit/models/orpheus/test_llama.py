"""The Llama against logits that `transformers` gave for the same weights (`tests/golden/make_llama.py`), and its
loader of the public layout."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.checkpoints.decoder import LongContext
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.components import families
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.document import Weights
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.layers.rope import neox_frequencies
from walkgraph.models.orpheus.config import ORPHEUS_3B, OrpheusConfig, SpeechTokens, read_orpheus
from walkgraph.models.orpheus.presets import ORPHEUS, orpheus_config, text_edges
from walkgraph.placement.sizes import find_sizes

GOLDEN = Path(__file__).parents[3] / "golden" / "llama"
CONFIG = read_orpheus(GOLDEN).llm
PAGE = 16


@pytest.fixture(scope="module")
def answers() -> dict[str, Tensor]:
    return load_file(GOLDEN / "answers.safetensors")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return load_language_model(GOLDEN, CONFIG)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that a test may change."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, tmp_path / name)
    return tmp_path


def distance(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


def whole(model: LanguageModel, ids: Tensor) -> Tensor:
    """ids `[B, L]` -> logits `[B, L, V]` by one forward of all rows."""
    with torch.inference_mode():
        attend = PackedAttend((ids.shape[1],), mask=causal_mask(ids.shape[1]))
        positions = torch.arange(ids.shape[1]).repeat(len(ids))
        return model(ids.flatten(), positions, attend).view(*ids.shape, -1)


def slot_of(model: LanguageModel, rows: int, pages: int) -> PagedSlot:
    """Empty caches for `rows` sequences; a sequence's pages are scattered."""
    shape = ((rows * pages + 1) * PAGE, model.config.kv_heads, model.config.head_dim)
    k, v = ([torch.zeros(shape) for _ in range(model.config.layers)] for _ in "kv")
    table = (torch.randperm(rows * pages, generator=torch.Generator().manual_seed(0)) + 1).to(torch.int32)
    none = torch.zeros(rows, dtype=torch.int32)
    return PagedSlot(k, v, PagedRows(torch.arange(rows).int(), table.view(rows, pages), none, none.clone()))


def test_a_prefill_gives_the_logits_of_the_reference(model: LanguageModel, answers: dict[str, Tensor]) -> None:
    assert distance(whole(model, answers["ids"]), answers["logits"]) < 1e-5


def test_every_step_gives_the_logits_of_the_reference(model: LanguageModel, answers: dict[str, Tensor]) -> None:
    ids, wanted = answers["ids"], answers["logits"]
    slot = slot_of(model, len(ids), ids.shape[1] // PAGE)
    with torch.inference_mode():
        for at in range(ids.shape[1]):
            logits = model.step(ids[:, at], slot)
            assert distance(logits, wanted[:, at]) < 1e-4, at
            slot.rows.lengths.add_(1)
            slot.rows.positions.add_(1)


def test_the_scaling_of_positions_matters_to_these_logits(answers: dict[str, Tensor]) -> None:
    """So that a loader that overlooks it would be found."""
    plain = load_language_model(GOLDEN, LanguageConfig(**{**vars_of(CONFIG), "scaling": None}))
    assert distance(whole(plain, answers["ids"]), answers["logits"]) > 0.01


def vars_of(config: Any) -> dict[str, Any]:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def test_frequencies_are_those_of_the_published_rule() -> None:
    """Llama 3's rule, dimension by dimension: kept, divided, or mixed by where the wave length lies."""
    scaling = LongContext(factor=32.0, low=1.0, high=4.0, original=8192)
    got = neox_frequencies(128, 5e5, scaling)
    assert got.dtype == torch.float32
    wanted = []
    for i in range(64):
        f = 5e5 ** (-2 * i / 128)
        wave = 2 * math.pi / f
        if wave < 8192 / 4:
            wanted.append(f)
        elif wave > 8192:
            wanted.append(f / 32)
        else:
            part = (8192 / wave - 1) / 3
            wanted.append((1 - part) * f / 32 + part * f)
    torch.testing.assert_close(got.double(), torch.tensor(wanted, dtype=torch.float64), rtol=1e-5, atol=0)
    assert sum(abs(float(g) / w - 1) < 1e-6 for g, w in zip(neox_frequencies(128, 5e5), wanted, strict=True)) < 40


def test_shards_and_their_index_are_read(folder: Path, model: LanguageModel) -> None:
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, places = sorted(state), {}
    for index, part in enumerate((names[::2], names[1::2])):
        file = f"model-0000{index + 1}-of-00002.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    loaded = load_language_model(folder, CONFIG).state_dict()
    assert loaded.keys() == model.state_dict().keys() == state.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in state.items())
    shape = find_sizes(families(), [folder.parent])(Weights(family="orpheus", source=f"checkpoint:{folder.name}"))
    assert shape.numbers["model"] == sum(tensor.numel() for tensor in state.values())
    assert shape.caches["orpheus.backbone"] == 2 * 2 * 2 * 16


def test_a_tied_head_is_the_table_and_an_untied_one_its_own(folder: Path, answers: dict[str, Tensor]) -> None:
    state = load_file(folder / "model.safetensors")
    head = state["model.embed_tokens.weight"]
    save_file({**state, "lm_head.weight": head.clone()}, folder / "model.safetensors")
    assert distance(whole(load_language_model(folder, CONFIG), answers["ids"]), answers["logits"]) < 1e-5
    public = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**public, "tie_word_embeddings": False}))
    save_file({**state, "lm_head.weight": 2 * head}, folder / "model.safetensors")
    untied = read_orpheus(folder).llm
    assert not untied.tied
    assert distance(whole(load_language_model(folder, untied), answers["ids"]), 2 * answers["logits"]) < 1e-5
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"missing tensor `lm_head\.weight`"):
        load_language_model(folder, untied)


def test_a_tensor_too_many_or_too_few_is_refused(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    save_file({**state, "model.layers.9.mlp.up_proj.weight": torch.ones(1)}, folder / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"unknown tensor `model\.layers\.9"):
        load_language_model(folder, CONFIG)
    del state["model.layers.1.self_attn.k_proj.weight"]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"missing tensor `model\.layers\.1\.self_attn\.k_proj"):
        load_language_model(folder, CONFIG)


def test_older_and_newer_files_describe_the_same_positions() -> None:
    public = json.loads((GOLDEN / "config.json").read_text())
    rope = dict(public.pop("rope_parameters"))
    older = {**public, "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    assert LanguageConfig.published(Fields(older)) == CONFIG
    bare = LanguageConfig.published(Fields({**public, "rope_theta": 1e4, "rope_scaling": None, "head_dim": None}))
    assert (bare.scaling, bare.rope_theta, bare.head_dim) == (None, 1e4, 12)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "qwen2"},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}},
        {"num_key_value_heads": 3},
        {"hidden_size": None},
        {"vocab_size": 100},
        {"speech_tokens": {"audio_bass": 3}},
    ],
)
def test_a_config_of_something_else_is_refused_by_the_folders_name(folder: Path, change: dict[str, Any]) -> None:
    public = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**public, **change}))
    with pytest.raises(InvalidInput, match=folder.name):
        read_orpheus(folder)


def test_the_published_config_is_the_preset(tmp_path: Path) -> None:
    """Sizes of the model card, and the special tokens where the file names none."""
    llama3 = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    public = {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 156940,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "rope_scaling": llama3,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(public))
    assert read_orpheus(tmp_path) == ORPHEUS_3B


def test_shapes_of_random_sources_are_those_of_the_modules() -> None:
    sizes = find_sizes(families())
    for name, config in ORPHEUS.items():
        with torch.device("meta"):
            numbers = sum(p.numel() for p in LanguageModel(config.llm).parameters())
        known = sizes(Weights(family="orpheus", source=f"random:{name}:0"))
        assert known.numbers["model"] == numbers
        assert known.caches["orpheus.backbone"] == 2 * config.llm.layers * config.llm.kv_heads * config.llm.head_dim


def test_names_are_looked_up_in_the_family() -> None:
    assert text_edges("orpheus-tiny") == (256, 257)
    with pytest.raises(NotFound, match="orpheus-tiny"):
        orpheus_config("bagel-tiny")
    with pytest.raises(NotFound, match="orpheus-tiny"):
        text_edges("bagel-tiny")


def test_audio_tokens_must_lie_in_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="156938"):
        OrpheusConfig(llm=LanguageConfig(**{**vars_of(ORPHEUS_3B.llm), "vocab": 156937}))
    assert SpeechTokens.after_bytes(64).vocab == 263 + 7 * 64
