"""Sound as streams: decoded it is what the pieces held, and how it was cut makes no difference."""

from __future__ import annotations

import io
import wave

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.listening import heard
from walkgraph.errors import InvalidInput
from walkgraph.service.values import sound

RATE = 24000
EXACT = ("wav", "pcm", "flac")
LOSSY = ("mp3", "opus")
Samples = npt.NDArray[np.int16]


def tune(count: int, channels: int = 1, seed: int = 0) -> Samples:
    """[count, channels]: two tones and a little noise, within the range that lossy formats keep."""
    numbers = np.random.default_rng(seed)
    at = np.arange(count)[:, None] / RATE
    tones = 8000 * np.sin(2 * np.pi * 220 * at * (1 + np.arange(channels))) + 3000 * np.sin(2 * np.pi * 1300 * at)
    return (tones + numbers.normal(0, 20, (count, channels))).astype(np.int16)


def wav_of(samples: Samples, rate: int = RATE, subtype: str = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV", subtype=subtype)
    return buffer.getvalue()


def streamed(pieces: list[Samples], name: str, rate: int = RATE) -> list[bytes]:
    stream = sound.Stream(name)
    return [*(stream.write(wav_of(piece, rate)) for piece in pieces), stream.close()]


def cut(samples: Samples, cuts: list[int]) -> list[Samples]:
    return [piece for piece in np.split(samples, sorted(at % len(samples) for at in cuts)) if len(piece)]


CUTS = st.lists(st.integers(0, 30_000), max_size=6)


@settings(max_examples=25)
@given(name=st.sampled_from(EXACT), cuts=CUTS, count=st.integers(1, 9000), channels=st.integers(1, 2))
def test_what_is_exact_comes_back_exactly_however_it_was_cut(
    name: str, cuts: list[int], count: int, channels: int
) -> None:
    whole = tune(count, channels, seed=count)
    found = b"".join(streamed(cut(whole, cuts), name))
    assert found == b"".join(streamed([whole], name))
    if name == "pcm":
        assert found == whole.astype("<i2").tobytes()
    else:
        samples, rate = heard(found)
        assert rate == RATE
        assert np.array_equal(samples, whole)


@settings(max_examples=10)
@given(name=st.sampled_from(LOSSY), cuts=CUTS, count=st.integers(6000, 20_000))
def test_what_is_lossy_comes_back_nearly_and_the_same_however_it_was_cut(
    name: str, cuts: list[int], count: int
) -> None:
    whole = tune(count)
    samples, rate = heard(b"".join(streamed([whole], name)))
    again, _ = heard(b"".join(streamed(cut(whole, cuts), name)))
    assert rate == RATE
    assert np.array_equal(again, samples)
    assert len(samples) >= count
    assert likeness(whole[:, 0], samples[:, 0]) > 0.99


def likeness(sent: Samples, got: Samples) -> float:
    """The best correlation at any of the delays that encoders have, at most a tenth of a second."""
    part = sent[1000:5000].astype(float)
    windows = np.lib.stride_tricks.sliding_window_view(got.astype(float), len(part))[: 1000 + RATE // 10]
    scores = windows @ part / (np.linalg.norm(windows, axis=1) * np.linalg.norm(part) + 1e-9)
    return float(scores.max())


def test_likeness_tells_another_sound() -> None:
    assert likeness(tune(9000)[:, 0], tune(9000)[::-1, 0] // 2 + 500) < 0.99


@pytest.mark.parametrize("name", sound.FORMATS)
def test_the_first_piece_can_be_heard_before_there_is_a_second(name: str) -> None:
    """A tenth of a second, of which at most two frames of the encoder are still inside it."""
    first = streamed([tune(2400)], name)[0]
    assert len(first) > 200
    if name in EXACT:
        return
    samples, _ = heard(first)
    assert len(samples) >= 2400 - 3 * 576


def test_a_wav_stream_says_that_its_length_is_unknown() -> None:
    head = streamed([tune(10)], "wav")[0][:44]
    assert head[4:8] == head[40:44] == b"\xff\xff\xff\xff"
    with wave.open(io.BytesIO(b"".join(streamed([tune(10, 2)], "wav")))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, RATE)
        assert len(file.readframes(100)) == 40


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_mp3_begins_with_sound_at_every_rate(rate: int) -> None:
    """The frame of facts, which LAME can't fill in a stream, is not there: twice its tone is heard early on."""
    found = b"".join(streamed([tune(9000)], "mp3", rate))
    assert found[:2] >= b"\xff\xe0"
    samples, told = heard(found)
    assert told == rate
    loud = np.abs(samples[:, 0].astype(int)) > 2000
    assert 500 < int(np.argmax(loud)) < 1400, "the delays of encoder and decoder, and not a frame more"


def test_a_rate_that_a_format_has_not_is_refused_with_those_that_have_it() -> None:
    with pytest.raises(InvalidInput, match=r"22050 samples a second.*`opus`.*`wav`.*`mp3`"):
        streamed([tune(100)], "opus", 22050)
    with pytest.raises(InvalidInput, match=r"3 channels.*`wav`, `pcm`, `flac`"):
        streamed([tune(100, 3)], "mp3")


def test_pieces_of_another_kind_end_the_stream() -> None:
    stream = sound.Stream("pcm")
    stream.write(wav_of(tune(10)))
    for other in (wav_of(tune(10), 16000), wav_of(tune(10, 2)), b"no sound", b""):
        with pytest.raises(sound.BadSound):
            stream.write(other)


@pytest.mark.parametrize("subtype", ["FLOAT", "PCM_24"])
def test_other_files_that_a_model_may_give_are_read(subtype: str) -> None:
    found = sound.read(wav_of(tune(500), subtype=subtype))
    assert found.rate == RATE
    assert np.array_equal(found.samples, tune(500))


@pytest.mark.parametrize("name", sound.FORMATS)
async def test_a_stream_gives_the_same_beside_the_event_loop(name: str) -> None:
    stream = sound.Stream(name)
    pieces = [wav_of(tune(2048)), wav_of(tune(100_000))]
    found = [await stream.feed(piece) for piece in pieces] + [await stream.finish()]
    assert stream.seconds == pytest.approx(102_048 / RATE)
    if name == "opus":  # each of its streams has a serial number of its own
        assert len(b"".join(found)) == len(sound.encoded(pieces, name))
    elif name != "wav":
        assert b"".join(found) == sound.encoded(pieces, name)


def test_a_chunk_that_reaches_out_of_its_file_is_no_sound() -> None:
    data = bytearray(wav_of(tune(100)))
    data[16:20] = (1 << 30).to_bytes(4, "little")
    with pytest.raises(sound.BadSound):
        sound.read(bytes(data))


def test_a_whole_wav_says_its_length() -> None:
    with wave.open(io.BytesIO(sound.encoded([wav_of(tune(10)), wav_of(tune(5))], "wav"))) as file:
        assert file.getnframes() == 15
    assert sound.encoded([], "wav") == b""
