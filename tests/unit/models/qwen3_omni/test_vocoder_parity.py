"""The vocoder against stored answers of the published code: whole streams, and streams in chunks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import vocoder as tiny
from tests.golden.qwen3_omni.drawing import write_folder
from walkgraph.errors import InvalidInput
from walkgraph.models.qwen3_omni.parts import CODE2WAV, PREFIXES
from walkgraph.models.qwen3_omni.vocoder.config import TINY
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.weights import load_vocoder

torch.set_num_threads(1)
CLOSE = {"rtol": 0.0, "atol": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("vocoder"), {}, tiny.state(TINY))


@pytest.fixture(scope="module")
def model(folder: Path) -> Code2Wav:
    return load_vocoder(folder, TINY)


def heard(model: Code2Wav, codes: Tensor, *cuts: int) -> Tensor:
    """The sound of codes `[n, K]` in chunks that end at the cuts."""
    state, parts = model.fresh(1), list[Tensor]()
    with torch.inference_mode():
        for start, stop in pairwise((0, *cuts, len(codes))):
            first = torch.tensor([start])
            sound, state = model.decode(codes[None, start:stop], first, state, first=start == 0)
            parts.append(sound[0])
    return torch.cat(parts)


def answer(frames: int) -> Tensor:
    with np.load(tiny.ANSWERS) as answers:
        return torch.from_numpy(answers[str(frames)])


@pytest.mark.parametrize("frames", tiny.FRAMES)
def test_a_stream_decoded_whole_sounds_as_published(model: Code2Wav, frames: int) -> None:
    sound = heard(model, tiny.codes(TINY, frames))
    assert sound.shape == (frames * 1920 - 555,)
    wanted = answer(frames)
    assert wanted.std() > 0.1
    torch.testing.assert_close(sound[:: tiny.FRAMES[frames]], wanted, **CLOSE)


@pytest.mark.parametrize("chunk", [1, 7, 25])
def test_a_stream_in_chunks_sounds_as_published_beyond_what_the_published_code_decodes_at_once(
    model: Code2Wav, chunk: int
) -> None:
    frames = 330 if chunk == 25 else 40
    sound = heard(model, tiny.codes(TINY, frames), *range(chunk, frames, chunk))
    assert sound.shape == (frames * 1920 - 555,)
    torch.testing.assert_close(sound[:: tiny.FRAMES[frames]], answer(frames), **CLOSE)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("pre_transformer.layers.1.mlp_layer_scale.scale", "mlp.down_proj.weight` has no scale"),
        ("upsample.0.1.gamma", "upsample.0.1.gamma"),
        ("pre_transformer.layers.0.self_attn.o_proj.weight", "missing tensor `pre_transformer.layers.0.self_attn.o"),
        ("decoder.3.block.2.act1.beta", "missing tensor `decoder.3.block.2.act1.beta`"),
    ],
)
def test_no_tensor_may_be_missing(tmp_path: Path, name: str, error: str) -> None:
    state = tiny.state(TINY)
    del state[f"{PREFIXES[CODE2WAV]}{name}"]
    with pytest.raises(InvalidInput, match=error.replace(".", r"\.")):
        load_vocoder(write_folder(tmp_path, {}, state), TINY)


def test_tensors_of_other_parts_are_not_read(folder: Path, tmp_path: Path, model: Code2Wav) -> None:
    mixed = write_folder(tmp_path, {}, {**tiny.state(TINY), "talker.codec_head.weight": torch.zeros(2, 2)})
    assert load_vocoder(mixed, TINY).state_dict().keys() == model.state_dict().keys()
