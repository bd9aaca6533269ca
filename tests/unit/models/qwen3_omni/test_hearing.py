"""The audio encoder's operator: any sounds together, errors for sounds that can't be heard; spectra in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni.hearing import sound
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.architectures.drawn import drawn
from walkgraph.checkpoints.fields import Fields
from walkgraph.engine.engine import Engine
from walkgraph.errors import InvalidInput
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.unset import unset
from walkgraph.models.qwen3_omni.hearing import captured, spectra
from walkgraph.models.qwen3_omni.hearing import model as hearing
from walkgraph.models.qwen3_omni.hearing.captured import CapturedChunks, CapturedWindows
from walkgraph.models.qwen3_omni.hearing.config import AUDIO, AUDIO_TINY, AudioConfig, halved
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder, places
from walkgraph.models.qwen3_omni.hearing.spectra import HOP, LEAST, RATE, Spectra, mel_filters

torch.set_num_threads(1)
NODES = {"ear": ("walkgraph.models.qwen3_omni.hearing.operators:AudioEncoder", {})}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:qwen3-omni-tiny:5"))


def heard(engine: Engine, *waves: Tensor) -> list[Tensor]:
    calls = [call("ear", {"waveform": wave}, run=str(index)) for index, wave in enumerate(waves)]
    return [made["embeddings"] for made in outputs(engine, *calls)]


def test_a_batch_gives_what_each_sound_gives_alone(engine: Engine) -> None:
    waves = [torch.from_numpy(sound(seconds)) for seconds in (0.4, 1.0, 9.7, 0.4, 2.34, 0.25)]
    alone = [heard(engine, wave)[0] for wave in waves]
    done = serve(engine, *[call("ear", {"waveform": wave}, run=str(i)) for i, wave in enumerate(waves)])
    assert {one.batch for one in done} == {len(waves)}
    for one, wanted, wave in zip(done, alone, waves, strict=True):
        assert one.outputs is not None
        torch.testing.assert_close(one.outputs["embeddings"], wanted, rtol=1e-5, atol=1e-5)
        assert len(wanted) == AUDIO_TINY.tokens(len(wave) // HOP)
    assert not torch.allclose(alone[0][:3], alone[1][:3])


def test_a_sound_of_a_second_has_thirteen_embeddings() -> None:
    assert [AUDIO.tokens(frames) for frames in (1, 8, 9, 99, 100, 101, 800, 3100)] == [1, 1, 2, 13, 13, 14, 104, 403]
    assert [halved(length) for length in (0, 1, 100, 128)] == [0, 1, 13, 16]


@pytest.mark.parametrize("samples", [0, LEAST - 1])
def test_sound_that_is_too_short_is_refused(engine: Engine, samples: int) -> None:
    good, bad = torch.from_numpy(sound(0.3)), torch.zeros(samples)
    done = serve(engine, call("ear", {"waveform": good}), call("ear", {"waveform": bad}, run="bad"))
    assert done[0].error is None
    assert done[1].error is not None
    assert done[1].error.code == "invalid_input"
    assert f"at least {LEAST} samples" in done[1].error.message


def test_sound_that_is_too_short_can_be_skipped(engine: Engine) -> None:
    wave = torch.from_numpy(sound(1.0))
    waves = [wave[:0], wave, wave[: LEAST - 1]]
    calls = [call("ear", {"waveform": one}, run=str(i), short="skip") for i, one in enumerate(waves)]
    shapes = [made["embeddings"].shape for made in outputs(engine, *calls)]
    assert shapes == [(0, AUDIO_TINY.out), (13, AUDIO_TINY.out), (0, AUDIO_TINY.out)]


def test_the_shortest_sound_has_one_embedding(engine: Engine) -> None:
    assert heard(engine, torch.from_numpy(sound(1.0))[:LEAST])[0].shape == (1, AUDIO_TINY.out)


@pytest.mark.parametrize("value", [torch.zeros(2, 400), torch.zeros(())])
def test_other_tensors_are_refused(engine: Engine, value: Tensor) -> None:
    [done] = serve(engine, call("ear", {"waveform": value}))
    assert done.error is not None
    assert done.error.code == "invalid_input"


def test_sound_that_is_too_long_is_refused(engine: Engine) -> None:
    [done] = serve(engine, call("ear", {"waveform": torch.zeros(1).expand(64_000_001)}))
    assert done.error is not None
    assert done.error.code == "invalid_input"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_fails_its_call_alone(engine: Engine, number: float) -> None:
    good, bad = (torch.from_numpy(sound(1.0)) for _ in range(2))
    bad[5000] = number
    done = serve(engine, call("ear", {"waveform": good}), call("ear", {"waveform": bad}, run="bad"))
    assert done[0].error is None
    assert done[0].outputs is not None
    torch.testing.assert_close(done[0].outputs["embeddings"], heard(engine, good)[0], rtol=1e-5, atol=1e-5)
    assert done[1].error is not None


def test_a_long_sound_is_computed_in_pieces(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    wave = torch.from_numpy(sound(5.3))
    [whole] = heard(engine, wave)
    monkeypatch.setattr(spectra, "_FRAMES", 100)
    monkeypatch.setattr(hearing, "CHUNKS", (1, 2))
    torch.testing.assert_close(heard(engine, wave)[0], whole, rtol=1e-5, atol=1e-5)


def test_spectra_are_those_of_torch() -> None:
    """By torch's own transform, and filters written out one by one."""
    wave = torch.from_numpy(sound(0.7))
    window = torch.hann_window(400)
    power = torch.stft(wave, 400, HOP, window=window, return_complex=True)[:, :-1].abs() ** 2
    filters = torch.zeros(201, 128, dtype=torch.float64)
    corners = _corners(130)
    for band in range(128):
        low, middle, high = corners[band : band + 3]
        for place in range(201):
            hertz = place * RATE / 400
            share = min((hertz - low) / (middle - low), (high - hertz) / (high - middle))
            filters[place, band] = max(share, 0) * 2 / (high - low)
    torch.testing.assert_close(mel_filters(128), filters.float())
    logs = (filters.float().T @ power).clamp(min=1e-10).log10()
    wanted = (torch.maximum(logs, logs.max() - 8) + 4) / 4
    torch.testing.assert_close(Spectra(128)([wave])[0], wanted.T, rtol=1e-5, atol=1e-5)


