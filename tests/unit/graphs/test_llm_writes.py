"""The task `complete` with the real operators and tiny random weights: what is written, where it ends, and that the
loop runs in the engine as a whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

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


def deployment(name: str, *, resident: bool = True, **engine: Any) -> LocalDeployment:
    document = json.loads(GRAPHS["llm"].read_text())
    document["weights"]["llm"]["source"] = f"random:{name}:0"
    return LocalDeployment(codec.load(document), on_cpus("llm_one_gpu"), threads=1, resident=resident, **engine)


def written(local: LocalDeployment, run: str, bias: Sequence[tuple[int, float]] = (), **params: float) -> list[str]:
    given = {"logit_bias": [torch.tensor(bias)]} if bias else {}
    local.submit(run, "complete", {"seed": 1, **params}, {"prompt": [PROMPT], **given})
    local.run()
    assert local.failed == {}
    return local.outputs[run].get("text", [])


@cache
def model_of(name: str) -> LanguageModel:
    return drawn(lambda: LanguageModel(LLM[name].llm), 0, device=torch.device("cpu"), dtype=torch.float32)


@cache
def likeliest(name: str) -> list[int]:
    """The likeliest tokens after the prompt, by whole forwards."""
    model = model_of(name)
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
    assert [(loop.iterations, loop.reason) for loop in end.loops] == [(max(first, 1), "stop")]


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


# ── what was likely ─────────────────────────────────────────────────────────────────────────────


def told(local: LocalDeployment, run: str) -> list[dict[str, Any]]:
    lines = local.outputs[run].get("logprobs", [])
    assert all(line.endswith("\n") for line in lines)
    return [json.loads(line) for line in lines]


def id_of(entry: dict[str, Any]) -> int:
    """The id of a token of bytes."""
    data = bytes(entry["bytes"])
    return data[0] if len(data) == 1 else int(data[1:-1])


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"temperature": 1.2, "frequency_penalty": 1.0, "top_k": 5}])
def test_log_probabilities_are_those_of_the_model(resident: bool, how: dict[str, float]) -> None:
    local = deployment("qwen3-tiny", resident=resident)
    plain = written(local, "plain", max_tokens=MANY, **how)
    assert local.outputs["plain"].keys() == {"text"}, "they are made only for runs that ask"
    assert written(local, "a", max_tokens=MANY, logprobs=True, top_logprobs=4, **how) == plain
    lines = told(local, "a")
    assert len(lines) == len(plain)
    ids = [*PROMPT.encode(), *map(id_of, lines)]
    logits = forwarded(model_of("qwen3-tiny"), torch.tensor([ids]))[0, len(PROMPT) - 1 : -1]
    wanted = logits.log_softmax(-1)
    for line, row in zip(lines, wanted, strict=True):
        assert line["logprob"] == pytest.approx(row[id_of(line)].item(), abs=1e-4)
        top, which = row.topk(4)
        assert [one["logprob"] for one in line["top_logprobs"]] == pytest.approx(top.tolist(), abs=1e-4)
        assert [id_of(one) for one in line["top_logprobs"]] == which.tolist()
        assert line["token"] == bytes(line["bytes"]).decode(errors="replace")


def test_log_probabilities_beside_runs_that_ask_for_none() -> None:
    local = deployment("qwen3-moe-tiny")
    alone = written(local, "alone", max_tokens=MANY, logprobs=True)
    for run, how in {"a": {"logprobs": True}, "b": {}, "c": {"logprobs": True}}.items():
        local.submit(run, "complete", {"seed": 1, "max_tokens": MANY, **how}, {"prompt": [PROMPT]})
    local.run()
    assert all(local.outputs[run]["text"] == alone for run in "abc")
    for run in "ac":
        for line, wanted in zip(told(local, run), told(local, "alone"), strict=True):
            assert line["bytes"] == wanted["bytes"]
            assert line["logprob"] == pytest.approx(wanted["logprob"], abs=1e-4)
    assert "logprobs" not in local.outputs["b"]


@pytest.mark.parametrize("resident", [True, False])
def test_a_bias_is_added_to_the_logits_of_its_token(resident: bool) -> None:
    local, ids = deployment("qwen3-tiny", resident=resident), likeliest("qwen3-tiny")
    banned = [(token, -100.0) for token in dict.fromkeys(ids)]
    found = written(local, "a", banned, max_tokens=MANY, temperature=0, logprobs=True)
    lines = told(local, "a")
    assert not {id_of(line) for line in lines} & set(ids)
    model, context = model_of("qwen3-tiny"), torch.tensor([list(PROMPT.encode())])
    for line in lines:
        logits = forwarded(model, context)[0, -1].clone()
        logits[torch.tensor(ids)] -= 100
        assert id_of(line) == logits.argmax().item()
        context = torch.cat([context, logits.argmax().view(1, 1)], 1)
    assert len(found) == len(lines)
    wanted = written(local, "b", [(ord("x"), 100.0), (5, 0.5)], max_tokens=4, temperature=1.0)
    assert "".join(wanted) == "xxxx"


def test_runs_with_a_bias_beside_others_write_what_each_writes_alone() -> None:
    local = deployment("qwen3-moe-tiny")
    biases: dict[str, Sequence[tuple[int, float]]] = {"a": [(ord("x"), 4.0)], "b": (), "c": [(ord("y"), 4.5), (3, -1)]}
    alone = {run: written(local, f"{run} alone", bias, max_tokens=MANY) for run, bias in biases.items()}
    for run, bias in biases.items():
        given = {"logit_bias": [torch.tensor(bias)]} if bias else {}
        local.submit(run, "complete", {"seed": 1, "max_tokens": MANY}, {"prompt": [PROMPT], **given})
    local.run()
    assert {run: local.outputs[run]["text"] for run in biases} == alone
    assert len({"".join(pieces) for pieces in alone.values()}) == 3


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ([[264.0, 1.0]], "tokens from 0 to 263"),
        ([[1.5, 1.0]], "tokens from 0 to 263"),
        ([[1.0, 101.0]], "numbers from -100 to 100"),
        ([[1.0, float("nan")]], "numbers from -100 to 100"),
        ([[1.0, 1.0], [1.0, 2.0]], "each token once"),
        ([[float(at % 264), 0.0] for at in range(301)], "at most 300"),
        ([[1.0, 2.0, 3.0]], "pairs"),
    ],
)
def test_a_bias_that_cannot_be_is_the_clients_fault(bias: list[list[float]], words: str) -> None:
    local = deployment("qwen3-tiny")
    local.submit("a", "complete", {}, {"prompt": [PROMPT], "logit_bias": [torch.tensor(bias)]})
    local.run()
    assert local.failed["a"].code == "invalid_input"
    assert words in local.failed["a"].message


# ── several answers to one prompt ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("resident", [True, False])
def test_several_answers_read_their_prompt_once(resident: bool) -> None:
    prompt, hows = f"{PROMPT * 12}now", [{"seed": seed, "max_tokens": 6, "temperature": 1.0} for seed in range(4)]

    def answers(local: LocalDeployment, name: str, *, together: bool) -> list[str]:
        for at, how in enumerate(hows):
            local.submit(f"{name}{at}", "complete", how, {"prompt": [prompt]})
            if not together:
                local.run()
        local.run()
        assert local.failed == {}
        return ["".join(local.outputs[f"{name}{at}"]["text"]) for at in range(len(hows))]

    local = deployment("qwen3-tiny", resident=resident)
    found = answers(local, "n", together=True)
    ends = [local.ends[f"n{at}"][0] for at in range(len(hows))]
    computed = [end.read - end.found for end in ends]
    assert sorted(computed, reverse=True) == [195, 3, 3, 3], "the others share its twelve full pages"
    assert found == answers(deployment("qwen3-tiny", resident=resident), "alone", together=False)
    assert len(set(found)) == len(found), "each has its own seed"
