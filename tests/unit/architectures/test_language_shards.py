"""Shards of language models: loaded and drawn as parts of the same numbers, with the logits of the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.support.checkpoints import language_model, shapes
from tests.support.language import forwarded, read, stepped
from tests.support.shards import Imagined, in_threads
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import draw_language_model, load_language_model
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.experts import LOADS, ExpertParallel, loads_text
from walkgraph.checkpoints.sharding.language import shard_cuts, shard_numbers, shard_tensors
from walkgraph.collectives.base import Shard
from walkgraph.errors import InvalidInput, Refused
from walkgraph.models.llm.config import read_llm
from walkgraph.models.llm.operators import Backbone
from walkgraph.models.llm.presets import LLM

CPU = torch.device("cpu")
ON: dict[str, Any] = {"device": CPU, "dtype": torch.float32}
HEAD = "lm_head.weight"


def state_of(folder: Path) -> dict[str, Tensor]:
    return {name: one for file in folder.glob("*.safetensors") for name, one in load_file(file).items()}


def whole_of(parts: list[dict[str, Tensor]], name: str, llm: LanguageConfig) -> Tensor:
    """A tensor from the shards' parts of it."""
    held: dict[int, Tensor] = {}
    for index, part in enumerate(parts):
        cut = shard_cuts(llm, index, len(parts))(name)
        if cut is None:
            assert torch.equal(part[name], parts[0][name])
            held[0], dim = part[name], 0
        else:
            held[cut.start], dim = part[name].narrow(cut.dim, 0, cut.stop - cut.start), cut.dim
    return torch.cat([held[start] for start in sorted(held)], dim)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "llama"])
def test_a_checkpoint_is_read_in_parts(kind: str, count: int, tmp_path: Path) -> None:
    folder = language_model(kind, tmp_path)
    llm, bytes_read = read_llm(folder).llm, [0] * count

    def load(index: int) -> dict[str, Tensor]:
        def progress(nbytes: int) -> None:
            bytes_read[index] += nbytes

        return load_language_model(folder, llm, Imagined(index, count), **ON, progress=progress).state_dict()

    parts = [load(index) for index in range(count)]
    for name, tensor in load_language_model(folder, llm, **ON).state_dict().items():
        assert torch.equal(whole_of(parts, name, llm), tensor), name
    assert bytes_read == [4 * shard_numbers(llm, count)] * count


@pytest.mark.parametrize(("count", "redundant"), [(2, 0), (4, 0), (2, 2)])
def test_of_whole_experts_only_the_shards_own_are_read(count: int, redundant: int, tmp_path: Path) -> None:
    """Experts are dealt by the loads that the folder has, one list for each layer."""
    folder, how = language_model("qwen3_moe", tmp_path), ExpertParallel(redundant)
    llm, whole = read_llm(folder).llm, load_language_model(folder, read_llm(folder).llm, **ON).state_dict()
    mixtures = [layer for layer in range(llm.layers) if llm.experts_of(layer)]
    loads = {layer: [(7 * expert + layer) % 5 for expert in range(8)] for layer in mixtures}
    (folder / LOADS).write_text(loads_text(loads))
    found: set[str] = set()
    for index in range(count):
        numbers: list[int] = []
        model = load_language_model(folder, llm, Imagined(index, count), how, **ON, progress=numbers.append)
        part, holds = model.state_dict(), shard_tensors(llm, index, count, how, loads)
        assert part.keys() == {name for name in whole if holds(name)}
        assert all(torch.equal(part[name], whole[name]) for name in part if ".experts." in name)
        assert sum(numbers) == 4 * shard_numbers(llm, count, how=how)
        found |= part.keys()
    assert found == whole.keys()


def test_shards_that_read_different_loads_are_refused(tmp_path: Path) -> None:
    folders = [language_model("qwen3_moe", tmp_path / str(index)) for index in range(2)]
    (folders[1] / LOADS).write_text(loads_text({0: [*range(8)]}))

    def work(shard: Shard) -> LanguageModel:
        folder = folders[shard.index]
        return load_language_model(folder, read_llm(folder).llm, shard, ExpertParallel(), **ON)

    with pytest.raises(Refused, match=f"`{LOADS}` .* changed while"):
        in_threads(tmp_path / "group", 2, work)
    folders[0] = folders[1]
    assert len(in_threads(tmp_path / "same", 2, work)) == 2


def test_an_expert_that_is_missing_is_named_by_its_shard(tmp_path: Path) -> None:
    folder = language_model("qwen3_moe", tmp_path)
    state, name = state_of(folder), "model.layers.0.mlp.experts.3.up_proj.weight"
    save_file({key: tensor for key, tensor in state.items() if key != name}, folder / "model.safetensors")
    load_language_model(folder, read_llm(folder).llm, Imagined(0, 2), ExpertParallel(), **ON)
    with pytest.raises(InvalidInput, match=f"missing tensor `{name}`"):
        load_language_model(folder, read_llm(folder).llm, Imagined(1, 2), ExpertParallel(), **ON)


