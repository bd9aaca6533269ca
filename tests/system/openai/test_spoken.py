"""A task that answers in text and sound, through the official client."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from PIL import Image

from tests.support.listening import heard
from tests.support.serving import Service
from tests.system.openai.conftest import tiny

NAME = "qwen3_omni"
ASKED: dict[str, Any] = {
    "model": NAME,
    "max_tokens": 4,
    "temperature": 0.0,
    "seed": 3,
    "extra_body": {"max_frames": 6, "context": 512, "speech_temperature": 0.0, "code_temperature": 0.0},
}
SPOKEN: dict[str, Any] = {**ASKED, "modalities": ["text", "audio"]}


def media() -> list[Any]:
    """A sound in MP3 between a text and a picture."""
    sound, picture = io.BytesIO(), io.BytesIO()
    tone = np.sin(np.arange(8000) / 9).astype(np.float32) / 2
    soundfile.write(sound, tone, 16000, format="MP3")
    Image.new("RGB", (64, 64), "red").save(picture, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}"
    given = {"data": base64.b64encode(sound.getvalue()).decode(), "format": "mp3"}
    return [
        {"type": "text", "text": "what?"},
        {"type": "input_audio", "input_audio": given},
        {"type": "image_url", "image_url": {"url": url}},
    ]


@pytest.fixture(scope="module")
def omni(running: Service, client: openai.OpenAI) -> openai.OpenAI:
    graph = tiny(NAME, sources={"omni": "random:qwen3-omni-tiny:0"})
    with running.client() as native:
        native.deploy(graph, name=NAME)
    running.wait_ready(NAME)
    return client


def test_an_answer_is_text_and_sound_whole_or_streamed(omni: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": media()}]
    whole = omni.chat.completions.create(messages=messages, audio={"voice": "chelsie", "format": "wav"}, **SPOKEN)
    answer = whole.choices[0].message.audio
    assert answer is not None
    samples, rate = heard(base64.b64decode(answer.data))
    assert (rate, samples.shape[1]) == (24000, 1)
    assert len(samples) > 0
    chunks = list(
        omni.chat.completions.create(
            messages=messages, audio={"voice": "chelsie", "format": "pcm16"}, stream=True, **SPOKEN
        )
    )
    told: list[Any] = [one.delta.audio for chunk in chunks for one in chunk.choices if one.delta.audio]
    assert "".join(one.transcript or "" for one in told) == answer.transcript
    streamed = np.frombuffer(b"".join(base64.b64decode(one.data or "") for one in told), "<i2")
    assert np.array_equal(streamed, samples[:, 0])
    plain = omni.chat.completions.create(messages=messages, **ASKED)
    assert (plain.choices[0].message.content, plain.choices[0].message.audio) == (answer.transcript, None)


def test_an_answer_in_sound_goes_back_into_the_conversation(omni: openai.OpenAI) -> None:
    how = {**SPOKEN, "audio": {"voice": "Ethan", "format": "wav"}}
    messages: list[Any] = [{"role": "user", "content": media()}]
    first = omni.chat.completions.create(messages=messages, **how).choices[0].message
    messages += [first, {"role": "user", "content": "and now?"}]
    assert omni.chat.completions.create(messages=messages, **how).choices[0].message.audio is not None


def test_an_unknown_voice_is_refused_at_its_place(omni: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        omni.chat.completions.create(
            messages=[{"role": "user", "content": "a"}], audio={"voice": "nobody", "format": "wav"}, **SPOKEN
        )
    assert refusal.value.param == "audio.voice"
