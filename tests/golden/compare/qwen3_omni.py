"""Qwen3-Omni against Transformers, part by part: what it hears, sees and thinks, which codes it speaks, and their
sound."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from tests.golden.compare.table import SAME, Case
from tests.golden.qwen3_omni import thinking_cases, vocoder_cases
from tests.unit.engine.plans import call
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.qwen3_omni.seeing.picture_operators import FramesFit

_PICTURES = 40
_SOUNDS = (0.0126, 0.09, 0.3, 0.99, 1.0, 1.01, 3.0, 7.99, 8.0, 8.5, 16.37, 31.0, 75.2)


def cases(_code: Path | None) -> Iterator[Case]:
    from tests.golden.qwen3_omni.make_seeing import import_torchvision

    import_torchvision()
    yield from _heard()
    yield from _seen()
    yield from thinking_cases.cases()
    yield from _spoken()
    yield from vocoder_cases.cases()


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


def _seen() -> Iterator[Case]:
    from tests.golden.qwen3_omni import make_seeing as published
    from tests.golden.qwen3_omni import seeing as tiny
    from walkgraph.layers.pictures.patches import block_patches
    from walkgraph.models.qwen3_omni.seeing.config import read_vision
    from walkgraph.models.qwen3_omni.seeing.weights import load_vision_encoder

    with tempfile.TemporaryDirectory() as root:
        folder = tiny.folder(Path(root))
        ours = load_vision_encoder(folder, read_vision(folder))
    processors, model = published.Processors(), published.published()
    dice = np.random.default_rng(3)
    sizes = [*tiny.PICTURES.values(), *(tuple(map(int, dice.integers(12, 500, 2))) for _ in range(_PICTURES))]
    pictures = [tiny.levels(height, width) for height, width in sizes]
    clips = [_fitted(picture[None], 3136, 12_845_056)[:, None] for picture in pictures]
    together = ours(clips)
    for (height, width), picture, clip, found in zip(sizes, pictures, clips, together, strict=True):
        patches = processors.picture(picture)
        wanted, name = published.seen(model, patches), f"a picture of {width} by {height}"
        yield Case(f"{name}: patches", block_patches(clip.expand(-1, 2, -1, -1, -1), 16, 2), patches.rows)
        yield Case(f"{name}: grid", [1, 2 * found.grid[1], 2 * found.grid[2]], patches.grid[0].tolist(), SAME)
        yield Case(f"{name}, in a batch: embeddings", found.embeddings, wanted.embeddings)
        yield Case(f"{name}, alone: features", ours([clip])[0].deepstack, wanted.deepstack)
    for count, height, width in ((1, 90, 120), (3, 200, 333), (4, 370, 400), (7, 700, 1200)):
        frames = np.stack([tiny.levels(height, width, seed) for seed in range(count)])
        patches = processors.video(frames)
        wanted, name = published.seen(model, patches), f"{count} frames of {width} by {height}"
        fitted = _fitted(frames, 131_072, 786_432)
        clip = torch.cat([fitted, fitted[-1:]])[: count + count % 2].unflatten(0, (-1, 2))
        yield Case(f"{name}: patches", block_patches(clip, 16, 2), patches.rows)
        found = ours([clip])[0]
        yield Case(f"{name}: embeddings", found.embeddings, wanted.embeddings)
        yield Case(f"{name}: features", found.deepstack, wanted.deepstack)


def _fitted(frames: np.ndarray, least: int, most: int) -> Tensor:
    """uint8 `[F, h, w, 3]` -> `[F, 3, h', w']`, by the node that does it."""
    states: Any = None
    given = [normalise(torch.from_numpy(one)) for one in frames]
    [made] = FramesFit().forward([call("fit", {"frames": given}, min_pixels=least, max_pixels=most)], states)
    return torch.stack(made["frames"])


def _spoken() -> Iterator[Case]:
    """Frames whose codes are given, prompts alone: what is left to compare are the logits of every code."""
    from tests.golden.qwen3_omni import make_speaking as published
    from tests.golden.qwen3_omni import speaking as tiny
    from tests.unit.models.qwen3_omni import test_speaking_parity as ours
    from walkgraph.models.qwen3_omni.talker import operators

    with tempfile.TemporaryDirectory() as root:
        engine = ours.engine_at(tiny.folder(Path(root)))
    for name, prompt in tiny.PROMPTS.items():
        wanted = tiny.Answer(**tiny.read(published.asked(prompt)))
        with mock.patch.object(tiny, "answer", lambda _, found=wanted: found):
            forced = ours.Forced([name])
            with mock.patch.object(operators, "sample", forced):
                list(ours.speak(engine, [name], ours.listen(engine, [name])))
        ours.done(engine, [name])
        first, further = torch.stack(forced.first, 1)[0], torch.stack(forced.further, 1)[0]
        there = first.isfinite()
        yield Case(f"{name}: first codes", first[there], wanted.first[there])
        yield Case(f"{name}: further codes", further.view(wanted.further.shape), wanted.further)
