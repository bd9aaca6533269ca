"""Qwen3-Omni reads a given text aloud: as it speaks an answer of its own with the same words."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import ONE, TWO, on_cpus, samples
from walkgraph.graph import codec

QUESTION = "Who are you?"
TOKENS = 3
SEEDS = range(30)
GREEDY = {"speech_temperature": 0.0, "code_temperature": 0.0}
DRAWN = {"speech_temperature": 0.9, "code_temperature": 1.0}
FRAMES = {"max_frames": 8}
ROUNDING = 2 / 32768
"""The tolerance of samples, whose batches differ."""


@pytest.fixture(scope="module", params=[ONE, TWO])
def local(request: pytest.FixtureRequest) -> LocalDeployment:
    document = json.loads(GRAPHS["qwen3_omni"].read_text())
    document["weights"]["omni"]["source"] = "random:qwen3-omni-tiny:0"
    for walk in ("speak", "say"):
        document["walks"][walk]["edges"].append({"from": "code_predictor.codes", "to": "@out.codes", "each": True})
    for task in ("chat", "say"):
        document["tasks"][task]["outputs"].append("codes")
    return LocalDeployment(codec.load(document), on_cpus(request.param), threads=1)


def made(local: LocalDeployment, runs: list[str]) -> dict[str, dict[str, list[Any]]]:
    """The outputs of the runs that were submitted."""
    local.run()
    assert not local.failed
    for run in runs:
        local.release(run)
    return {run: local.outputs.pop(run, {}) for run in runs}


def spoken_words(pieces: list[str]) -> str | None:
    """The words of an answer that were spoken, which are all but the last that its limit allowed; None if they are
    other tokens when they are read as a text."""
    said = pieces[: TOKENS - 1]
    return "".join(said) if all(len(one) == 1 and one.isascii() for one in said) else None


@pytest.mark.parametrize(
    ("local", "how"),
    [
        pytest.param(ONE, GREEDY, id="one-greedy"),
        pytest.param(TWO, DRAWN, id="two-drawn"),
        pytest.param(ONE, DRAWN, id="one-drawn", marks=pytest.mark.long),
        pytest.param(TWO, GREEDY, id="two-greedy", marks=pytest.mark.long),
    ],
    indirect=["local"],
)
def test_a_text_is_said_as_an_answer_with_the_same_words(local: LocalDeployment, how: dict[str, float]) -> None:
    asked = {**FRAMES, **how, "temperature": 1.0, "max_tokens": TOKENS, "system_prompt": "Be kind."}
    for seed in SEEDS:
        local.submit(f"chat {how} {seed}", "chat", {**asked, "seed": seed}, {"text": [QUESTION]})
    answers = made(local, [f"chat {how} {seed}" for seed in SEEDS])
    texts = {seed: text for seed in SEEDS if (text := spoken_words(answers[f"chat {how} {seed}"]["text"]))}
    assert len(texts) > 2
    for seed, text in texts.items():
        params = {**FRAMES, **how, "seed": seed, "instructions": QUESTION}
        local.submit(f"say {how} {seed}", "say", params, {"text": [text]})
    said = made(local, [f"say {how} {seed}" for seed in texts])
    for seed in texts:
        mine, wanted = said[f"say {how} {seed}"], answers[f"chat {how} {seed}"]
        assert torch.equal(torch.cat(mine["codes"]), torch.cat(wanted["codes"]))
        assert np.abs(samples(mine["audio"]) - samples(wanted["audio"])).max() <= ROUNDING
    assert len({tuple(torch.cat(one["codes"]).flatten().tolist()) for one in said.values()}) > 1


def test_what_is_said_depends_on_the_instructions_and_the_voice(local: LocalDeployment) -> None:
    asked: dict[str, dict[str, Any]] = {"plain": {}, "how": {"instructions": "Sadly."}, "who": {"speaker": "aiden"}}
    for run, params in asked.items():
        local.submit(run, "say", {**FRAMES, **GREEDY, **params}, {"text": ["A heron."]})
    sounds = {tuple(one["audio"]) for one in made(local, [*asked]).values()}
    assert len(sounds) == len(asked)


@pytest.mark.parametrize("local", [pytest.param(ONE, marks=pytest.mark.long), TWO], indirect=True)
def test_each_word_needs_a_frame(local: LocalDeployment) -> None:
    text = "Seven herons stand in the river. " * 10
    for run, frames in {"enough": len(text), "short": len(text) - 1}.items():
        local.submit(run, "say", {**GREEDY, "max_frames": frames}, {"text": [text]})
    local.run()
    assert local.failed.keys() == {"short"}
    told = local.failed.pop("short")
    assert told.code == "invalid_input"
    assert f"has {len(text)} tokens, and its speech at most {len(text) - 1} frames" in told.message
    for run in ("enough", "short"):
        local.release(run)
    assert local.outputs.pop("enough")["audio"]


def test_instructions_that_are_too_long_are_refused_before_speech_begins(local: LocalDeployment) -> None:
    local.submit("long", "say", {**FRAMES, **GREEDY, "instructions": "Sadly. " * 80}, {"text": ["A heron."]})
    local.run()
    assert local.failed.keys() == {"long"}
    told = local.failed.pop("long")
    assert (told.code, told.node) == ("invalid_input", "request")
    assert "at most 512 tokens" in told.message
    assert local.outputs.pop("long", {}) == {}
    local.release("long")


def test_a_text_without_words_has_no_sound(local: LocalDeployment) -> None:
    local.submit("nothing", "say", {**FRAMES, **GREEDY}, {"text": [""]})
    assert made(local, ["nothing"])["nothing"] == {}
