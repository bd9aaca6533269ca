"""Qwen3-Omni's tasks with the real operators: text, sound and pictures in, text and speech out.

A tiny checkpoint in the published layout answers as `transformers` did (`tests/golden/qwen3_omni/make_whole.py`), from
the client's bytes to the sound, on one rank and on two, alone and together.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.golden.qwen3_omni import whole
from tests.support.checkpoints import imported
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import PLACEMENTS
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.placement.document import Placement, decode

ONE, TWO = "qwen3_omni_one_gpu", "qwen3_omni_two_gpus"
GREEDY: Mapping[str, Any] = {
    "max_tokens": whole.TOKENS,
    "max_frames": whole.FRAMES,
    "temperature": 0.0,
    "speech_temperature": 0.0,
    "code_temperature": 0.0,
}
CUT = "\ufffd"
BAR = 2e-4
"""Of the samples, which are stored in 16 bits."""


def on_cpus(name: str) -> Placement:
    document = json.loads(PLACEMENTS[name].read_text())
    for rank in document["ranks"]:
        rank["device"] = "cpu"
    return decode(document)


@pytest.fixture(scope="module", params=[ONE, TWO])
def local(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LocalDeployment:
    root = tmp_path_factory.mktemp("roots")
    _, made = imported(whole.folder(root))
    return LocalDeployment(codec.load(made.graph), on_cpus(request.param), threads=1, roots=(root,))


def part(value: str | int | tuple[int, int]) -> TurnPart:
    match value:
        case str():
            return TurnPart("text", value)
        case int():
            return TurnPart("audio", whole.sound(value))
        case _:
            return TurnPart("image", whole.picture(*value))


def conversation(talk: str) -> Conversation:
    turns = [Turn(turn.role, tuple(part(value) for value in turn.parts)) for turn in whole.TALKS[talk]]  # type: ignore[arg-type]
    return Conversation(tuple(turns))


def asked(local: LocalDeployment, talks: Mapping[str, str]) -> dict[str, dict[str, list[Any]]]:
    """The outputs of runs, each with the name of its talk, that are served together."""
    for run, talk in talks.items():
        local.submit(run, "converse", GREEDY, {"messages": [conversation(talk)]})
    local.run()
    assert not local.failed
    for run in talks:
        local.release(run)
    return {run: local.outputs.pop(run) for run in talks}


def samples(pieces: list[bytes]) -> np.ndarray[Any, Any]:
    return np.concatenate([soundfile.read(io.BytesIO(piece), dtype="float32")[0] for piece in pieces])


def compare(talk: str, outputs: Mapping[str, list[Any]]) -> None:
    with np.load(whole.ANSWERS) as answers:
        ids, waveform, count = (answers[f"{talk}: {key}"] for key in ("ids", "waveform", "samples"))
    written = whole.tokenizer().decode(ids.tolist(), skip_special_tokens=True)
    # A last character whose bytes are incomplete isn't shown.
    assert "".join(outputs["text"]).rstrip(CUT) == written.rstrip(CUT)
    spoken = samples(outputs["audio"])
    assert len(spoken) == count
    assert np.abs(spoken[:: whole.KEPT] - waveform).max() < BAR


@pytest.mark.parametrize("talk", whole.TALKS)
def test_a_talk_is_answered_as_the_published_code_does(local: LocalDeployment, talk: str) -> None:
    compare(talk, asked(local, {talk: talk})[talk])


@pytest.mark.parametrize("name", whole.WATCHED)
def test_a_video_is_watched_as_the_published_code_does(local: LocalDeployment, name: str) -> None:
    heard, question = whole.WATCHED[name]
    params = {**GREEDY, "system_prompt": whole.PROMPT, "every": 2, "with_sound": heard}
    local.submit(name, "watch", params, {"video": [whole.VIDEO.read_bytes()], "text": [question]})
    local.run()
    assert not local.failed
    local.release(name)
    compare(name, local.outputs.pop(name))


def test_talks_beside_each_other_are_answered_as_each_alone(local: LocalDeployment) -> None:
    talks = {f"{talk} {copy}": talk for talk in whole.TALKS for copy in range(2)}
    for run, outputs in asked(local, talks).items():
        compare(talks[run], outputs)
