"""Loading the public layout: whole, sharded, strict, and in words when it does not fit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.golden import bagel_tiny
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.weights import Names, load
from walkgraph.checkpoints.files import files
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.models.bagel.config import BAGEL_7B_MOT, SpecialTokens, bagel_json, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.weights import load_autoencoder, load_bagel

torch.set_num_threads(1)
TINY = BAGEL["bagel-tiny"]


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn(lambda: Bagel(TINY), 3, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def folder(tmp_path: Path, model: Bagel) -> Path:
    (tmp_path / "config.json").write_text(bagel_json(TINY))
    save_file(model.state_dict(), tmp_path / "ema.safetensors")
    return tmp_path


def test_what_was_saved_is_loaded(folder: Path, model: Bagel) -> None:
    seen: list[int] = []
    loaded = load_bagel(folder, read_bagel(folder), progress=seen.append)
    assert loaded.config == TINY
    for (name, want), (got_name, got) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert name == got_name
        assert torch.equal(want, got)
    assert sum(seen) == sum(t.nbytes for t in model.state_dict().values())
    assert not any(p.requires_grad for p in loaded.parameters())


def test_a_dtype_is_cast_to(folder: Path) -> None:
    loaded = load_bagel(folder, TINY, dtype=torch.bfloat16)
    assert {t.dtype for t in loaded.state_dict().values()} == {torch.bfloat16}


def test_shards_are_found_by_their_index(folder: Path, model: Bagel) -> None:
    state = list(model.state_dict().items())
    halves = {"ema-1.safetensors": dict(state[:40]), "ema-2.safetensors": dict(state[40:])}
    for name, tensors in halves.items():
        save_file(tensors, folder / name)
    (folder / "ema.safetensors").unlink()
    index = {"weight_map": {tensor: name for name, tensors in halves.items() for tensor in tensors}}
    (folder / "ema.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in files(folder, "ema")] == ["ema-1.safetensors", "ema-2.safetensors"]
    assert torch.equal(load_bagel(folder, TINY).llm2vae.weight, model.llm2vae.weight)


def test_every_misfit_is_named(folder: Path, model: Bagel) -> None:
    state = dict(model.state_dict())
    del state["llm2vae.bias"]
    state["vae2llm.bias"] = torch.zeros(3)
    state["surplus"] = torch.zeros(1)
    save_file(state, folder / "ema.safetensors")
    with pytest.raises(InvalidInput) as caught:
        load_bagel(folder, TINY)
    message = str(caught.value)
    assert "missing tensor `llm2vae.bias`" in message
    assert "`vae2llm.bias` is [3], the config requires [32]" in message
    assert "unknown tensor `surplus`" in message
    assert message.count("vae2llm.bias") == 1


def test_tensors_of_other_parts_are_not_read(tmp_path: Path) -> None:
    wanted = torch.nn.Linear(2, 3)
    mine = {f"mine.{name}": tensor for name, tensor in wanted.state_dict().items()}
    save_file({**mine, "other.weight": torch.zeros(1, dtype=torch.int8)}, tmp_path / "model.safetensors")

    def rename(filed: str) -> str | None:
        return filed.removeprefix("mine.") if filed.startswith("mine.") else None

    loaded = load(lambda: torch.nn.Linear(2, 3), tmp_path, "model", names=Names(rename=rename))
    assert all(map(torch.equal, loaded.state_dict().values(), wanted.state_dict().values()))
    with pytest.raises(InvalidInput, match=r"unknown tensor `mine.bias`"):
        load(lambda: torch.nn.Linear(2, 3), tmp_path, "model")


def test_missing_files_are_named(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"ae\.safetensors"):
        load_autoencoder(folder, TINY)
    (folder / "ema.safetensors").unlink()
    (folder / "ema.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}')
    with pytest.raises(NotFound, match=r"gone\.safetensors"):
        load_bagel(folder, TINY)


def test_an_index_never_leads_out_of_its_folder(folder: Path) -> None:
    (folder / "ema.safetensors").unlink()
    (folder / "ema.safetensors.index.json").write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(InvalidInput, match="outside"):
        load_bagel(folder, TINY)


def test_broken_files_are_said_to_be_broken(folder: Path) -> None:
    (folder / "ema.safetensors").write_bytes(b"not tensors at all")
    with pytest.raises(InvalidInput, match="not a safetensors file"):
        load_bagel(folder, TINY)
    (folder / "config.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        read_bagel(folder)


def test_published_config_files_give_the_published_model(tmp_path: Path) -> None:
    llm = {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
    }
    vit = {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
        "image_size": 980,
    }
    (tmp_path / "llm_config.json").write_text(json.dumps(llm))
    (tmp_path / "vit_config.json").write_text(json.dumps(vit))
    (tmp_path / "config.json").write_text('{"model_type": "bagel"}')
    assert read_bagel(tmp_path) == BAGEL_7B_MOT
    (tmp_path / "vit_config.json").write_text("{}")
    with pytest.raises(InvalidInput, match="does not describe a BAGEL model"):
        read_bagel(tmp_path)


def test_a_folder_without_a_config_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"llm_config\.json"):
        read_bagel(tmp_path)


def test_an_autoencoder_round_trip(tmp_path: Path) -> None:
    model = drawn(lambda: AutoEncoder(TINY.vae), 1, device=torch.device("cpu"), dtype=torch.float32)
    save_file(model.state_dict(), tmp_path / "ae.safetensors")
    image = torch.rand(1, 3, 16, 16)
    assert torch.equal(load_autoencoder(tmp_path, TINY).encode(image), model.encode(image))


# ── the published folder ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Without weights: config files and a tokenizer."""
    bagel_tiny.write_config(tmp_path)
    bagel_tiny.write_tokenizer(tmp_path)
    return tmp_path


