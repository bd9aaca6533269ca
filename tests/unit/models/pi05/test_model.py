"""pi0.5's network to be trained, its configs, and the statistics that lie beside its weights."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.golden import pi05_tiny as tiny
from walkgraph.checkpoints.statistics import statistics_json
from walkgraph.components import families
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.document import Weights
from walkgraph.layers.unset import unset
from walkgraph.models.pi05.config import PI05_BASE, Pi05Config, pi05_json, read_pi05
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import random_pi05
from walkgraph.models.pi05.presets import PI05
from walkgraph.models.pi05.weights import Scaling, exact, load_pi05, read_scalings
from walkgraph.placement.sizes import find_sizes

TINY = PI05["pi05-tiny"]
QUANTILES = {"state": ([-2.0, 0.0], [2.0, 10.0]), "actions": ([-1.0, 5.0, 0.0], [3.0, 5.0, 1.0])}


def asked(rows: int = 2) -> tuple[list[Tensor], Tensor, Tensor, Tensor, Tensor]:
    dice = torch.Generator().manual_seed(5)
    cameras = [torch.rand(rows, 3, TINY.picture, TINY.picture, generator=dice) * 2 - 1 for _ in range(2)]
    ids = torch.randint(0, 256, (rows, 7), generator=dice)
    actions = torch.randn(rows, 4, TINY.action_width, generator=dice)
    return cameras, ids, torch.tensor([7, 3])[:rows], actions, torch.rand(rows, generator=dice)


# ── training ────────────────────────────────────────────────────────────────────────────────────


def test_a_model_that_is_to_be_trained_begins_plain_and_all_of_it_learns() -> None:
    torch.manual_seed(1)
    model = Pi05(TINY)
    assert bool((model.modulations(torch.tensor([0.3]))[:, :, 2] == 1.0).all())
    flow = model(*asked())
    assert flow.states.shape == (2, 2 * TINY.patches + 7, TINY.prefix.width)
    (flow.velocity.square().mean() + flow.states.square().mean()).backward()
    assert [name for name, tensor in model.named_parameters() if tensor.grad is None] == []


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(2)
    model, (cameras, ids, lengths, actions, time) = Pi05(TINY), asked()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    losses: list[float] = []
    for _ in range(25):
        loss = (model(cameras, ids, lengths, actions, time).velocity - actions).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]


def test_padding_and_absent_cameras_change_nothing() -> None:
    model = random_pi05(TINY, 1, device=torch.device("cpu"), dtype=torch.float32)
    cameras, ids, lengths, actions, time = asked()
    whole = model(cameras, ids, lengths, actions, time, torch.tensor([[True, True], [False, True]])).velocity
    alone = model([cameras[1][1:]], ids[1:, :3], None, actions[1:], time[1:]).velocity
    torch.testing.assert_close(whole[1:], alone, rtol=1e-4, atol=1e-5)


# ── weights ─────────────────────────────────────────────────────────────────────────────────────


def test_what_decides_much_stays_in_float32(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "pi05")
    loaded = load_pi05(folder, tiny.CONFIG, dtype=torch.bfloat16)
    drawn = random_pi05(TINY, 1, device=torch.device("cpu"), dtype=torch.bfloat16)
    for model in (loaded, drawn):
        kinds = {name: tensor.dtype for name, tensor in model.state_dict().items()}
        kept = {name for name, dtype in kinds.items() if dtype == torch.float32}
        assert kept == {name for name in kinds if exact(name)}
        assert any("language_model.layers.0.input_layernorm" in name for name in kept)
        assert {"action_in_proj.weight", "time_mlp_out.bias"} <= kept
        assert not any("dense" in name or "vision_tower" in name or "self_attn" in name for name in kept)


def test_a_file_that_is_another_models_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "pi05")
    with pytest.raises(InvalidInput, match="does not fit its config"):
        load_pi05(folder, dataclasses.replace(tiny.CONFIG, layers=2))


def test_an_unused_head_and_a_table_under_both_names_are_read(tmp_path: Path) -> None:
    folder, state = tiny.write_folder(tmp_path / "pi05"), tiny.weights()
    table = state["paligemma_with_expert.paligemma.lm_head.weight"]
    spare = {
        name: tensor for name, tensor in state.items() if name != "paligemma_with_expert.gemma_expert.lm_head.weight"
    }
    assert len(spare) < len(state)
    names = ("paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight",)
    save_file({**spare, **{name: table.clone() for name in names}}, folder / "model.safetensors")
    model = load_pi05(folder, read_pi05(folder))
    assert torch.equal(model.language.embed_tokens.weight, table)


@pytest.mark.parametrize("name", PI05)
def test_the_plan_knows_how_large_it_is(name: str) -> None:
    with unset():
        numbers = sum(tensor.numel() for tensor in Pi05(PI05[name]).state_dict().values())
    sizes = find_sizes(families())(Weights(family="pi05", source=f"random:{name}:0"))
    assert sizes.numbers == {"model": numbers}
    config = PI05[name]
    each = 2 * config.layers * config.kv_heads * config.head_dim
    assert sizes.caches == {"pi05.prefill": each, "pi05.action_expert": each}
    assert set(sizes.components.values()) == {("model",)}


# ── configs ─────────────────────────────────────────────────────────────────────────────────────

OPENPI = {
    "action_dim": 32,
    "action_horizon": 15,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "precision": "bfloat16",
}
LEROBOT = {
    "type": "pi05",
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "max_action_dim": 32,
    "chunk_size": 10,
    "min_period": 0.004,
    "max_period": 4.0,
    "image_resolution": [224, 224],
}


def config_of(folder: Path, document: object) -> Pi05Config:
    (folder / "config.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return read_pi05(folder)


@pytest.mark.parametrize(
    ("document", "horizons"),
    [(OPENPI, (15,)), (LEROBOT, (10,)), (pi05_json(PI05_BASE), (50, 15, 10))],
    ids=["openpi", "lerobot", "own"],
)
def test_the_published_configs_are_the_base(tmp_path: Path, document: object, horizons: tuple[int, ...]) -> None:
    """But for the chunks that are made ready: those that it was trained on."""
    assert config_of(tmp_path, document) == dataclasses.replace(PI05_BASE, horizons=horizons)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"type": "pi0"}, "pi05"),
        ({"paligemma_variant": "gemma_9b"}, "gemma_9b"),
        ({"image_resolution": [448, 448]}, "image_resolution"),
        ({"action_expert_variant": None}, "gemma_300m"),
    ],
)
def test_another_family_is_refused(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        config_of(tmp_path, {**LEROBOT, **changed})


@pytest.mark.parametrize(
    "changed", [{"heads": 3, "kv_heads": 2}, {"layers": 0}, {"head_dim": 7}, {"bos": 259}, {"action_width": 0}]
)
def test_sizes_that_do_not_go_together_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        dataclasses.replace(TINY, **changed)


@pytest.mark.parametrize("horizons", [(), (8, 0)])
def test_chunks_that_hold_nothing_are_refused(horizons: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        dataclasses.replace(TINY, horizons=horizons)


# ── statistics ──────────────────────────────────────────────────────────────────────────────────


def openpi_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {name: {"mean": low, "std": high, "q01": low, "q99": high} for name, (low, high) in QUANTILES.items()}
    path.write_text(json.dumps({"norm_stats": named}))


def lerobot_files(folder: Path, mode: str = "QUANTILES", **eps: float) -> None:
    for file, step, key, name in (
        ("policy_preprocessor", "normalizer_processor", "observation.state", "state"),
        ("policy_postprocessor", "unnormalizer_processor", "action", "actions"),
    ):
        state = f"{file}_step_1_{step}.safetensors"
        config = {"norm_map": {"STATE": mode, "ACTION": mode, "VISUAL": "IDENTITY"}, **eps}
        steps = [{"registry_name": "rename"}, {"registry_name": step, "config": config, "state_file": state}]
        (folder / f"{file}.json").write_text(json.dumps({"name": file, "steps": steps}))
        low, high = QUANTILES[name]
        save_file({f"{key}.q01": torch.tensor(low), f"{key}.q99": torch.tensor(high)}, folder / state)


def test_statistics_are_found_where_each_layout_has_them(tmp_path: Path) -> None:
    for name in ("apart", "beside", "lerobot", "own"):
        (tmp_path / name).mkdir()
    openpi_file(tmp_path / "apart" / "assets" / "some" / "droid" / "norm_stats.json")
    openpi_file(tmp_path / "beside" / "norm_stats.json")
    lerobot_files(tmp_path / "lerobot")
    pairs = {name: list(zip(*of, strict=True)) for name, of in QUANTILES.items()}
    (tmp_path / "own" / "norm_stats.json").write_text(statistics_json(pairs["state"], pairs["actions"]))
    for name in ("apart", "beside", "lerobot", "own"):
        found = read_scalings(tmp_path / name)
        for scaling, (low, high) in zip(found, QUANTILES.values(), strict=True):
            assert scaling.low.tolist() == low
            assert scaling.span.tolist() == pytest.approx([b - a for a, b in zip(low, high, strict=True)], abs=1e-5)
            assert (scaling.span > 0).all()


def test_one_of_several_robots_is_named(tmp_path: Path) -> None:
    for robot in ("droid", "trossen"):
        openpi_file(tmp_path / "assets" / robot / "norm_stats.json")
    assert read_scalings(tmp_path, "droid").state.low.tolist() == QUANTILES["state"][0]
    with pytest.raises(InvalidInput, match=r"droid.*trossen"):
        read_scalings(tmp_path)
    with pytest.raises(NotFound, match="arx"):
        read_scalings(tmp_path, "arx")


def test_statistics_that_are_missing_or_of_another_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="norm_stats"):
        read_scalings(tmp_path)
    lerobot_files(tmp_path, "MEAN_STD")
    with pytest.raises(InvalidInput, match="MEAN_STD"):
        read_scalings(tmp_path)
    lerobot_files(tmp_path)
    (tmp_path / "policy_postprocessor_step_1_unnormalizer_processor.safetensors").unlink()
    with pytest.raises(NotFound, match="policy_postprocessor"):
        read_scalings(tmp_path)
    (tmp_path / "norm_stats.json").write_text('{"norm_stats": {"state": {"mean": [0]}}}')
    with pytest.raises(InvalidInput, match="q01"):
        read_scalings(tmp_path)


def test_numbers_go_there_and_back() -> None:
    scaling = Scaling(np.array([-2.0, 0.0, 1.0]), np.array([4.0, 10.0, 1.0]))
    values = np.array([[0.5, 7.0], [-3.0, 0.0]])
    inside = scaling.inside(values)
    np.testing.assert_allclose(inside, [[0.25, 0.4], [-1.5, -1.0]])
    np.testing.assert_allclose(scaling.outside(inside), values)
    # Numbers that no statistics are known of stay as they are.
    assert scaling.outside(np.ones(4)).tolist() == [2.0, 10.0, 2.0, 1.0]
    with pytest.raises(ValueError, match="got 4 numbers, but the model has statistics for 3"):
        scaling.inside(np.ones(4))
