"""The codec's decoder: a stream's sound is the same however it is cut, and has the pitch of its frames."""

import random

import pytest
import torch

from walkgraph.models.voice.codec import Codec, Past
from walkgraph.models.voice.config import CodecSizes

torch.set_num_threads(1)
SIZES = CodecSizes(codes=16, bands=8, rate=24000, hop=320, top=11000)


@pytest.fixture(scope="module")
def codec() -> Codec:
    generator = torch.Generator().manual_seed(3)
    made = Codec(SIZES)
    made.level = -60 - 20 * torch.rand(16, 8, generator=generator)
    made.voiced = torch.rand(16, 8, generator=generator)
    made.pitch = 80 + 100 * torch.rand(16, generator=generator)
    return made


def codes(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 16, (count,), generator=torch.Generator().manual_seed(seed))


def test_a_stream_sounds_the_same_however_it_is_cut(codec: Codec) -> None:
    stream, rng = codes(90), random.Random(1)
    whole, end = codec.decode(stream, Past.fresh(), 1.5)
    assert whole.shape == (90 * 320,)
    for _ in range(4):
        past, parts, at = Past.fresh(), [], 0
        while at < len(stream):
            size = rng.randint(1, 20)
            sound, past = codec.decode(stream[at : at + size], past, 1.5)
            parts.append(sound)
            at += size
        assert torch.equal(torch.cat(parts), whole)
        assert past == end
    assert not torch.equal(codec.decode(stream[40:], Past.fresh())[0], whole[40 * 320 :])


@pytest.mark.parametrize(("pitch", "shift", "wanted"), [(100.0, 0.0, 100.0), (150.0, 0.0, 150.0), (100.0, 12.0, 200.0)])
def test_harmonics_have_the_pitch(pitch: float, shift: float, wanted: float) -> None:
    codec = Codec(SIZES)
    codec.level, codec.voiced = torch.full((16, 8), -60.0), torch.ones(16, 8)
    codec.pitch = torch.full((16,), pitch)
    sound, _ = codec.decode(torch.zeros(75, dtype=torch.int64), Past.fresh(), shift)
    power = torch.fft.rfft(sound[4800:]).abs() ** 2
    frequency = torch.fft.rfftfreq(len(sound) - 4800, 1 / SIZES.rate)
    harmonic = (frequency / wanted - (frequency / wanted).round()).abs() * wanted < 10
    assert power[harmonic].sum() > 0.99 * power.sum()
    assert power[(frequency - wanted).abs() < 10].sum() > 0.001 * power.sum()


def test_the_power_is_that_of_the_levels_with_and_without_voice() -> None:
    powers = []
    for voiced in (0.0, 0.5, 1.0):
        codec = Codec(SIZES)
        codec.level, codec.voiced = torch.full((16, 8), -70.0), torch.full((16, 8), voiced)
        codec.pitch = torch.full((16,), 120.0)
        sound, _ = codec.decode(torch.zeros(150, dtype=torch.int64), Past.fresh())
        powers.append(float(sound[640:].square().mean()))
    wanted = 10**-7 * SIZES.top
    assert powers == pytest.approx([wanted] * 3, rel=0.1)
