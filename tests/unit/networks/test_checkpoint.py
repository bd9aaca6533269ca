"""Loading the public layout: whole, sharded, strict, and in words when it does not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.networks.bagel import BAGEL_7B_MOT, Bagel
from walkgraph.networks.checkpoint import config_json, files, load_autoencoder, load_bagel, read_config
from walkgraph.networks.flux_vae import AutoEncoder
from walkgraph.networks.presets import BAGEL, drawn

torch.set_num_threads(1)
TINY = BAGEL["bagel-tiny"]


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn(lambda: Bagel(TINY), 3, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def folder(tmp_path: Path, model: Bagel) -> Path:
    (tmp_path / "config.json").write_text(config_json(TINY))
    save_file(model.state_dict(), tmp_path / "ema.safetensors")
    return tmp_path


def test_what_was_saved_is_loaded(folder: Path, model: Bagel) -> None:
    seen: list[int] = []
    loaded = load_bagel(folder, read_config(folder), progress=seen.append)
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
    assert "`vae2llm.bias` is [3], the config wants [32]" in message
    assert "unknown tensor `surplus`" in message
    assert message.count("vae2llm.bias") == 1


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
    with pytest.raises(InvalidInput, match="not a readable safetensors file"):
        load_bagel(folder, TINY)
    (folder / "config.json").write_text("{")
    with pytest.raises(InvalidInput, match="not valid JSON"):
        read_config(folder)


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
    assert read_config(tmp_path) == BAGEL_7B_MOT
    (tmp_path / "vit_config.json").write_text("{}")
    with pytest.raises(InvalidInput, match="does not describe a BAGEL model"):
        read_config(tmp_path)


def test_a_folder_without_a_config_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"llm_config\.json"):
        read_config(tmp_path)


def test_an_autoencoder_round_trip(tmp_path: Path) -> None:
    model = drawn(lambda: AutoEncoder(TINY.vae), 1, device=torch.device("cpu"), dtype=torch.float32)
    save_file(model.state_dict(), tmp_path / "ae.safetensors")
    image = torch.rand(1, 3, 16, 16)
    assert torch.equal(load_autoencoder(tmp_path, TINY).encode(image), model.encode(image))