def _corners(count: int) -> list[float]:
    """Hertz of equal steps on Slaney's scale: 15 mels to 1000 Hz, then 27 for every factor of 6.4."""
    top = 15 + 27 * math.log(8) / math.log(6.4)
    mels = [top * i / (count - 1) for i in range(count)]
    return [mel * 1000 / 15 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27) for mel in mels]


def test_windows_are_attended_as_the_packed_form_does() -> None:
    """GPUs attend all windows in one launch, whose bounds are on the device."""
    torch.manual_seed(0)
    model = AudioEncoder(AUDIO_TINY)
    attend = model._attend([5, 104, 104, 104, 22], torch.zeros(1))
    q, k, v = (torch.randn(339, 4, 8) for _ in range(3))
    bounds = torch.tensor([0, 5, 109, 213, 317, 339], dtype=torch.int32)
    torch.testing.assert_close(attend(0, q, k, v), PackedBlocks(bounds, 104, 4)(q, k, v), rtol=1e-5, atol=1e-5)


class Recording:
    """A capture that runs the work once, and again at every replay, and tells which graphs were replayed."""

    def __init__(self) -> None:
        self.captured: list[str] = []
        self.replayed: list[str] = []

    def __call__(self, work: Callable[[], None], what: str) -> Callable[[], None]:
        self.captured.append(what)
        work()

        def replay() -> None:
            self.replayed.append(what)
            work()

        return replay


@torch.inference_mode()
def test_captured_layers_give_what_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph for batches of different sounds, or several; what an earlier one left there doesn't count."""
    monkeypatch.setattr(captured, "SIZES", (64, 128))
    monkeypatch.setattr(captured, "REPLAYS", 2)
    on: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
    model, capture = drawn(lambda: AudioEncoder(AUDIO_TINY), 3, **on).pack(), Recording()
    short, spectra_of = CapturedWindows(model, capture), Spectra(AUDIO_TINY.mels)
    for seconds, graphs in (
        ((9.0,), [128]),
        ((0.4, 0.9), [64]),
        ((0.1,) * 8, [64]),
        ((0.1,) * 9, [128]),  # more windows than the smaller graph has room for
        ((8.0, 1.0), [128]),
        ((9.0, 2.0), [128, 64]),
        ((0.1,) * 17, [128, 64]),
        ((9.0, 9.0, 9.0), []),
    ):
        given = spectra_of([torch.from_numpy(sound(one)) for one in seconds])
        capture.replayed.clear()
        for found, wanted in zip(model(given, short), model(given), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert capture.replayed == [f"{graph} embeddings of sound" for graph in graphs]
    assert capture.captured == ["128 embeddings of sound", "64 embeddings of sound"]
    assert CapturedWindows(model, None)(torch.zeros(3, AUDIO_TINY.width), [3]) is None


@torch.inference_mode()
def test_captured_convolutions_give_what_plain_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "FEW", (1, 2))
    on: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
    model, capture = drawn(lambda: AudioEncoder(AUDIO_TINY), 3, **on).pack(), Recording()
    few, spectra_of = CapturedChunks(model, capture), Spectra(AUDIO_TINY.mels)
    for seconds, graphs in (((0.4,), []), ((2.0,), [2]), ((1.0,), [1]), ((0.9, 1.5), [2]), ((3.0,), [])):
        given = spectra_of([torch.from_numpy(sound(one)) for one in seconds])
        capture.replayed.clear()
        for found, wanted in zip(model(given, None, few), model(given), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        assert capture.replayed == [f"{graph} chunks of sound" for graph in graphs]
    assert capture.captured == ["2 chunks of sound", "1 chunks of sound"]
    assert CapturedChunks(model, None)(torch.zeros(1, AUDIO_TINY.chunk, AUDIO_TINY.mels)) is None


def test_places_turn_at_rates_from_one_down() -> None:
    found = places(13, 8).double()
    for place in range(13):
        for index in range(4):
            angle = torch.tensor(place / 10_000 ** (index / 3), dtype=torch.float64)
            assert abs(found[place, index] - angle.sin()) < 1e-6
            assert abs(found[place, 4 + index] - angle.cos()) < 1e-6


def test_the_published_config_and_size() -> None:
    published = {
        "d_model": 1280,
        "encoder_ffn_dim": 5120,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "num_mel_bins": 128,
        "downsample_hidden_size": 480,
        "output_dim": 2048,
        "n_window": 50,
        "n_window_infer": 800,
    }
    assert AudioConfig.published(Fields(published)) == AUDIO
    with unset():
        assert sum(tensor.numel() for tensor in AudioEncoder(AUDIO).state_dict().values()) == 647_927_168
    for wrong in ({"scale_embedding": True}, {"activation_function": "relu"}, {"d_model": 0}):
        with pytest.raises(InvalidInput):
            AudioConfig.published(Fields({**published, **wrong}))
    with pytest.raises(ValueError, match="multiple of `heads`"):
        AudioConfig.published(Fields({**published, "encoder_attention_heads": 7}))
