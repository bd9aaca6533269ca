"""The audio encoder against the embeddings that the published code gave (`tests/golden/qwen3_omni/make_hearing.py`)."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import hearing as tiny
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_TINY, read_audio
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.hearing.spectra import Spectra
from walkgraph.models.qwen3_omni.hearing.weights import load_audio_encoder

torch.set_num_threads(1)
BAR = 5e-5
"""The published answers were computed on another CPU, whose libraries add in another order."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> AudioEncoder:
    folder = tiny.folder(tmp_path_factory.mktemp("roots"))
    assert read_audio(folder) == AUDIO_TINY
    return load_audio_encoder(folder, read_audio(folder)).pack()


@pytest.fixture(scope="module")
def wanted() -> dict[str, Tensor]:
    with np.load(tiny.ANSWERS) as answers:
        return {name: torch.from_numpy(answers[name]) for name in answers.files}


def spectra(*seconds: float) -> list[Tensor]:
    return Spectra(AUDIO_TINY.mels)([torch.from_numpy(tiny.sound(one)) for one in seconds])


@pytest.mark.parametrize("seconds", tiny.SECONDS)
def test_spectra_are_the_published_ones(seconds: float, wanted: dict[str, Tensor]) -> None:
    [found] = spectra(seconds)
    assert len(found) == round(seconds * 100)
    torch.testing.assert_close(found[:: tiny.KEPT], wanted[f"{tiny.name_of(seconds)}: spectrum"], atol=BAR, rtol=0)


@pytest.mark.parametrize("seconds", tiny.SECONDS)
@torch.inference_mode()
def test_embeddings_are_the_published_ones(seconds: float, model: AudioEncoder, wanted: dict[str, Tensor]) -> None:
    [found] = model(spectra(seconds))
    torch.testing.assert_close(found, wanted[f"{tiny.name_of(seconds)}: embeddings"], atol=BAR, rtol=0)


@torch.inference_mode()
def test_a_batch_gives_what_each_sound_gives_alone(model: AudioEncoder, wanted: dict[str, Tensor]) -> None:
    """The published code pads short sounds in a batch, so its answers to sounds alone are the ones to meet."""
    order = (3.0, 0.3, 31.0, 0.3, 8.5)
    for seconds, found in zip(order, model(spectra(*order)), strict=True):
        torch.testing.assert_close(found, wanted[f"{tiny.name_of(seconds)}: embeddings"], atol=BAR, rtol=0)