@pytest.mark.parametrize("source", ["drawn", "folder"])
def test_rows_that_no_token_has_are_zeros(source: str, tmp_path: Path) -> None:
    folder = language_model("qwen3", tmp_path)
    llm, last = read_llm(folder).llm, Imagined(2, 3)
    llm = replace(llm, heads=3, kv_heads=1, hidden=9, layers=1)
    if source == "folder":
        ones = {name: torch.ones(shape) for name, shape in shapes(lambda: LanguageModel(llm)).items()}
        save_file(ones, folder / "model.safetensors")
        found = load_language_model(folder, llm, last, **ON)
    else:
        found = draw_language_model(llm, 1, last, **ON)
    table = found.model.embed_tokens.weight
    assert (llm.vocab, table.shape[0]) == (160, 54)
    assert (table != 0).any(1).tolist() == [True] * 52 + [False] * 2


def test_drawn_parts_are_those_of_the_whole() -> None:
    llm = LLM["qwen3-moe-tiny"].llm
    parts = [draw_language_model(llm, 3, Imagined(index, 4), **ON).state_dict() for index in range(4)]
    for name, tensor in draw_language_model(llm, 3, **ON).state_dict().items():
        assert torch.equal(whole_of(parts, name, llm), tensor), name


@pytest.mark.parametrize(
    ("name", "axis"), [("model.embed_tokens.weight", 0), ("model.layers.1.mlp.down_proj.weight", 1)]
)
def test_a_tensor_of_another_length_is_refused(name: str, axis: int, tmp_path: Path) -> None:
    """Also where the part itself would have the right shape."""
    folder = language_model("qwen3", tmp_path)
    state = state_of(folder)
    for length in (state[name].shape[axis] - 1, state[name].shape[axis] // 2):
        save_file({**state, name: state[name].narrow(axis, 0, length).contiguous()}, folder / "model.safetensors")
        with pytest.raises(InvalidInput, match=rf"`{name}` is \[.*the config requires"):
            load_language_model(folder, read_llm(folder).llm, Imagined(1, 2), **ON)


def test_a_head_that_repeats_the_table_is_not_read(tmp_path: Path) -> None:
    folder = language_model("qwen3", tmp_path)
    state = state_of(folder)
    save_file({**state, HEAD: state["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    found = load_language_model(folder, read_llm(folder).llm, Imagined(1, 2), **ON)
    assert torch.equal(found.head, state["model.embed_tokens.weight"][80:])


def context(name: str, shard: Shard, how: ExpertParallel | None = None, precision: str = "bf16") -> LoadContext:
    given: dict[str, Any] = {"precision": precision, "expert_parallel": how, "shard": shard}
    return LoadContext(**ON, folder=None, shared={}, options={}, random=(name, 3), **given)


def test_a_model_that_cant_be_divided_is_refused() -> None:
    with pytest.raises(Refused, match=r"over 3 ranks: its 4 heads .* choose another `tensor_parallel`"):
        Backbone.load(context("qwen3-tiny", Imagined(0, 3)))


@pytest.mark.parametrize(("count", "kv_heads"), [(1, 2), (2, 1), (4, 1)])
def test_a_shards_caches_have_its_key_and_value_heads(count: int, kv_heads: int) -> None:
    assert Backbone.load(context("qwen3-tiny", Imagined(0, count))).caches()["kv"].kv_heads == kv_heads


@pytest.mark.parametrize("how", [None, ExpertParallel(), ExpertParallel(4)], ids=["widths", "experts", "redundant"])
@pytest.mark.parametrize(("precision", "bar"), [("bf16", 1e-5), ("fp8", 0.1)])
def test_every_form_gives_the_logits_of_the_whole(
    precision: str, bar: float, how: ExpertParallel | None, tmp_path: Path
) -> None:
    """Prompts have more rows than a step, so that they take the layers for many rows."""
    ids = torch.randint(0, 256, (2, 34), generator=torch.Generator().manual_seed(0))
    wanted = forwarded(draw_language_model(LLM["qwen3-moe-tiny"].llm, 3, **ON), ids)

    def work(shard: Shard) -> list[Tensor]:
        made = context("qwen3-moe-tiny", shard, how, precision)
        Backbone.load(made)
        model = made.shared[LanguageModel]
        return [forwarded(model, ids), read(model, ids), stepped(model, ids[:, :5])]

    first, other = in_threads(tmp_path / "group", 2, work)
    for one, same in zip(first, other, strict=True):
        assert torch.equal(one, same)
        rows = wanted[:, : one.shape[1]]
        assert (one - rows).norm() / rows.norm() < bar
