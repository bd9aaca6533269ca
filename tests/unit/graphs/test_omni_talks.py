"""Qwen3-Omni's tasks with the real operators: text, sound and pictures in, text and speech out.

A tiny checkpoint in the published layout answers as `transformers` did (`tests/golden/qwen3_omni/make_whole.py`), from
the client's bytes to the sound, on one rank and on two, alone and together.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from tests.golden.qwen3_omni import whole
from tests.support.checkpoints import imported
from tests.support.local import LocalDeployment
from tests.unit.engine.plans import call
from tests.unit.graphs.test_bundled import PLACEMENTS
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.models.video.operators import FramesOut
from walkgraph.placement.document import Placement, decode

ONE, TWO = "qwen3_omni_one_gpu", "qwen3_omni_two_gpus"
GREEDY: Mapping[str, Any] = {
    "max_tokens": whole.TOKENS,
    "max_frames": whole.FRAMES,
    "temperature": 0.0,
    "speech_temperature": 0.0,
    "code_temperature": 0.0,
}
TALKS = {**{name: (True, talk) for name, talk in whole.TALKS.items()}, **whole.FILMED}
SAID = Turn("system", (TurnPart("text", whole.PROMPT),))
CUT = "\ufffd"
BAR = 2e-4
"""The largest difference of samples, which are stored in 16 bits."""


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


def part(value: whole.Part) -> TurnPart:
    match value:
        case Path():
            return TurnPart("video", value.read_bytes())
        case str():
            return TurnPart("text", value)
        case int():
            return TurnPart("audio", whole.sound(value))
        case _:
            return TurnPart("image", whole.picture(*value))


def conversation(turns: Sequence[whole.Turn]) -> Conversation:
    return Conversation(tuple(Turn(turn.role, tuple(map(part, turn.parts))) for turn in turns))  # type: ignore[arg-type]


def asked(local: LocalDeployment, talks: Mapping[str, str]) -> dict[str, dict[str, list[Any]]]:
    """The outputs of runs, each with the name of its talk, that are served together."""
    for run, talk in talks.items():
        heard, turns = TALKS[talk]
        params = {**GREEDY, "every": 2, "use_audio_in_video": heard}
        local.submit(run, "converse", params, {"messages": [conversation(turns)]})
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


def alike(one: Mapping[str, list[Any]], other: Mapping[str, list[Any]]) -> bool:
    """True if two runs of one batch said the same: on some CPUs, the last bits of a row depend on its place."""
    heard, spoken = samples(one["audio"]), samples(other["audio"])
    return one["text"] == other["text"] and len(heard) == len(spoken) and np.abs(heard - spoken).max() < BAR


@pytest.mark.parametrize("local", [pytest.param(ONE, marks=pytest.mark.long), TWO], indirect=True)
@pytest.mark.parametrize("talk", TALKS)
def test_a_talk_is_answered_as_the_published_code_does(local: LocalDeployment, talk: str) -> None:
    compare(talk, asked(local, {talk: talk})[talk])


@pytest.mark.parametrize("name", whole.WATCHED)
def test_a_video_is_watched_as_the_published_code_does(local: LocalDeployment, name: str) -> None:
    heard, question = whole.WATCHED[name]
    params = {**GREEDY, "system_prompt": whole.PROMPT, "every": 2, "use_audio_in_video": heard}
    local.submit(name, "watch", params, {"video": [whole.VIDEO.read_bytes()], "text": [question]})
    local.run()
    assert not local.failed
    local.release(name)
    compare(name, local.outputs.pop(name))


def test_a_video_without_sound_is_only_seen(local: LocalDeployment) -> None:
    inputs = {"frames": list(torch.rand(4, 3, 64, 96, generator=torch.manual_seed(3)) * 2 - 1)}
    (made,) = FramesOut.load(None).forward([call("video", inputs, format="mp4", rate=4.0, quality=60)], None)
    asking = Conversation((Turn("user", (TurnPart("video", made["video"]), TurnPart("text", "What moves?"))),))
    for heard in (True, False):
        params = {**GREEDY, "use_audio_in_video": heard}
        local.submit(f"heard: {heard}", "converse", params, {"messages": [asking]})
    local.run()
    assert not local.failed
    assert alike(local.outputs.pop("heard: True"), local.outputs.pop("heard: False"))
    for heard in (True, False):
        local.release(f"heard: {heard}")


def test_parts_of_one_message_come_in_any_order(local: LocalDeployment) -> None:
    parts = [
        TurnPart("video", whole.BRIEF.read_bytes()),
        TurnPart("text", "Go on."),
        TurnPart("audio", whole.sound(9000)),
    ]
    local.submit("turns", "converse", GREEDY, {"messages": [Conversation((SAID, Turn("user", tuple(parts))))]})
    local.submit("parts", "chat", {**GREEDY, "system_prompt": whole.PROMPT}, parts=parts)
    local.run()
    assert not local.failed
    assert alike(local.outputs.pop("turns"), local.outputs.pop("parts"))
    for run in ("turns", "parts"):
        local.release(run)


def test_talks_beside_each_other_are_answered_as_each_alone(local: LocalDeployment) -> None:
    talks = {f"{talk} {copy}": talk for talk in TALKS for copy in range(2)}
    for run, outputs in asked(local, talks).items():
        compare(talks[run], outputs)


def test_a_message_without_a_system_prompt_is_a_conversation_of_one_turn(local: LocalDeployment) -> None:
    question = part("What is it?")
    local.submit("chat", "chat", {**GREEDY, "system_prompt": ""}, {"text": [question.value]})
    local.submit("talk", "converse", GREEDY, {"messages": [Conversation((Turn("user", (question,)),))]})
    local.run()
    assert not local.failed
    assert alike(local.outputs.pop("chat"), local.outputs.pop("talk"))
    for run in ("chat", "talk"):
        local.release(run)


def test_a_checkpoint_without_a_talker_writes_what_the_published_code_does(tmp_path: Path) -> None:
    folder = whole.folder(tmp_path)
    config, weights = folder / "config.json", folder / "model.safetensors"
    config.write_text(json.dumps({**json.loads(config.read_text()), "talker_config": None, "code2wav_config": None}))
    spoken = ("talker.", "code2wav.")
    kept = {name: one for name, one in load_file(weights).items() if not name.startswith(spoken)}
    save_file(kept, weights)
    _, made = imported(folder)
    silent = LocalDeployment(codec.load(made.graph), on_cpus(ONE), threads=1, roots=(tmp_path,))
    params = {name: GREEDY[name] for name in ("max_tokens", "temperature")}
    for talk in whole.TALKS:
        silent.submit(talk, "converse", params, {"messages": [conversation(whole.TALKS[talk])]})
    silent.run()
    assert not silent.failed
    for talk in whole.TALKS:
        with np.load(whole.ANSWERS) as answers:
            written = whole.tokenizer().decode(answers[f"{talk}: ids"].tolist(), skip_special_tokens=True)
        outputs = silent.outputs.pop(talk)
        assert outputs.keys() == {"text"}
        assert "".join(outputs["text"]).rstrip(CUT) == written.rstrip(CUT)
