"""Models whose linears are kept in four bits: read or drawn tensor by tensor, in all forms, near what they replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.checkpoints import language_model
from tests.support.language import forwarded, read, stepped
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.architectures.precision import Kept
from walkgraph.components import families
from walkgraph.errors import Refused
from walkgraph.layers.linear.int4 import Int4Weight
from walkgraph.layers.unset import unset
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import bagel_config
from walkgraph.models.llm.config import read_llm
from walkgraph.models.llm.presets import LLM
from walkgraph.models.orpheus.operators import Backbone
from walkgraph.models.orpheus.presets import orpheus_config

CPU = torch.device("cpu")


def model(name: str, kept: str) -> LanguageModel:
    given: dict[str, Any] = {"device": CPU, "dtype": torch.float32, "precision": kept}
    return drawn(lambda: LanguageModel(LLM[name].llm), 3, **given).pack()


def few(made: torch.nn.Module) -> set[str]:
    return {name for name, value in made.state_dict().items() if isinstance(value, Int4Weight)}


def off(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", ["qwen3-tiny", "llama-tiny"])
def test_all_forms_compute_with_the_same_numbers_near_the_exact_ones(name: str) -> None:
    exact, kept = model(name, "bf16"), model(name, "int4")
    assert few(kept) == {n for n in exact.state_dict() if ".layers." in n and n.endswith("_proj.weight")}
    prompt = torch.randint(0, 256, (1, 30), generator=torch.Generator().manual_seed(0))
    wanted = forwarded(kept, prompt)
    assert 0.02 < off(wanted, forwarded(exact, prompt)) < 0.5
    for form in (read, stepped):
        torch.testing.assert_close(form(kept, prompt), wanted, rtol=1e-3, atol=1e-4)


def test_a_checkpoint_is_converted_while_it_is_read(tmp_path: Path) -> None:
    folder = language_model("qwen3", tmp_path)
    config = read_llm(folder).llm
    exact = load_language_model(folder, config)
    kept = load_language_model(folder, config, precision="int4")
    assert few(kept)
    for name, value in kept.state_dict().items():
        own = exact.state_dict()[name]
        same = value.plain() if isinstance(value, Int4Weight) else value
        wanted = Int4Weight.of(own).plain() if isinstance(value, Int4Weight) else own
        assert torch.equal(same, wanted), name


def test_experts_are_refused() -> None:
    with pytest.raises(Refused, match="layers without experts"):
        model("qwen3-moe-tiny", "int4")


def test_a_backbone_is_loaded_in_the_format_of_its_weight_set() -> None:
    given: dict[str, Any] = {"shared": {}, "precision": "int4", "random": ("orpheus-tiny", 0), "options": {}}
    Backbone.load(LoadContext(device=CPU, dtype=torch.float32, folder=None, **given))
    assert few(given["shared"][LanguageModel])


def built(family: str, name: str) -> torch.nn.Module:
    with unset():
        if family == "bagel":
            return Bagel(bagel_config(name))
        return LanguageModel(orpheus_config(name).llm if family == "orpheus" else LLM[name].llm)


@pytest.mark.parametrize(
    ("family", "name"),
    [
        (family, name)
        for family in ("orpheus", "bagel", "llm")
        for name, shape in families()[family].shapes.items()
        if shape.linears
    ],
)
def test_plans_count_the_linears_of_a_shape(family: str, name: str) -> None:
    module = built(family, name)
    state, kept = module.state_dict(), Kept(module, "int4")
    counted = sum(state[one].numel() for one in kept.few)
    assert families()[family].shapes[name].linears == {"model": counted}
    assert all(state[one].shape[1] % 128 == 0 for one in kept.few)
