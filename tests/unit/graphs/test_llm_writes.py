"""The task `complete` with the real operators and tiny random weights: what is written, where it ends, and that the
loop runs in the engine as a whole."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.support.language import forwarded
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.graph import codec
from walkgraph.models.llm.presets import LLM

TINY = ("qwen3-tiny", "qwen3-moe-tiny", "llama-tiny", "mistral-tiny")
PROMPT, MANY = "Once upon a time", 24


def deployment(name: str, *, resident: bool = True) -> LocalDeployment:
    document = json.loads(GRAPHS["llm"].read_text())
    document["weights"]["llm"]["source"] = f"random:{name}:0"
    return LocalDeployment(codec.load(document), on_cpus("llm_one_gpu"), threads=1, resident=resident)


def written(local: LocalDeployment, run: str, **params: float) -> list[str]:
    local.submit(run, "complete", {"seed": 1, **params}, {"prompt": [PROMPT]})
    local.run()
    assert local.failed == {}
    return local.outputs[run].get("text", [])


@cache
def likeliest(name: str) -> list[int]:
    """The likeliest tokens after the prompt, by whole forwards."""
    model = drawn(lambda: LanguageModel(LLM[name].llm), 0, device=torch.device("cpu"), dtype=torch.float32)
    ids = torch.tensor([list(PROMPT.encode())])
    for _ in range(MANY):
        following: Tensor = forwarded(model, ids)[:, -1:].argmax(-1)
        ids = torch.cat([ids, following], 1)
    return ids[0, len(PROMPT) :].tolist()


def text_of(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode(errors="replace")


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("resident", [True, False])
def test_it_writes_the_likeliest_tokens(name: str, resident: bool) -> None:
    tokens, stops = likeliest(name), LLM[name].stops
    tokens = tokens[: next((at for at, token in enumerate(tokens) if token in stops), MANY)]
    assert len(tokens) > 5, "else it tests less"
    pieces = written(deployment(name, resident=resident), "a", max_tokens=MANY, temperature=0)
    assert len(pieces) == len(tokens), "each token's text leaves as it is made"
    whole = "".join(pieces)
    assert text_of(tokens).startswith(whole)
    assert len(text_of(tokens)) - len(whole) <= 3, "only an incomplete character is held back"


@pytest.mark.parametrize("at", [0, 1, 5])
def test_it_ends_before_a_token_that_ends_texts(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = likeliest("qwen3-tiny")
    first = tokens.index(tokens[at])
    monkeypatch.setitem(LLM, "qwen3-tiny", replace(LLM["qwen3-tiny"], stops=(260, tokens[at])))
    local = deployment("qwen3-tiny")
    whole = "".join(written(local, "a", max_tokens=MANY, temperature=0))
    # A first token that ends the text is a byte here, so it is seen; in a checkpoint it is special.
    assert text_of(tokens[: max(first, 1)]).startswith(whole)
    [end] = local.ends["a"]
    assert [(loop.iterations, loop.stopped) for loop in end.loops] == [(max(first, 1), True)]


@pytest.mark.parametrize("most", [1, 2])
def test_a_short_answer_has_its_length(most: int) -> None:
    assert len(written(deployment("llama-tiny"), "a", max_tokens=most)) == most


def test_runs_together_write_what_each_writes_alone() -> None:
    hows = {
        "a": {"temperature": 1.0},
        "b": {"temperature": 1.3, "top_k": 0, "top_p": 1, "min_p": 0.05},
        "c": {"temperature": 0.9, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2},
    }
    local = deployment("qwen3-moe-tiny")
    alone = {run: written(local, f"{run} alone", max_tokens=MANY, **how) for run, how in hows.items()}
    for run, how in hows.items():
        local.submit(run, "complete", {"seed": 1, "max_tokens": MANY, **how}, {"prompt": [PROMPT]})
    local.run()
    assert {run: local.outputs[run]["text"] for run in hows} == alone
    assert len({"".join(pieces) for pieces in alone.values()}) == len(hows)
