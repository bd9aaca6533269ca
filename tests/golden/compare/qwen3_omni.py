"""Qwen3-Omni against Transformers, part by part: what it hears."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tests.golden.compare.table import Case

_SOUNDS = (0.0126, 0.09, 0.3, 0.99, 1.0, 1.01, 3.0, 7.99, 8.0, 8.5, 16.37, 31.0, 75.2)


def cases(_code: Path | None) -> Iterator[Case]:
    yield from _heard()


def _heard() -> Iterator[Case]:
    from tests.golden.qwen3_omni import hearing as tiny
    from tests.golden.qwen3_omni import make_hearing as published
    from walkgraph.models.qwen3_omni.hearing.config import read_audio
    from walkgraph.models.qwen3_omni.hearing.spectra import Spectra
    from walkgraph.models.qwen3_omni.hearing.weights import load_audio_encoder

    with tempfile.TemporaryDirectory() as root:
        folder = tiny.folder(Path(root))
        ours = load_audio_encoder(folder, read_audio(folder)).pack()
    model, waves = published.published(), [tiny.sound(seconds) for seconds in _SOUNDS]
    spectra = Spectra(ours.config.mels)([torch.from_numpy(wave) for wave in waves])
    together = ours(spectra)
    for seconds, wave, spectrum, found in zip(_SOUNDS, waves, spectra, together, strict=True):
        wanted = published.embeddings(model, wave)
        yield Case(f"{seconds:g} s of sound: its spectrum", spectrum, published.spectrum(wave).T)
        yield Case(f"{seconds:g} s of sound, in a batch", found, wanted)
        yield Case(f"{seconds:g} s of sound, alone", ours([spectrum])[0], wanted)
    loud = np.clip(waves[3] * 50, -1, 1)
    yield Case("loud sound: its spectrum", Spectra(128)([torch.from_numpy(loud)])[0], published.spectrum(loud).T)
