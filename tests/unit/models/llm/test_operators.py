"""The operators of plain language models: the tokens of a text, what a step takes and gives, and where texts end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden import llm_tiny
from tests.support.checkpoints import language_model
from tests.support.language import forwarded, read, stepped
from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of, serve
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.components import catalogue, families
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.graph.document import Weights
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.layers.unset import unset
from walkgraph.models.llm.config import LlmConfig, read_llm
from walkgraph.models.llm.operators import Backbone
from walkgraph.models.llm.presets import LLM, llm_config, text_edges
from walkgraph.placement.sizes import find_sizes

CPU = torch.device("cpu")
NODES = {
    "llm": ("walkgraph.models.llm.operators:Backbone", {"kv": "main", "seen": "seen"}),
    "prompt": ("walkgraph.models.llm.operators:Prompt", {}),
}
STATES = {"kv": "main", "seen": "seen"}
GREEDY: dict[str, Any] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
TEMPLATE = {"type": "TemplateProcessing", "single": [
    {"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}  # fmt: skip
"""As Llama's tokenizer puts its begin token before a text."""


def loaded(name: str) -> Backbone:
    return Backbone.load(
        LoadContext(device=CPU, dtype=torch.float32, folder=None, shared={}, options={}, random=(name, 3))
    )


def test_only_a_single_token_steps() -> None:
    backbone = loaded("qwen3-moe-tiny")
    assert backbone.step_spec({"ids": ids(1)}, GREEDY) is None
    spec = backbone.step_spec({"token": ids(1)}, GREEDY)
    assert spec is not None
    component = catalogue()["llm.backbone"]
    assert component.resident
    assert set(spec.inputs) | {"ids", "bias"} == {one.name for one in component.inputs}
    biased = backbone.step_spec({"token": ids(1), "bias": torch.zeros(300, 2)}, GREEDY)
    assert biased is not None
    assert (biased.inputs["bias"].shape, biased.key != spec.key) == ((300, 2), True)
    assert set(spec.outputs) == {one.name for one in component.outputs}
    assert set(spec.appends) | set(spec.tensors) == {one.slot for one in component.states}
    assert set(component.params) - set(Backbone.options) - {"logits"} == set(spec.params) == set(GREEDY)


def test_experts_can_be_kept_in_eight_bits() -> None:
    def backbone(name: str, shared: dict[Any, Any]) -> Backbone:
        given: dict[str, Any] = {"shared": shared, "precision": "fp8", "random": (name, 3), "options": {}}
        return Backbone.load(LoadContext(device=CPU, dtype=torch.float32, folder=None, **given))

    shared: dict[Any, Any] = {}
    for _ in range(2):
        backbone("qwen3-moe-tiny", shared)
    mixtures = [part for part in shared[LanguageModel].modules() if isinstance(part, SparseMLP)]
    assert {part.packed.dtype for part in mixtures if part.packed is not None} == {torch.float8_e4m3fn}
    assert len(mixtures) == 2
    prompt = torch.randint(0, 256, (1, 30), generator=torch.Generator().manual_seed(0))
    plain = drawn(lambda: LanguageModel(LLM["qwen3-moe-tiny"].llm), 3, device=CPU, dtype=torch.float32)
    wanted, kept = forwarded(plain, prompt), shared[LanguageModel]
    for form in (forwarded, read, stepped):
        assert 0 < (form(kept, prompt) - wanted).norm() / wanted.norm() < 0.1
    with pytest.raises(Refused, match="has none"):
        backbone("qwen3-tiny", {})


def test_a_text_ends_with_any_of_its_end_tokens_and_after_one() -> None:
    backbone = loaded("qwen3-tiny")
    token, fed = torch.tensor([257, 3, 3, -1]), torch.tensor([-1, 257, 5, 4])
    answers = backbone.answers(token, fed)
    assert answers["stop"].tolist() == [True, True, False, False]
    assert answers["token"].tolist() == [[257], [3], [3], [0]]
    assert answers["@finite"].tolist() == [True, True, True, False]


def test_a_prompts_bytes_are_its_tokens() -> None:
    engine = engine_of(plan_of({"prompt": NODES["prompt"]}, source="random:llama-tiny:0"))

    def read(text: Any) -> list[int]:
        return outputs(engine, call("prompt", {"text": text}))[0]["ids"].tolist()

    assert read("hi é") == [*"hi é".encode()]
    assert read("\ud800") == [*b"?"]
    for wrong in (5, ""):
        [done] = serve(engine, call("prompt", {"text": wrong}))
        assert done.error is not None
        assert done.error.code == "invalid_input"


def test_a_prompt_has_the_tokens_that_its_tokenizer_adds(tmp_path: Path) -> None:
    folder = language_model("qwen3", tmp_path)
    document = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    special = {token["content"]: token["id"] for token in document["added_tokens"]}
    assert "<bos>" in special
    found: list[list[int]] = []
    for processor in (None, {**TEMPLATE, "special_tokens": {"<bos>": {
        "id": "<bos>", "ids": [special["<bos>"]], "tokens": ["<bos>"],
    }}}):  # fmt: skip
        (folder / "tokenizer.json").write_text(json.dumps({**document, "post_processor": processor}), "utf-8")
        engine = engine_of(
            plan_of({"prompt": NODES["prompt"]}, source=f"checkpoint:{folder.name}"), weights_roots=[tmp_path]
        )
        [given] = outputs(engine, call("prompt", {"text": "reach <bos>"}))
        found.append(given["ids"].tolist())
    assert special["<bos>"] not in found[0], "in a client's text it is text"
    assert found[1] == [special["<bos>"], *found[0]]


@pytest.mark.parametrize(
    ("generation", "config", "stops"),
    [
        (None, 2, (2,)),
        (None, None, ()),
        (None, [5, 3, 5], (3, 5)),
        ({"eos_token_id": [7, 4]}, 2, (4, 7)),
        ({"eos_token_id": 9}, 2, (9,)),
        ({"temperature": 0.6}, 2, (2,)),
    ],
)
def test_end_tokens_are_those_of_the_folder(
    tmp_path: Path, generation: dict[str, Any] | None, config: Any, stops: tuple[int, ...]
) -> None:
    public = {**llm_tiny.CONFIGS["llama"], "eos_token_id": config}
    (tmp_path / "config.json").write_text(json.dumps(public))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_llm(tmp_path).stops == stops


def test_end_tokens_must_lie_in_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**llm_tiny.CONFIGS["llama"], "eos_token_id": [1, 160]}))
    with pytest.raises(InvalidInput, match="eos_token_id"):
        read_llm(tmp_path)
    with pytest.raises(ValueError, match="vocabulary of 264"):
        LlmConfig(llm=LLM["qwen3-tiny"].llm, stops=(264,))


def test_shapes_of_random_sources_are_those_of_the_modules() -> None:
    sizes = find_sizes(families())
    for name, config in LLM.items():
        with unset():
            numbers = sum(p.numel() for p in LanguageModel(config.llm).parameters())
        known, llm = sizes(Weights(family="llm", source=f"random:{name}:0")), config.llm
        assert known.numbers["model"] == numbers, name
        assert known.caches["llm.backbone"] == 2 * llm.layers * llm.kv_heads * llm.head_dim
        assert max(text_edges(name)) < llm.vocab
    with pytest.raises(NotFound, match="qwen3-tiny"):
        llm_config("orpheus-tiny")
