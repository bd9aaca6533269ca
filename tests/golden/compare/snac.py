"""SNAC: whole sounds, sounds with noise, and the windows of a stream, against the package `snac`."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.golden.compare.table import Case
from walkgraph.models.snac.model import Snac, load_snac

_FULL = {"encoder_dim": 48, "decoder_dim": 1024, "codebook_size": 4096, "codebook_dim": 8}
_VARIANTS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "tiny, without noise": {"noise": False},
    "tiny, not by depth": {"depthwise": False},
    "published sizes": _FULL,
}
_FRAMES = (1, 2, 3, 9)
_WINDOW, _SAMPLES, _CODES = 4, 2048, 7
"""Frames of the published window; samples and codes of a frame."""
_SIDES = 3
"""Frames on either side that decide a frame's sound."""


def cases(code: Path | None) -> Iterator[Case]:
    if code is not None:
        sys.path.insert(0, str(code))
    from tests.golden import make_snac as make

    for seed, (name, changed) in enumerate(_VARIANTS.items()):
        torch.manual_seed(seed)
        config = {**make.CONFIG, **changed}
        theirs = make.SNAC(**config).eval().requires_grad_(False)
        state = {key: make.drawn(key, tensor).contiguous() for key, tensor in theirs.state_dict().items()}
        theirs.load_state_dict(state)
        noises: list[Tensor] = []
        for block in [part for part in theirs.modules() if type(part).__name__ == "NoiseBlock"]:
            block.register_forward_hook(lambda module, inputs, output, n=noises: make.silent(module, inputs[0], n))
        with tempfile.TemporaryDirectory() as root:
            (Path(root) / "config.json").write_text(json.dumps(config))
            save_file(state, Path(root) / "model.safetensors")
            ours = load_snac(Path(root))
        yield from _whole(name, make, ours, theirs, config)
        if config["noise"]:
            yield _noisy(name, make, ours, theirs, noises, config)
            noises.clear()
        yield from _windows(name, make, ours, theirs, config)


def _codes(config: dict[str, Any], frames: int) -> Tensor:
    generator = torch.Generator().manual_seed(frames)
    return torch.randint(0, config["codebook_size"], (2, _CODES * frames), generator=generator)


def _whole(name: str, make: Any, ours: Snac, theirs: Any, config: dict[str, Any]) -> Iterator[Case]:
    for frames in _FRAMES:
        codes = _codes(config, frames)
        yield Case(f"{name}: {frames} frames", ours.decode(codes), make.decode(theirs, codes))


def _noisy(name: str, make: Any, ours: Snac, theirs: Any, noises: list[Tensor], config: dict[str, Any]) -> Case:
    codes, length = _codes(config, 3), 3 * 4
    for rate in config["decoder_rates"]:
        length *= rate
        noises.append(torch.randn(2, 1, length))
    given = [*noises]
    got = ours.decode(codes, noise=lambda stage, start, stop: given[stage][:, 0, start:stop])
    return Case(f"{name}: 3 frames with noise", got, make.decode(theirs, codes))


def _windows(name: str, make: Any, ours: Snac, theirs: Any, config: dict[str, Any]) -> Iterator[Case]:
    """The published stream sounds the second frame of each window of four; ours computes what it keeps alone."""
    codes = _codes(config, 9)
    starts = range(0, codes.shape[1] - _WINDOW * _CODES + 1, _CODES)
    windows = [codes[:, at : at + _WINDOW * _CODES] for at in starts]
    got = torch.cat([ours.decode(window, (1, 2)) for window in windows], 1)
    wanted = torch.cat([make.decode(theirs, window)[:, _SAMPLES : 2 * _SAMPLES] for window in windows], 1)
    yield Case(f"{name}: a stream of windows", got, wanted)
    ends = {"first": (windows[0], (0, 2)), "last": (windows[-1], (1, 4))}
    for end, (window, (start, stop)) in ends.items():
        wanted = make.decode(theirs, window)[:, start * _SAMPLES : stop * _SAMPLES]
        yield Case(f"{name}: the {end} window", ours.decode(window, (start, stop)), wanted)
    inner = ours.decode(codes[:, : _CODES * (2 * _SIDES + 1)], (_SIDES, _SIDES + 1))
    whole = make.decode(theirs, codes)[:, _SIDES * _SAMPLES : (_SIDES + 1) * _SAMPLES]
    yield Case(f"{name}: a frame by {_SIDES} on either side, of the whole", inner, whole)
