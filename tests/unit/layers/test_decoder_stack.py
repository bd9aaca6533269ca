"""Decoder layers in one launch: which layers it takes, and what Python and the CUDA source must agree on. The launch
itself is tested on a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from walkgraph.architectures.language.model import decoder_layer
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.layers.kernels import decoder_stack
from walkgraph.layers.kernels.decoder_stack import LayerWeights, StackSizes, shared_bytes, stack_of, unfit_sizes
from walkgraph.memory.cuda_source import compiled, is_available
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor

SIZES = StackSizes(
    width=1024, heads=16, kv_heads=8, head_dim=128, hidden=3072, vocab=2048, layers=5, eps=1e-6
)  # fmt: skip
HOPPER_SHARED = 227 << 10
"""Bytes of shared memory that a block of compute capability 9.0 can have."""
SOURCE = Path(decoder_stack.__file__).with_suffix(".cu").read_text()


def test_the_published_predictor_fits() -> None:
    assert unfit_sizes(SIZES) is None
    assert max(shared_bytes(SIZES, rows) for rows in (8, 16)) <= HOPPER_SHARED
    talker = omni_config("qwen3-omni-30b-a3b").talker
    assert talker is not None
    config = talker.predictor
    assert {name: getattr(config, name) for name in ("width", "heads", "kv_heads", "head_dim", "hidden", "vocab")} == {
        name: getattr(SIZES, name) for name in ("width", "heads", "kv_heads", "head_dim", "hidden", "vocab")
    }
    assert (config.layers, config.norm_eps, talker.groups) == (SIZES.layers, SIZES.eps, decoder_stack.POSITIONS)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"layers": 1}, "two layers or more"),
        ({"head_dim": 64}, "heads must be 128 wide"),
        ({"kv_heads": 4}, "2 to each key head"),
        ({"width": 1536}, "multiples of 1024"),
        ({"vocab": 2000}, "multiples of 1024"),
        ({"hidden": 4096}, "at most 3072 wide"),
        ({"vocab": 8192}, "as wide as gate and up together"),
    ],
)
def test_other_sizes_are_refused(change: dict[str, int], why: str) -> None:
    assert why in (unfit_sizes(replace(SIZES, **change)) or "")


def config_of(*, qk_norm: bool) -> LanguageConfig:
    return LanguageConfig(
        width=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=24, layers=1, norm_eps=1e-6, rope_theta=1e4,
        tied=False, qk_norm=qk_norm,
    )  # fmt: skip


def test_weights_are_those_of_the_layer() -> None:
    layer = decoder_layer(config_of(qk_norm=True), 0)
    layer.pack()
    found = LayerWeights.of(layer)
    assert found is not None
    state = layer.state_dict()
    parts = [state[f"self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(found.qkv, torch.cat(parts))
    assert torch.equal(found.gate_up, torch.cat([state[f"mlp.{name}_proj.weight"] for name in ("gate", "up")]))
    assert found.out is layer.self_attn.part("o_proj", "").weight
    assert torch.equal(found.down, state["mlp.down_proj.weight"])
    names = ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
    assert all(torch.equal(one, state[f"{name}.weight"]) for one, name in zip(found[4:], names, strict=True))


def test_layers_without_norms_of_heads_are_not_taken() -> None:
    layer = decoder_layer(config_of(qk_norm=False), 0)
    layer.pack()
    assert LayerWeights.of(layer) is None


def test_a_cpu_runs_layer_after_layer() -> None:
    layer = decoder_layer(config_of(qk_norm=True), 0)
    layer.pack()
    assert stack_of(SIZES, decoder_stack.POSITIONS, [layer], torch.ones(32), torch.ones(4)) is None


def test_the_source_has_the_same_numbers() -> None:
    made = dict(re.findall(r"(\w+) = (\d+)[,;]", SOURCE))
    wanted = {
        "BLOCKS": decoder_stack._BLOCKS,
        "WARPS": decoder_stack._WARPS,
        "CHUNK": decoder_stack._CHUNK,
        "UNIT": decoder_stack._UNIT,
        "RING": decoder_stack._RING,
        "DIM": decoder_stack._HEAD_DIM,
        "POSITIONS": decoder_stack.POSITIONS,
        "ROOM": decoder_stack.MOST_ROWS,
    }
    assert {name: int(made[name]) for name in wanted} == wanted
    assert "THREADS + 64" in SOURCE
    assert 32 * decoder_stack._WARPS + 64 == decoder_stack._THREADS


def test_the_source_reads_the_arguments_in_the_order_that_they_are_given() -> None:
    inside = SOURCE.partition("struct Arguments {")[2].partition("};")[0]
    named = re.sub(r"//.*", "", inside)
    fields = re.findall(r"\*?(\w+)(?=[,;])", named)
    assert fields == [name for name, *_ in decoder_stack._Arguments._fields_]


@pytest.mark.skipif(not is_available(), reason="needs NVIDIA's run-time compiler")
def test_the_source_compiles_without_a_gpu_and_refuses_rows_that_it_has_no_tiles_for() -> None:
    sizes = {"WIDTH": 1024, "HEADS": 16, "GROUPS": 8, "HIDDEN": 3072, "VOCAB": 2048, "LAYERS": 5}
    options = ["-std=c++17", "-arch=sm_90a", *(f"-D{name}={value}" for name, value in sizes.items())]
    made = compiled(SOURCE, [*options, "-DROWS=16"])
    assert made.startswith(b"\x7fELF")
    assert b"decoder_stack" in made
    with pytest.raises(RuntimeError, match="rows are halves of a tensor core's tile"):
        compiled(SOURCE, [*options, "-DROWS=12"])


def test_a_predictor_sums_the_embeddings_of_codes_that_nothing_could_choose_as_code_0() -> None:
    config = omni_config("qwen3-omni-tiny").talker
    assert config is not None
    torch.manual_seed(2)
    network = CodePredictor(config.predictor, config.groups).pack()
    hidden, first = torch.randn(2, config.predictor.width), torch.randn(2, config.predictor.width)
    with torch.inference_mode():
        refused = network.frames(
            hidden, first, torch.zeros(2, dtype=torch.int64), lambda _, made: made.new_full((2,), -1).long()
        )
        zero = network.frames(
            hidden, first, torch.zeros(2, dtype=torch.int64), lambda _, made: made.new_zeros(2).long()
        )
    assert refused.codes.tolist() == zero.codes.tolist()
    assert torch.equal(refused.embedding, zero.embedding)
