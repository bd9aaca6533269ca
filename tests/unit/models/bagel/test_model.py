"""BAGEL: the published names and sizes, its config's checks, its pieces, and its contexts by packed rows."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.pictures import PictureRules
from walkgraph.errors import InvalidInput
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.layers.positions import time_sinusoid
from walkgraph.layers.unset import unset
from walkgraph.models.bagel.config import BAGEL_7B_MOT, SpecialTokens, bagel_json, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import BAGEL

torch.set_num_threads(1)
TINY = BAGEL["bagel-tiny"]


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn(lambda: Bagel(TINY), 0, device=torch.device("cpu"), dtype=torch.float32)


def published() -> dict[str, tuple[int, ...]]:
    with unset():
        return {name: tuple(t.shape) for name, t in Bagel(BAGEL_7B_MOT).state_dict().items()}


def test_the_published_names_and_shapes() -> None:
    shapes = published()
    layer = "language_model.model.layers.27."
    expected = {
        "language_model.model.embed_tokens.weight": (152064, 3584),
        "language_model.lm_head.weight": (152064, 3584),
        "language_model.model.norm.weight": (3584,),
        "language_model.model.norm_moe_gen.weight": (3584,),
        **{f"{layer}self_attn.q_proj{s}.bias": (3584,) for s in ("", "_moe_gen")},
        **{f"{layer}self_attn.k_proj{s}.weight": (512, 3584) for s in ("", "_moe_gen")},
        **{f"{layer}self_attn.v_proj{s}.bias": (512,) for s in ("", "_moe_gen")},
        **{f"{layer}self_attn.o_proj{s}.weight": (3584, 3584) for s in ("", "_moe_gen")},
        **{f"{layer}self_attn.q_norm{s}.weight": (128,) for s in ("", "_moe_gen")},
        **{f"{layer}self_attn.k_norm{s}.weight": (128,) for s in ("", "_moe_gen")},
        **{f"{layer}mlp{s}.gate_proj.weight": (18944, 3584) for s in ("", "_moe_gen")},
        **{f"{layer}mlp{s}.down_proj.weight": (3584, 18944) for s in ("", "_moe_gen")},
        **{f"{layer}input_layernorm{s}.weight": (3584,) for s in ("", "_moe_gen")},
        **{f"{layer}post_attention_layernorm{s}.weight": (3584,) for s in ("", "_moe_gen")},
        "time_embedder.mlp.0.weight": (3584, 256),
        "time_embedder.mlp.2.bias": (3584,),
        "vae2llm.weight": (3584, 64),
        "llm2vae.bias": (64,),
        "latent_pos_embed.pos_embed": (4096, 3584),
        "vit_pos_embed.pos_embed": (4900, 3584),
        "connector.fc1.weight": (3584, 1152),
        "connector.fc2.bias": (3584,),
    }
    assert expected.items() <= shapes.items()
    assert not any(name.endswith(("o_proj.bias", "gate_proj.bias", "up_proj.bias")) for name in shapes)
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 14_607_260_128


def test_the_config_survives_json_and_refuses_strangers(tmp_path: Path) -> None:
    document = json.loads(bagel_json(BAGEL_7B_MOT))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document))
    assert read_bagel(tmp_path) == BAGEL_7B_MOT
    path.write_text(json.dumps({**document, "llm": {**document["llm"], "depth": 3}}))
    with pytest.raises(InvalidInput, match=r"llm\.depth"):
        read_bagel(tmp_path)
    path.write_text(json.dumps({k: v for k, v in document.items() if k != "latent_side"}))
    with pytest.raises(InvalidInput, match="latent_side"):
        read_bagel(tmp_path)


def test_a_config_that_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match=r"llm\.vocab"):
        dataclasses.replace(TINY, tokens=SpecialTokens(bos=1, eos=2, boi=3, eoi=9999))
    with pytest.raises(ValueError, match="strides"):
        dataclasses.replace(TINY, latent_patch=4)
    with pytest.raises(ValueError, match="kv_heads"):
        dataclasses.replace(TINY.llm, kv_heads=3)
    assert (BAGEL_7B_MOT.latent_channels, BAGEL_7B_MOT.pixels_per_token) == (64, 16)


def test_latent_grids_and_their_bounds() -> None:
    assert BAGEL_7B_MOT.latent_grid(1024, 512) == (32, 64)
    for size in ((1040, 512), (1000, 512)):
        with pytest.raises(ValueError, match="multiples of 16, at most 1024"):
            BAGEL_7B_MOT.latent_grid(*size)


@pytest.mark.parametrize(
    ("size", "vae", "vit"),
    [
        ((1024, 1024), (1024, 1024), (980, 980)),
        ((4000, 2000), (1024, 512), (980, 490)),
        ((100, 100), (512, 512), (224, 224)),
        ((640, 480), (688, 512), (644, 476)),
        ((3000, 300), (1024, 96), (980, 98)),
    ],
)
def test_pictures_are_resized_within_bounds(size: tuple[int, int], vae: tuple[int, int], vit: tuple[int, int]) -> None:
    assert BAGEL_7B_MOT.vae_pictures.target(*size) == vae
    assert BAGEL_7B_MOT.vit_pictures.target(*size) == vit


def test_equal_bounds_pin_the_square() -> None:
    assert PictureRules(min_side=64, max_side=64, stride=16).target(300, 100) == (64, 64)


def test_a_latent_token_is_projection_plus_time_plus_place(model: Bagel) -> None:
    latents, t, ids = torch.randn(3, 16), torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0, 9, 63])
    out = model.embed_latents(latents, t, ids)
    for row in range(3):
        time = model.time_embedder.mlp(time_sinusoid(t[row : row + 1], 256))[0]
        want = model.vae2llm(latents[row]) + time + model.latent_pos_embed.pos_embed[ids[row]]
        torch.testing.assert_close(out[row], want, rtol=1e-4, atol=1e-4)


def test_pictures_of_a_batch_do_not_see_each_other(model: Bagel) -> None:
    patches, ids = torch.randn(10, 192), torch.arange(10)
    together = model.vit_tokens(patches, ids, [4, 6])
    torch.testing.assert_close(together[:4], model.vit_tokens(patches[:4], ids[:4], [4]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(together[4:], model.vit_tokens(patches[4:], ids[4:], [6]), rtol=1e-4, atol=1e-4)


def test_rows_packed_at_once_equal_rows_one_by_one(model: Bagel) -> None:
    torch.manual_seed(0)
    x = model.embed_text(torch.randint(0, 200, (6,)))
    whole = model.backbone(x, torch.arange(6), 6, PackedAttend((6,), mask=causal_mask(6)))
    past, alone = (), []
    for row in range(6):
        attend = PackedAttend((1,), past=past, keep=True)
        alone.append(model.backbone(x[row : row + 1], torch.tensor([row]), 1, attend))
        past = tuple(attend.kept)
    torch.testing.assert_close(whole, torch.cat(alone), rtol=1e-4, atol=1e-4)


def test_the_split_decides_whose_weights_a_row_uses(model: Bagel) -> None:
    """Changing the gen weights of the last row leaves the other rows as they are, and changes it."""
    torch.manual_seed(1)
    x, positions, attend = torch.randn(4, 32), torch.arange(4), PackedAttend((3, 1), mask=causal_mask(4))
    und = model.backbone(x, positions, 4, PackedAttend((4,), mask=causal_mask(4)))
    mixed = model.backbone(x, positions, 3, attend)
    torch.testing.assert_close(und[:3], mixed[:3], rtol=1e-4, atol=1e-4)
    assert (und[3] - mixed[3]).abs().max() > 0.01
    gen = model.backbone(x, positions, 0, PackedAttend((4,), mask=causal_mask(4)))
    assert (gen[:3] - und[:3]).abs().max() > 0.01


def test_velocity_is_float32_and_logits_cover_the_vocabulary(model: Bagel) -> None:
    h = torch.randn(2, 32)
    assert model.velocity(h.bfloat16().float()).dtype == torch.float32
    assert model.velocity(h).shape == (2, TINY.latent_channels)
    assert model.logits(h).shape == (2, TINY.llm.vocab)
