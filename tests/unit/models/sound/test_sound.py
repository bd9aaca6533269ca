"""Sound cut, mixed, made louder, split and drawn, against NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from tests.support.palette import Served
from walkgraph.architectures import sounds

RATE = 8000
CHANCE = np.random.default_rng(11)


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("sound")


def noise(samples: int, size: float = 0.3) -> torch.Tensor:
    return torch.from_numpy(CHANCE.uniform(-size, size, samples).astype(np.float32))


def tone(seconds: float, rate: int, hertz: float) -> torch.Tensor:
    return torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 12000), (44100, 16000), (24000, 8000), (16000, 16000)])
@pytest.mark.parametrize("samples", [0, 1, 50, 700])
def test_resampled_sound_is_the_windowed_sum(served: Served, rate: int, wanted: int, samples: int) -> None:
    wave = noise(samples)
    made = served.give("sound.resample", {"waveform": wave}, sample_rate=rate, wanted=wanted).numpy()
    assert made.shape == (math.ceil(samples * wanted / rate),)
    if rate == wanted:
        assert np.array_equal(made, wave.numpy())


def sinc_resampled(wave: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Sample by sample, from 64 samples on both sides, by a Hann window."""
    ratio, made = min(1.0, wanted / rate), np.zeros(math.ceil(len(wave) * wanted / rate))
    for at in range(len(made)):
        place = at * rate / wanted
        near = range(max(math.ceil(place) - 64, 0), min(math.floor(place) + 65, len(wave)))
        window = [math.cos(math.pi * (n - place) / 130) ** 2 for n in near]
        made[at] = sum(wave[n] * ratio * np.sinc(ratio * (n - place)) * w for n, w in zip(near, window, strict=True))
    return made


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 12000), (16000, 8000), (12000, 11025)])
def test_resampled_sound_agrees_with_a_sum_of_sincs(served: Served, rate: int, wanted: int) -> None:
    # Below both of the rates' limits, where filters agree.
    wave = 0.4 * tone(0.05, rate, 700) + 0.3 * tone(0.05, rate, 1900)
    made = served.give("sound.resample", {"waveform": wave}, sample_rate=rate, wanted=wanted).numpy()
    inner = slice(len(made) // 4, -len(made) // 4)
    np.testing.assert_allclose(made[inner], sinc_resampled(wave.numpy(), rate, wanted)[inner], atol=5e-3)


def test_what_a_lower_rate_can_not_hold_is_removed(served: Served) -> None:
    made = served.give("sound.resample", {"waveform": tone(0.2, 24000, 7000)}, sample_rate=24000, wanted=8000)
    assert made[200:-200].abs().max() < 0.01


@pytest.mark.parametrize("start", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(("mine", "others"), [(100, 30), (30, 100), (0, 10), (10, 0)])
def test_a_mix_is_a_sum(served: Served, start: float, mine: int, others: int) -> None:
    wave, other = noise(mine), noise(others)
    given = {"gain": -6.0, "start": start, "sample_rate": RATE}
    made = served.give("sound.mix", {"waveform": wave, "other": other}, **given).numpy()
    first = round(start * RATE)
    wanted = np.zeros(max(mine, first + others))
    wanted[:mine] = wave.numpy()
    for at in range(others):
        wanted[first + at] += other.numpy()[at] * 10 ** (-6 / 20)
    np.testing.assert_allclose(made, wanted, atol=1e-6)


@pytest.mark.parametrize(("start", "length"), [(0, 0), (0.005, 0), (0.005, 0.0025), (1, 0), (0, 50)])
def test_a_cut_is_a_slice(served: Served, start: float, length: float) -> None:
    wave = noise(100)
    made = served.give("sound.cut", {"waveform": wave}, start=start, length=length, sample_rate=RATE)
    first, last = round(start * RATE), 100 if not length else round((start + length) * RATE)
    assert made.tolist() == wave.tolist()[first:last]


@pytest.mark.parametrize("gap", [0.0, 0.001])
def test_sounds_follow_each_other(served: Served, gap: float) -> None:
    waves = [noise(5), noise(0), noise(3)]
    made = served.give("sound.concat", {"waveforms": waves}, gap=gap, sample_rate=RATE).tolist()
    silence = [0.0] * round(gap * RATE)
    assert made == waves[0].tolist() + silence + silence + waves[2].tolist()


@pytest.mark.parametrize("gain", [-120.0, -6.0, 0.0, 12.5])
def test_a_gain_is_a_factor(served: Served, gain: float) -> None:
    wave = noise(50)
    made = served.give("sound.gain", {"waveform": wave}, gain=gain).numpy()
    np.testing.assert_allclose(made, wave.numpy() * 10 ** (gain / 20), rtol=1e-5)


@pytest.mark.parametrize("level", [0.0, -20.0])
def test_a_level_is_of_the_peak_or_the_power(served: Served, level: float) -> None:
    wave = noise(500)
    peak = served.give("sound.normalise", {"waveform": wave}, by="peak", level=level).numpy()
    power = served.give("sound.normalise", {"waveform": wave}, by="power", level=level).numpy()
    assert np.abs(peak).max() == pytest.approx(10 ** (level / 20), rel=1e-5)
    assert math.sqrt(np.square(power.astype(float)).mean()) == pytest.approx(10 ** (level / 20), rel=1e-5)
    np.testing.assert_allclose(peak / np.abs(peak).max(), power / np.abs(power).max(), atol=1e-5)
    for silent in (torch.zeros(9), torch.zeros(0), torch.full((9,), 1e-9)):
        for by in ("peak", "power"):
            assert torch.equal(served.give("sound.normalise", {"waveform": silent}, by=by), silent)


def naive_parts(wave: np.ndarray, threshold: float, silence: float, margin: float) -> list[tuple[int, int]]:
    """Frame by frame."""
    step, parts, quiet = RATE // 100, [], None
    for first in range(0, len(wave), step):
        frame = np.zeros(step)
        frame[: len(wave[first : first + step])] = wave[first : first + step]
        if math.sqrt(np.square(frame).mean()) < 10 ** (threshold / 20):
            continue
        # `quiet` is where the last frame that is heard begins.
        if quiet is not None and first - quiet <= round(silence * RATE):
            parts[-1][1] = first + step
        else:
            parts.append([first, first + step])
        quiet = first
    edge = min(round(margin * RATE), round(silence * RATE) // 2)
    return [(max(start - edge, 0), min(stop + edge, len(wave))) for start, stop in parts]


@pytest.mark.parametrize("margin", [0.0, 0.02, 5.0])
@pytest.mark.parametrize("silence", [0.03, 0.1, 10.0])
def test_sound_is_split_where_it_is_silent(served: Served, silence: float, margin: float) -> None:
    pieces = [noise(n, size) for n, size in itertools.product((300, 777, 130), (0.5, 0.001))]
    wave = torch.cat([*pieces, noise(401, 0.002), noise(90)])
    given = {"threshold": -40.0, "silence": silence, "margin": margin, "sample_rate": RATE}
    made = served.give("sound.silence_split", {"waveform": wave}, **given)
    wanted = [wave[start:stop] for start, stop in naive_parts(wave.numpy().astype(float), -40.0, silence, margin)]
    assert [part.tolist() for part in made] == [part.tolist() for part in wanted]


def test_silence_is_one_part_without_samples_and_too_many_parts_are_refused(served: Served) -> None:
    for silent in (torch.zeros(1000), torch.zeros(0)):
        [part] = served.give("sound.silence_split", {"waveform": silent}, sample_rate=RATE)
        assert part.shape == (0,)
    clicks = torch.zeros(1100 * 400)
    clicks[::400] = 1.0
    given = {"silence": 0.01, "sample_rate": RATE}
    assert "1,100 parts" in served.refusal("sound.silence_split", {"waveform": clicks}, **given)


def test_a_tone_is_a_light_line_at_its_pitch(served: Served) -> None:
    for hertz in (1000, 3000):
        wave = torch.cat([tone(0.5, RATE, hertz), torch.zeros(RATE // 2)])
        made = served.give("sound.spectrogram", {"waveform": wave}, width=64, height=80, window="512")
        assert made.shape == (3, 80, 64)
        light = made.mean(0).numpy()
        # The top row is half of the sample rate.
        assert abs(light[:, 10].argmax() - (80 - 80 * hertz / (RATE / 2))) <= 1.5
        assert light[:, 55].max() == -1


def test_a_spectrogram_is_the_transform_of_each_window(served: Served) -> None:
    wave = noise(512 * 4)
    made = served.give("sound.spectrogram", {"waveform": wave}, width=17, height=257, window="512", range=60.0)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(512) / 512)
    padded = np.pad(wave.numpy().astype(float), 256)
    # A quarter of a window apart there are 17 windows: a column each, a row for each frequency.
    power = [20 * np.log10(np.abs(np.fft.rfft(padded[at : at + 512] * hann)) + 1e-12) for at in range(0, 2049, 128)]
    decibels = np.stack(power, axis=1)[::-1]
    shares = np.clip((decibels - decibels.max()) / 60 + 1, 0, 1) * 4
    colors = np.array([(0, 0, 0), (60, 15, 110), (180, 50, 90), (250, 150, 50), (255, 250, 200)]) / 127.5 - 1
    wanted = np.stack([np.interp(shares, range(5), colors[:, channel]) for channel in range(3)])
    np.testing.assert_allclose(made.numpy(), wanted, atol=2e-2)


def test_silence_and_the_shortest_sound_are_drawn(served: Served) -> None:
    for wave in (torch.zeros(0), torch.zeros(1), torch.zeros(5000)):
        made = served.give("sound.spectrogram", {"waveform": wave}, width=16, height=16)
        assert made.eq(-1).all()
    assert served.give("sound.spectrogram", {"waveform": noise(100_000)}, window="4096").shape == (3, 256, 512)


ALL = ("resample", "mix", "cut", "gain", "normalise", "silence_split", "spectrogram")


@pytest.mark.parametrize("name", ALL)
def test_values_that_are_no_waveform_are_refused(served: Served, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"other": torch.zeros(3)} if name == "mix" else {}
    for bad in (torch.zeros(2, 3), torch.zeros(()), "a", b"x", 1.0, None):
        assert "[samples]" in served.refusal(f"sound.{name}", {"waveform": bad, **more})
    monkeypatch.setattr(sounds, "MAX_SAMPLES", 100)
    assert "shorten the sound" in served.refusal(f"sound.{name}", {"waveform": torch.zeros(101), **more})


def test_results_that_are_too_long_are_refused_before_they_are_made(served: Served) -> None:
    wave = torch.zeros(1).expand(60_000_000)
    assert "million" in served.refusal("sound.concat", {"waveforms": [wave, wave]})
    many = {"waveforms": [torch.zeros(1)] * 1000}
    assert "million" in served.refusal("sound.concat", many, gap=60.0, sample_rate=192_000)
    late = {"waveform": torch.zeros(1), "other": torch.zeros(1)}
    assert "million" in served.refusal("sound.mix", late, start=7200.0, sample_rate=192_000)
    given = {"sample_rate": 8000, "wanted": 192_000}
    assert "million" in served.refusal("sound.resample", {"waveform": torch.zeros(1).expand(3_000_000)}, **given)
    for bad in ([], "abc", [torch.zeros(2, 2)], torch.zeros(3), [torch.zeros(1)] * 1025):
        assert served.refusal("sound.concat", {"waveforms": bad})
