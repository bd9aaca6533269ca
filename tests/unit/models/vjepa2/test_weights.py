"""Files of V-JEPA 2-AC: both public layouts, and what is said of files that don't fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from tests.golden import vjepa2_tiny as tiny
from walkgraph.components import families
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.document import Weights
from walkgraph.models.vjepa2.config import VJEPA2_AC_VITG, TransformerConfig, Vjepa2Config, read_vjepa2, vjepa2_json
from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Encoder
from walkgraph.models.vjepa2.presets import VJEPA2
from walkgraph.models.vjepa2.weights import load_encoder, load_predictor
from walkgraph.placement.sizes import find_sizes

CONFIG = tiny.CONFIG


def part(name: str) -> dict[str, Tensor]:
    return {n.removeprefix(f"{name}."): t for n, t in tiny.weights().items() if n.startswith(f"{name}.")}


def same(found: torch.nn.Module, name: str) -> None:
    state, wanted = found.state_dict(), part(name)
    assert state.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert torch.equal(state[key], tensor), key
    assert not any(parameter.requires_grad for parameter in found.parameters())


def as_in_transformers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's weights under the names of transformers, with some of another predictor."""
    names = {"patch_embed.": "embeddings.patch_embeddings.", "norm.": "layernorm.", "blocks.": "layer."}
    found = {"predictor.layernorm.weight": torch.ones(3), "predictor.layer.0.norm1.bias": torch.ones(3)}
    for name, tensor in state.items():
        old = next(old for old in names if name.startswith(old))
        new = "encoder." + names[old] + name.removeprefix(old).replace(".attn.proj.", ".attention.proj.")
        if ".attn.qkv." in new:
            for kind, rows in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                found[new.replace(".attn.qkv.", f".attention.{kind}.")] = rows.contiguous()
        else:
            found[new] = tensor
    return found


def test_a_training_runs_names_are_read(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path)
    assert read_vjepa2(folder) == CONFIG
    same(load_encoder(folder, CONFIG), "encoder")
    same(load_predictor(folder, CONFIG), "predictor")


def test_names_of_the_whole_model_are_read_and_positions_ignored(tmp_path: Path) -> None:
    whole = {f"encoder.{name}": tensor for name, tensor in part("encoder").items()}
    save_file({**whole, "encoder.pos_embed": torch.ones(1, 4)}, tmp_path / "encoder.safetensors")
    save_file({f"predictor.module.{n}": t for n, t in part("predictor").items()}, tmp_path / "predictor.safetensors")
    same(load_encoder(tmp_path, CONFIG), "encoder")
    same(load_predictor(tmp_path, CONFIG), "predictor")


def test_an_encoder_of_transformers_is_read(tmp_path: Path) -> None:
    save_file(as_in_transformers(part("encoder")), tmp_path / "encoder.safetensors")
    same(load_encoder(tmp_path, CONFIG), "encoder")


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"neither `encoder.safetensors` nor"):
        load_encoder(tmp_path, CONFIG)
    state = as_in_transformers(part("encoder"))
    del state["encoder.layer.1.attention.key.bias"]
    save_file({**state, "encoder.mask_token": torch.ones(2)}, tmp_path / "encoder.safetensors")
    with pytest.raises(InvalidInput, match=r"missing tensor `blocks.1.attn.qkv.bias`; unknown tensor `mask_token`"):
        load_encoder(tmp_path, CONFIG)
    other = {**part("predictor"), "predictor_proj.bias": torch.ones(7)}
    save_file(other, tmp_path / "predictor.safetensors")
    with pytest.raises(InvalidInput, match=r"`predictor_proj.bias` is \[7\], the config requires \[96\]"):
        load_predictor(tmp_path, CONFIG)


def test_a_config_is_read_back_and_a_foreign_one_is_the_published_models(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert read_vjepa2(tmp_path) == VJEPA2_AC_VITG
    path.write_text('{"model_type": "vjepa2", "hidden_size": 3}')
    assert read_vjepa2(tmp_path) == VJEPA2_AC_VITG
    path.write_text(vjepa2_json(CONFIG))
    assert read_vjepa2(tmp_path) == CONFIG
    for broken in ('"heads": 5', '"heads": 2.5, "depth": 3'):
        path.write_text(vjepa2_json(CONFIG).replace('"heads": 2', broken, 1))
        with pytest.raises(InvalidInput, match="does not describe a V-JEPA 2 model"):
            read_vjepa2(tmp_path)


@pytest.mark.parametrize("name", VJEPA2)
def test_sizes_told_without_torch_are_those_of_the_networks(name: str) -> None:
    known = find_sizes(families())(Weights(family="vjepa2", source=f"random:{name}:0"))
    with torch.device("meta"):
        model = Vjepa2(VJEPA2[name])
    for kind in ("encoder", "predictor"):
        assert known.numbers[kind] == sum(tensor.numel() for tensor in getattr(model, kind).parameters())
    sizes = VJEPA2[name].predictor
    assert known.caches["vjepa2.predictor"] == 2 * sizes.layers * sizes.width


def test_sizes_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path)
    known = find_sizes(families(), [tmp_path])(Weights(family="vjepa2", source=f"checkpoint:{folder.name}"))
    assert known.numbers == {name: sum(t.numel() for t in part(name).values()) for name in ("encoder", "predictor")}
    assert known.caches == {"vjepa2.predictor": 2 * CONFIG.predictor.layers * CONFIG.predictor.width}


def test_one_product_sees_a_frame_twice() -> None:
    encoder = Vjepa2Encoder(CONFIG)
    pixels = tiny.pictures()
    proj = encoder.patch_embed.proj
    twice = pixels[:, :, None].expand(-1, -1, 2, -1, -1)
    wanted = F.conv3d(twice, proj.weight, proj.bias, stride=proj.stride).flatten(2).transpose(1, 2)
    torch.testing.assert_close(encoder.patch_embed(pixels), wanted)


def test_a_model_can_be_trained() -> None:
    """All its tensors but the unused one get gradients, also of an encoder that sees some patches, and where what is
    kept for every forward was made without gradients."""
    model = Vjepa2(Vjepa2Config(encoder=CONFIG.encoder, predictor=CONFIG.predictor, patch=8, side=4))
    given = tiny.frames(), tiny.actions()[None, :3], tiny.poses()[None, :3]
    with torch.inference_mode():
        model.encoder(tiny.pictures())
        model.predictor(*given)
    features = model.encoder(tiny.pictures(), tiny.kept())
    features.square().mean().backward()
    model.predictor(*given).square().mean().backward()
    still = {name for name, tensor in model.named_parameters() if tensor.grad is None or not tensor.grad.any()}
    assert still == {"predictor.extrinsics_encoder.weight", "predictor.extrinsics_encoder.bias"}


def test_frames_to_come_change_nothing() -> None:
    """A frame sees those before it and all of itself."""
    model, actions, poses = Vjepa2(CONFIG), tiny.actions()[None, :3], tiny.poses()[None, :3]
    frames, changed = tiny.frames(), tiny.frames()
    changed[:, 1] += 1
    with torch.inference_mode():
        before, after = model.predictor(frames, actions, poses), model.predictor(changed, actions, poses)
    assert torch.equal(before[:, 0], after[:, 0])
    assert bool((before[:, 1:] != after[:, 1:]).any(-1).all())


def test_a_head_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="6 or more for each head"):
        TransformerConfig(width=8, hidden=8, layers=1, heads=2)
