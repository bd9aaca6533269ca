"""Language models against the logits that `transformers` gave for the same folders (`tests/golden/make_llm.py`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.llm_tiny import ANSWERS, CONFIGS, tokens, write_folder
from tests.support.language import forwarded, read, stepped
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.models.llm.config import read_llm

torch.set_num_threads(1)
BAR = 2e-5


@pytest.fixture(scope="module", params=CONFIGS)
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LanguageModel, Tensor]:
    """A model, loaded from its public folder, and the published code's logits."""
    folder = write_folder(tmp_path_factory.mktemp("roots"), CONFIGS[request.param])
    with np.load(ANSWERS) as answers:
        wanted = torch.from_numpy(answers[request.param])
    return load_language_model(folder, read_llm(folder).llm), wanted


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("form", [forwarded, read, stepped])
def test_every_form_gives_the_logits_of_the_published_code(found: tuple[LanguageModel, Tensor], form: object) -> None:
    model, wanted = found
    assert off(form(model, tokens()), wanted) < BAR  # type: ignore[operator]


def test_what_a_config_says_matters_to_these_logits(tmp_path: Path) -> None:
    """So that a reader that overlooks it would be found."""
    ids = tokens()
    with np.load(ANSWERS) as answers:
        wanted = {kind: torch.from_numpy(answers[kind]) for kind in CONFIGS}
    folders = {kind: write_folder(tmp_path / kind, config) for kind, config in CONFIGS.items()}
    known = {kind: read_llm(folder).llm for kind, folder in folders.items()}
    moe = known["qwen3_moe"].moe
    assert moe is not None
    for kind, changed in (
        ("llama", replace(known["llama"], scaling=None)),
        ("qwen3", replace(known["qwen3"], rope_theta=5e5)),
        ("qwen3_moe", replace(known["qwen3_moe"], moe=replace(moe, renormed=False))),
        ("qwen3_moe", replace(known["qwen3_moe"], moe=replace(moe, chosen=2))),
        ("mistral", replace(known["mistral"], norm_eps=1e-1)),
    ):
        assert off(forwarded(load_language_model(folders[kind], changed), ids), wanted[kind]) > 50 * BAR, kind
