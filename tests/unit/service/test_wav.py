"""A stream of sound is playable piece by piece; who waits gets one file."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from walkgraph.cli.runs import request
from walkgraph.ids import RunId
from walkgraph.service.runs.results import event_of, result_of
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import values, wav
from walkgraph.wire import messages as m


def piece(count: int, *, rate: int = 24000, first: int = 0, subtype: str = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    numbers = np.arange(first, first + count).astype(np.int16)
    soundfile.write(buffer, numbers, rate, format="WAV", subtype=subtype)
    return buffer.getvalue()


def samples(data: bytes) -> tuple[list[int], int]:
    numbers, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    return numbers.tolist(), rate


def test_pieces_become_one_file_in_their_order() -> None:
    whole = wav.joined([piece(3), piece(0), piece(2, first=3)])
    assert whole is not None
    assert samples(whole) == ([0, 1, 2, 3, 4], 24000)
    with wave.open(io.BytesIO(whole)) as file:
        assert file.getnframes() == 5


def test_what_is_not_of_one_format_stays_apart() -> None:
    assert wav.joined([piece(3), piece(3, rate=16000)]) is None
    assert wav.joined([piece(3), piece(3, subtype="PCM_24")]) is None
    assert wav.joined([piece(3), piece(3, subtype="FLOAT")]) is None
    assert wav.joined([piece(3), piece(3)[:20]]) is None
    assert wav.joined([]) is None


def joined(made: Sequence[m.Value], passes: Sequence[tuple[int, ...]] = ()) -> list[m.Value]:
    """The values of an output. `passes`: of each value, by default none."""
    each = passes or [()] * len(made)
    sent = [
        m.Output(run=RunId("r"), name="o", index=index, value=value, passes=at)
        for index, (value, at) in enumerate(zip(made, each, strict=True))
    ]
    return values.joined(sent)


def test_each_pass_has_its_own_text_and_sound() -> None:
    texts = [m.Small(value=letter) for letter in "abc"]
    assert joined(texts, [(0,), (0,), (1,)]) == [m.Small(value="ab"), m.Small(value="c")]
    assert joined(texts, [(0, 1), (1, 1), (1, 1)]) == [m.Small(value="a"), m.Small(value="bc")]
    sounds = [m.Blob(data=piece(2)), m.Blob(data=piece(1, first=2))]
    assert len(joined(sounds, [(0,), (0,)])) == 1
    assert joined(sounds, [(0,), (1,)]) == sounds


def test_only_neighbours_of_one_kind_are_joined() -> None:
    blobs = [m.Blob(data=piece(2)), m.Blob(data=piece(1, first=2))]
    found = joined([m.Small(value="a"), m.Small(value="b"), *blobs, m.Small(value=1), m.Small(value="c")])
    assert [type(value) for value in found] == [m.Small, m.Blob, m.Small, m.Small]
    assert found[0] == m.Small(value="ab")
    assert isinstance(found[1], m.Blob)
    assert samples(found[1].data)[0] == [0, 1, 2]
    apart = [m.Blob(data=piece(2)), m.Blob(data=piece(2, rate=16000))]
    assert joined(apart) == apart
    pictures = [m.Blob(data=b"\x89PNG\r\n\x1a\n1"), m.Blob(data=b"\x89PNG\r\n\x1a\n2")]
    assert joined(pictures) == pictures
    numbers = [m.Small(value=1), m.Small(value=2)]
    assert joined(numbers) == numbers


def run_with_sound(pieces: list[bytes]) -> LiveRun:
    run = LiveRun(m.Submit(run=RunId("r"), task="speak", params={}, inputs={}), "d", send=lambda message: None)
    for index, data in enumerate(pieces):
        run.take(m.Output(run=run.id, name="audio", index=index, value=m.Blob(data=data), modality="audio"))
    run.take(m.Finished(run=run.id, error=None, seconds=0.5))
    return run


def test_who_streams_gets_playable_pieces_and_who_waits_gets_one_file() -> None:
    run = run_with_sound([piece(4), piece(2, first=4), piece(0)])
    streamed = [event_of(event)[1]["value"] for event in run.outputs]
    assert [samples(base64.b64decode(value["data"]))[0] for value in streamed] == [[0, 1, 2, 3], [4, 5], []]
    [waited] = result_of(run)["outputs"]["audio"]
    assert (waited["type"], waited["mime"]) == ("audio", "audio/wav")
    assert samples(base64.b64decode(waited["data"])) == ([0, 1, 2, 3, 4, 5], 24000)


def test_the_command_line_writes_one_file(tmp_path: Path) -> None:
    run = run_with_sound([piece(4), piece(2, first=4)])
    result: dict[str, Any] = {"outputs": {}, "error": None, "seed": 7}
    for event in run.outputs:
        request.add(result["outputs"], "audio", event_of(event)[1]["value"])
    declared = {"name": "speak", "outputs": ["audio"]}
    [file] = request.save(result, declared, str(tmp_path / "said.wav"))
    assert samples(Path(file).read_bytes())[0] == [0, 1, 2, 3, 4, 5]
    assert result["outputs"]["audio"] == [{"type": "audio", "mime": "audio/wav", "file": file}]
