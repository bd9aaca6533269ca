"""Qwen3-Omni's vocoder against Transformers: streams decoded whole, in chunks and in batches, tiny and of full size."""

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from tests.golden.compare.table import SAME, Case
from walkgraph.models.qwen3_omni.vocoder.config import PUBLISHED
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.weights import load_vocoder

_FRAMES = (1, 2, 3, 30, 330)
_LARGE = (3, 12, 80)
"""Frames of streams of full size: the last one is longer than the window."""
_CUTS = {"25 at once": (5, 25), "one by one": (1, 1), "three at once": (3, 3)}
"""Name -> frames of the first chunk and of the others."""


def cases() -> Iterator[Case]:
    from tests.golden.qwen3_omni import make_vocoder as published
    from tests.golden.qwen3_omni import vocoder as tiny
    from tests.golden.qwen3_omni.drawing import write_folder

    for name, config in tiny.CONFIGS.items():
        with tempfile.TemporaryDirectory() as root:
            ours = load_vocoder(write_folder(Path(root), {}, tiny.state(config)), config)
        theirs = published.published(config)
        for frames in _LARGE if config is PUBLISHED else _FRAMES:
            codes = tiny.codes(config, frames)
            wanted = published.decoded(theirs, codes)
            label = f"the vocoder, {name}, {frames} frames"
            yield Case(f"{label}: samples", [len(wanted)], [1920 * frames - 555], SAME)
            yield Case(f"{label}: whole", heard(ours, codes), wanted)
            for cut, (first, size) in _CUTS.items():
                if frames > first and frames / size < _FRAMES[-1]:
                    cuts = range(first, frames, size)
                    yield Case(f"{label}: in chunks, {cut}", heard(ours, codes, *cuts), wanted)


def heard(model: Code2Wav, codes: Tensor, *cuts: int) -> Tensor:
    """The sound of codes `[n, K]` in chunks that end at the cuts."""
    state, parts = model.fresh(1), list[Tensor]()
    for start, stop in pairwise((0, *cuts, len(codes))):
        sound, state = model.decode(codes[None, start:stop], torch.tensor([start]), state, first=start == 0)
        parts.append(sound[0])
    return torch.cat(parts)