def changed(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_special_tokens_are_numbered_as_the_tokenizer_does(published: Path) -> None:
    first = len(bagel_tiny.vocabulary())
    wanted = SpecialTokens(bos=first + 1, eos=first + 2, boi=first + 4, eoi=first + 5)
    assert read_bagel(published).tokens == wanted
    names = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
    added = [{"id": 300 + i, "content": name} for i, name in enumerate(names)]
    (published / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    assert read_bagel(published).tokens == SpecialTokens(bos=300, eos=301, boi=302, eoi=303)
    (published / "tokenizer.json").write_text(json.dumps({"added_tokens": added[:3]}))
    with pytest.raises(InvalidInput, match=r"no token `<\|vision_end\|>`"):
        read_bagel(published)
    (published / "tokenizer.json").write_text(json.dumps({"added_tokens": [{"id": "x"}]}))
    with pytest.raises(InvalidInput, match=r"added tokens in `tokenizer\.json`"):
        read_bagel(published)


def test_both_configs_may_lie_in_one_file(published: Path) -> None:
    wanted = read_bagel(published)
    changed(published / "config.json", llm_config=bagel_tiny.LLM, vit_config=bagel_tiny.VIT)
    for name in ("llm_config", "vit_config"):
        (published / f"{name}.json").unlink()
    assert read_bagel(published) == wanted


def test_the_base_of_the_rotation_is_found_in_files_of_both_ages(published: Path) -> None:
    path = published / "llm_config.json"
    changed(path, rope_theta=5e5)
    assert read_bagel(published).llm.rope_theta == 5e5
    changed(path, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 2e5})
    assert read_bagel(published).llm.rope_theta == 2e5


@pytest.mark.parametrize("rows", [4096, 1024])
def test_the_table_of_latent_positions_is_as_large_as_its_tensor(published: Path, rows: int) -> None:
    assert read_bagel(published).latent_side == BAGEL_7B_MOT.latent_side
    save_file({"latent_pos_embed.pos_embed": torch.zeros(rows, 4)}, published / "ema.safetensors")
    assert read_bagel(published).latent_side ** 2 == rows


def test_a_table_that_is_no_square_is_refused(published: Path) -> None:
    save_file({"latent_pos_embed.pos_embed": torch.zeros(1000, 4)}, published / "ema.safetensors")
    with pytest.raises(InvalidInput, match="1000 rows, which is not the square"):
        read_bagel(published)


@pytest.mark.parametrize(
    ("file", "entries", "said"),
    [
        ("config", {"connector_act": "relu"}, '`connector_act` is "relu", and only "gelu_pytorch_tanh"'),
        ("config", {"interpolate_pos": True}, "`interpolate_pos` is true"),
        ("llm_config", {"hidden_act": "gelu"}, "`llm_config.hidden_act`"),
        ("llm_config", {"rope_scaling": {"type": "yarn"}}, '`llm_config.rope_scaling.type` is "yarn"'),
        ("llm_config", {"vocab_size": 270}, "below `llm.vocab` 270"),
        ("vit_config", {"hidden_act": "quick_gelu"}, "`vit_config.hidden_act`"),
        ("vit_config", {"hidden_size": 50}, "`vit.width` 50"),
    ],
)
def test_models_of_other_parts_are_refused_by_name(
    published: Path, file: str, entries: dict[str, Any], said: str
) -> None:
    changed(published / f"{file}.json", **entries)
    with pytest.raises(InvalidInput, match=re.escape(said)):
        read_bagel(published)
