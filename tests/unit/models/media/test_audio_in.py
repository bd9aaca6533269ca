"""Sound files from clients: what is read, and what is refused."""

from __future__ import annotations

import io
import random
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from tests.support.palette import Served
from walkgraph.architectures import sounds


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("media")


def tone(seconds: float, rate: int, hertz: float = 440) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def written(wave: np.ndarray, rate: int, form: str = "WAV", subtype: str | None = None) -> bytes:
    made = io.BytesIO()
    soundfile.write(made, wave, rate, format=form, subtype=subtype)
    return made.getvalue()


def packed(wave: np.ndarray, rate: int, form: str, codec: str) -> bytes:
    """Encoded by FFmpeg."""
    made = io.BytesIO()
    with av.open(made, "w", format=form) as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return made.getvalue()


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"])
def test_whole_samples_come_back(served: Served, subtype: str) -> None:
    wave = tone(0.1, 24000)
    made = served.give("media.audio_in", {"audio": written(wave, 24000, "WAV", subtype)}, sample_rate=24000)
    assert made.shape == (2400,)
    np.testing.assert_allclose(made.numpy(), wave, atol=0.02 if subtype in ("PCM_U8", "ULAW", "ALAW") else 1e-4)


def test_channels_are_averaged(served: Served) -> None:
    sides = np.stack([tone(0.1, 16000, 300), tone(0.1, 16000, 500), np.zeros(1600)], axis=1)
    made = served.give("media.audio_in", {"audio": written(sides, 16000, "FLAC")}, sample_rate=16000)
    np.testing.assert_allclose(made.numpy(), sides.mean(1), atol=1e-4)


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 24000), (44100, 16000), (48000, 8000), (22050, 22050)])
def test_sound_gets_its_sample_rate(served: Served, rate: int, wanted: int) -> None:
    data = written(tone(0.5, rate), rate, "WAV", "FLOAT")
    made = served.give("media.audio_in", {"audio": data}, sample_rate=wanted).numpy()
    assert made.shape == (wanted // 2,)
    inner = slice(wanted // 20, -wanted // 20)
    np.testing.assert_allclose(made[inner], tone(0.5, wanted)[inner], atol=1e-4)


@pytest.mark.parametrize(
    ("form", "codec"),
    [
        ("OGG", "VORBIS"),
        ("MP3", None),
        ("mp4", "aac"),
        ("adts", "aac"),
        ("webm", "libopus"),
        ("matroska", "flac"),
    ],
)
def test_compressed_sound_is_nearly_the_sound(served: Served, form: str, codec: str | None) -> None:
    wave = tone(0.5, 48000)
    data = written(wave, 48000, form, codec) if form.isupper() else packed(wave, 48000, form, str(codec))
    made = served.give("media.audio_in", {"audio": data}, sample_rate=24000).numpy()
    # Encoders may add a short delay or lose a first block: the sound agrees at the best of its shifts.
    assert 12000 - 100 <= len(made) < 12000 + 2400
    wanted = tone(0.3, 24000)
    apart = min(np.abs(made[at : at + 7200] - wanted).mean() for at in range(1200, 1200 + 55))
    assert apart < 0.04


def test_no_samples_are_no_waveform(served: Served) -> None:
    assert served.give("media.audio_in", {"audio": written(np.zeros(0), 16000)}).shape == (0,)


def test_lists_of_other_files_and_strange_formats_never_reach_their_readers(served: Served) -> None:
    texts = (
        b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n",
        b"ffconcat version 1.0\nfile /etc/hostname\n",
        b"[playlist]\nFile1=http://127.0.0.1/\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 0\n",
        b'<?xml version="1.0"?><MPD></MPD>',
        written(tone(0.1, 8000), 8000, "AIFF"),
        written(tone(0.1, 8000), 8000, "AU"),
        written(tone(0.1, 8000), 8000, "CAF"),
        b"",
        b"\xff",
        b"RIFF____AVI LIST",
    )
    for data in texts:
        assert "encode it again" in served.refusal("media.audio_in", {"audio": data})
    for value in ("text", 5, None, np.zeros(3)):
        assert "encode it again" in served.refusal("media.audio_in", {"audio": value})


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
def test_broken_bytes_end_one_call(served: Served, form: str) -> None:
    chance, whole = random.Random(1), written(tone(0.05, 8000), 8000, form)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            del data[chance.randrange(4, len(data)) :]
        try:
            served.give("media.audio_in", {"audio": bytes(data)}, sample_rate=8000)
        except AssertionError:
            served.refusal("media.audio_in", {"audio": bytes(data)}, sample_rate=8000)


def test_sound_that_is_too_long_is_refused(served: Served, monkeypatch: Any) -> None:
    silence = written(np.zeros((48000, 2)), 48000, "FLAC")
    assert len(silence) < 10_000
    monkeypatch.setattr(sounds, "_MOST_READ", 90_000)
    assert "shorten the sound" in served.refusal("media.audio_in", {"audio": silence})
    monkeypatch.setattr(sounds, "_MOST_READ", 100_000)
    monkeypatch.setattr(sounds, "MAX_SAMPLES", 100_000)
    assert served.give("media.audio_in", {"audio": silence}, sample_rate=96_000).shape == (96_000,)
    assert "192,000 samples" in served.refusal("media.audio_in", {"audio": silence}, sample_rate=192_000)


def test_a_strange_sample_rate_is_refused(served: Served) -> None:
    for rate in (10, 900_000):
        data = written(np.zeros(100), rate)
        assert "384,000 Hz" in served.refusal("media.audio_in", {"audio": data})
    many = written(np.zeros((10, 65)), 8000)
    assert served.refusal("media.audio_in", {"audio": many})


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("form", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE", "ULAW", "FLAC", "OGG"])
def test_samples_are_those_of_the_resampler_of_ffmpeg(form: str, channels: int) -> None:
    wave = np.random.default_rng(0).uniform(-1, 1, (3000, channels))
    data = written(wave, 16000, form) if form in ("FLAC", "OGG") else written(wave, 16000, "WAV", form)
    with av.open(io.BytesIO(data)) as container:
        twin = av.AudioResampler(format="fltp")
        for frame in container.decode(audio=0):
            made = sounds._mono(frame)
            [wanted] = twin.resample(frame)
            assert made.dtype == np.float32
            np.testing.assert_allclose(made, wanted.to_ndarray().mean(0, dtype=np.float32), atol=1e-7)


def test_long_files_are_read_whole(served: Served) -> None:
    wave = tone(70, 16000)
    data = written(wave, 16000, "WAV", "PCM_16")
    assert len(data) > 1 << 21
    made = served.give("media.audio_in", {"audio": data}, sample_rate=16000)
    np.testing.assert_allclose(made.numpy(), wave, atol=1e-4)


@pytest.mark.parametrize(
    ("form", "samples", "rate", "short"),
    [
        ("WAV", 48_000, 16_000, True),
        ("WAV", 131_000, 16_000, True),
        ("WAV", 132_000, 16_000, False),
        ("WAV", 48_000, 24_000, False),
        ("FLAC", 16_000, 16_000, False),
    ],
)
def test_short_sound_in_plain_files_is_quick(served: Served, form: str, samples: int, rate: int, short: bool) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(samples, np.int16), rate, format=form)
    call = served.call("media.audio_in", {"audio": file.getvalue()}, sample_rate=16_000)
    assert sounds.is_short(call, "audio") == short
    assert not sounds.is_short(served.call("media.audio_in", {}), "audio")
