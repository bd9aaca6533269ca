"""Sizes read from files' headers, and the table's own claims."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.golden import llm_tiny
from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.sharding.language import shard_numbers
from walkgraph.components import catalogue, families
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.document import Weights
from walkgraph.models.bagel.config import BAGEL_7B_MOT, bagel_json
from walkgraph.placement.sizes import FamilySizes, Part, find_sizes, token_numbers, weights_folder


def safetensors(path: Path, **shapes: list[int]) -> None:
    """A file whose tensors share their bytes."""
    sizes = {name: 2 * math.prod(shape) for name, shape in shapes.items()}
    entries = {
        name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, sizes[name]]} for name, shape in shapes.items()
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(max(sizes.values(), default=0)))


def bagel(folder: Path, config: str, value: dict[str, object]) -> None:
    safetensors(folder / "ema-00001-of-00002.safetensors", a=[3, 4], b=[5])
    safetensors(folder / "ema-00002-of-00002.safetensors", c=[2, 2, 2])
    safetensors(folder / "ae.safetensors", d=[7], scalar=[])
    (folder / config).write_text(json.dumps(value))


def own_bagel(**llm: int) -> dict[str, object]:
    document: dict[str, Any] = json.loads(bagel_json(BAGEL_7B_MOT))
    return {**document, "llm": {**document["llm"], **llm}}


LLM = {
    "num_hidden_layers": 6, "num_key_value_heads": 2, "hidden_size": 128, "num_attention_heads": 4,
    "intermediate_size": 64, "vocab_size": 200_000,
}  # fmt: skip
VIT = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 14,
}


@pytest.mark.parametrize(
    "value",
    [own_bagel(layers=6, kv_heads=2, head_dim=32), {"model_type": "bagel", "llm_config": LLM, "vit_config": VIT}],
    ids=["own", "published"],
)
def test_a_checkpoint_folder(tmp_path: Path, value: dict[str, object]) -> None:
    bagel(tmp_path / "mine", "config.json", value)
    known = find_sizes(families(), [tmp_path])(Weights(family="bagel", source="checkpoint:mine"))
    assert known.numbers == {"model": 12 + 5 + 8, "autoencoder": 8}
    assert known.caches == {"bagel.backbone": 2 * 6 * 2 * 32}
    assert (known.part_bytes("model", 2), known.part_bytes("autoencoder", 2)) == (50, 16)


def test_parts_that_share_a_stem_count_their_own_tensors(tmp_path: Path) -> None:
    safetensors(tmp_path / "mine" / "model-00001-of-00002.safetensors", **{"a.x": [3, 4], "b.x": [5]})
    safetensors(tmp_path / "mine" / "model-00002-of-00002.safetensors", **{"a.y": [2]})
    parts = {name: Part(stem="model", reads=lambda filed, name=name: filed.startswith(name)) for name in "ab"}
    family = FamilySizes(parts={**parts, "all": Part(stem="model")}, components={}, shapes={})
    known = find_sizes({"pair": family}, [tmp_path])(Weights(family="pair", source="checkpoint:mine"))
    assert known.numbers == {"a": 14, "b": 5, "all": 19}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"llm": {}}, "does not describe|has no"),
        (own_bagel(layers=10**9), r"`llm.layers` is 1000000000 .* from 1 to 1024"),
        ({"llm_config": {**LLM, "rope_scaling": {"type": "yarn"}}, "vit_config": VIT}, "yarn"),
    ],
)
def test_a_config_that_can_not_be_loaded_is_refused_before_anything_starts(
    tmp_path: Path, value: dict[str, object], said: str
) -> None:
    bagel(tmp_path / "mine", "config.json", value)
    with pytest.raises(InvalidInput, match=said):
        find_sizes(families(), [tmp_path])(Weights(family="bagel", source="checkpoint:mine"))


def test_folders_stay_under_their_roots(tmp_path: Path) -> None:
    safetensors(tmp_path / "secret" / "x.safetensors", a=[1])
    safetensors(tmp_path / "root" / "mine" / "inner" / "x.safetensors", a=[1])
    for name in ("..", ".", "", "../secret", "secret", "mine", "mine/inner", str(tmp_path / "secret")):
        with pytest.raises(NotFound, match=r"no weights .* \(found: none\)"):
            weights_folder(f"checkpoint:{name}", [tmp_path / "root"])
    with pytest.raises(NotFound):
        weights_folder("file:secret", [tmp_path])
    assert weights_folder("checkpoint:secret", [tmp_path]) == tmp_path / "secret"


def test_the_first_root_that_has_a_folder_counts(tmp_path: Path) -> None:
    for name in ("one/a", "two/b", "two/a"):
        safetensors(tmp_path / name / "x.safetensors", a=[1])
    roots = [tmp_path / "one", tmp_path / "two", tmp_path / "none"]
    assert weights_folder("checkpoint:a", roots) == tmp_path / "one" / "a"
    assert weights_folder("checkpoint:b", roots) == tmp_path / "two" / "b"
    with pytest.raises(NotFound, match="found: `a`, `b`"):
        weights_folder("checkpoint:c", roots)


def test_starters_lie_in_the_package(tmp_path: Path) -> None:
    assert (weights_folder("starter:shapes", [tmp_path]) / "config.json").is_file()
    with pytest.raises(NotFound, match=r"no weights `circles` in this installation .*`shapes`"):
        weights_folder("starter:circles", [tmp_path])


@pytest.mark.parametrize("source", ["random:huge:0", "starter:nothing", "checkpoint:nothing"])
def test_what_is_not_known_is_not_found(source: str) -> None:
    with pytest.raises(NotFound):
        find_sizes(families())(Weights(family="bagel", source=source))
    with pytest.raises(NotFound, match="family `none`"):
        find_sizes(families())(Weights(family="none", source=source))


@pytest.mark.parametrize(
    ("source", "gigabytes", "caches"),
    [
        ("bagel:random:bagel-7b-mot:0", 29.4, {"bagel.backbone": 57_344}),
        ("orpheus:random:orpheus-3b:0", 6.6, {"orpheus.backbone": 114_688}),
        (
            "qwen3_omni:random:qwen3-omni-30b-a3b:0",
            71.1,
            {"qwen3_omni.thinker": 98_304 + 4096, "qwen3_omni.talker": 20_480},
        ),
        ("llm:random:qwen3-0.6b:0", 1.19, {"llm.backbone": 114_688}),
        ("llm:random:qwen3-8b:0", 16.38, {"llm.backbone": 147_456}),
        ("llm:random:qwen3-32b:0", 65.5, {"llm.backbone": 262_144}),
        ("llm:random:qwen3-30b-a3b:0", 61.07, {"llm.backbone": 98_304}),
        ("llm:random:llama-3.2-3b:0", 6.43, {"llm.backbone": 114_688}),
        ("llm:random:llama-3.1-8b:0", 16.06, {"llm.backbone": 131_072}),
        ("llm:random:mistral-7b:0", 14.5, {"llm.backbone": 131_072}),
        ("pi05:random:pi05-base:0", 6.7, {"pi05.prefill": 18_432, "pi05.action_expert": 18_432}),
        ("vjepa2:random:vjepa2-ac-vitg:0", 2.63, {"vjepa2.predictor": 98_304}),
    ],
)
def test_published_shapes(source: str, gigabytes: float, caches: dict[str, int]) -> None:
    family, _, rest = source.partition(":")
    known = find_sizes(families())(Weights(family=family, source=rest))
    assert sum(known.part_bytes(part, 2) for part in known.numbers) / 1e9 == pytest.approx(gigabytes, rel=0.01)
    assert {name: numbers * 2 for name, numbers in known.caches.items()} == caches


def test_every_part_is_loaded_by_somebody() -> None:
    for family in families().values():
        assert {part for parts in family.components.values() for part in parts} == set(family.parts)
        for shape in family.shapes.values():
            assert set(shape.parts) == set(family.parts)
            assert set(shape.caches) | set(shape.workspace) <= set(family.components)


DIVIDED = [
    ("llm", "qwen3-8b", 2, 4), ("llm", "qwen3-30b-a3b", 4, 1), ("llm", "qwen3-30b-a3b", 8, 1),
    ("orpheus", "orpheus-3b", 8, 1), ("orpheus", "orpheus-tiny", 4, 1), ("llm", "qwen3-moe-tiny", 2, 1),
]  # fmt: skip
"""Family, shape, shards, key/value heads of one."""


@pytest.mark.parametrize(("family", "shape", "count", "kv_heads"), DIVIDED)
def test_a_shard_has_its_part_of_weights_and_caches(family: str, shape: str, count: int, kv_heads: int) -> None:
    whole = find_sizes(families())(Weights(family=family, source=f"random:{shape}:0"))
    llm, node = whole.divided["model"], f"{family}.backbone"
    assert whole.indivisible(count) is None
    assert whole.shard(1) is whole
    shard = whole.shard(count)
    replicated = sum(math.prod(tensor) for name, tensor in language_model(llm).expected.items() if is_whole(name))
    copied = 2 * llm.layers * llm.head_dim * llm.width * max(0, count - llm.kv_heads)
    padding = (-llm.vocab % count) * llm.width * (1 if llm.tied else 2)
    assert count * (shard.numbers["model"] - replicated) == whole.numbers["model"] - replicated + copied + padding
    assert shard.caches[node] == token_numbers(llm.layers, kv_heads, llm.head_dim)
    assert shard.workspace == whole.workspace
    assert shard.experts.get("model", 0) * count == whole.experts.get("model", 0)
    assert shard.part_bytes("model", 2, "fp8") <= shard.part_bytes("model", 2) < whole.part_bytes("model", 2)


def is_whole(name: str) -> bool:
    """True for a tensor that every shard has: a norm or a router."""
    return "norm" in name or name.endswith("mlp.gate.weight")


def test_the_reason_that_weights_cant_be_divided_is_told() -> None:
    whole = find_sizes(families())(Weights(family="llm", source="random:qwen3-tiny:0"))
    assert "4 heads can't be divided by 3" in (whole.indivisible(3) or "")
    with pytest.raises(ValueError, match="4 heads"):
        whole.shard(3)


def test_a_folders_shard_follows_from_its_config(tmp_path: Path) -> None:
    folder = llm_tiny.write_folder(tmp_path, llm_tiny.CONFIGS["qwen3_moe"])
    whole = find_sizes(families(), [tmp_path])(Weights(family="llm", source=f"checkpoint:{folder.name}"))
    assert whole.numbers["model"] == shard_numbers(whole.divided["model"], 1)
    shard = whole.shard(2)
    assert (shard.numbers["model"], shard.experts["model"]) == (
        shard_numbers(whole.divided["model"], 2),
        whole.experts["model"] // 2,
    )
    assert shard.caches["llm.backbone"] * 2 == whole.caches["llm.backbone"]


def test_components_that_divide_read_a_part_that_does() -> None:
    marked = {name: one for name, one in catalogue().items() if one.tensor_parallel}
    assert set(marked) == {"llm.backbone", "orpheus.backbone"}
    for name, one in marked.items():
        sizes = families()[one.weights or ""]
        parts = set(sizes.components[name])
        assert all(parts == set(sizes.divided(shape)) for shape in sizes.shapes)
