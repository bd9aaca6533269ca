"""Compares full-size SNAC with the reference package, on random weights that go through the public loader.

    python benchmarks/parity_snac.py [--device cuda] [--out parity_snac.json]

Needs the package `snac`. Prints the relative error without noise and with given noise, and how much a frame depends on
its neighbours: windows with one frame before and two after, as streamed, and with three on each side.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from walkgraph.models.snac.model import interleaved, load_snac, precision

CONFIG: dict[str, Any] = {
    "sampling_rate": 24000,
    "encoder_dim": 48,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 1024,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 4096,
    "codebook_dim": 8,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}
FRAMES, FRAME = 12, 2048
LEVELS = interleaved(CONFIG["vq_strides"])


def reference(device: str) -> nn.Module:
    """Snakes and lengths of weights are drawn too; the reference starts them at one value."""
    torch.manual_seed(0)
    model = importlib.import_module("snac").SNAC(**CONFIG).eval().requires_grad_(False)
    for name, tensor in model.state_dict().items():
        if name.endswith(("alpha", "original0")):
            tensor.mul_(0.7 + 0.6 * torch.rand_like(tensor))
    return model.to(device)


def with_noise(model: nn.Module, noises: dict[int, Tensor]) -> None:
    """The reference's blocks use this noise, told by its length; none is silence."""

    def use(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        noise = noises.get(inputs[0].shape[-1])
        return inputs[0] if noise is None else inputs[0] + noise * module.get_submodule("linear")(inputs[0])

    for module in model.modules():
        if type(module).__name__ == "NoiseBlock":
            module.register_forward_hook(use)


def decode(model: Any, codes: Tensor) -> Tensor:
    framed = codes.view(len(codes), -1, 7)
    return model.decode([framed[..., list(places)].flatten(1) for places in LEVELS])[:, 0]


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made - wanted).norm() / wanted.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    theirs = reference(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        save_file(
            {key: tensor.contiguous() for key, tensor in theirs.state_dict().items()}, folder / "model.safetensors"
        )
        ours = load_snac(folder, device=options.device)
    noises: dict[int, Tensor] = {}
    with_noise(theirs, noises)
    codes = torch.randint(0, 4096, (2, 7 * FRAMES), device=options.device)
    found: dict[str, float] = {}
    with torch.inference_mode(), precision(tf32=False):
        whole = decode(theirs, codes)
        found["silent"] = off(ours.decode(codes), whole)
        middle = whole[:, 5 * FRAME : 6 * FRAME]
        found["1 + 2 frames around"] = off(ours.decode(codes[:, 28:56], (1, 2)), middle)
        found["3 + 3 frames around"] = off(ours.decode(codes[:, 14:63], (3, 4)), middle)
        length = FRAMES * CONFIG["vq_strides"][0]
        for rate in CONFIG["decoder_rates"]:
            length *= rate
            noises[length] = torch.randn(2, 1, length, device=options.device)
        given = list(noises.values())
        found["noisy"] = off(ours.decode(codes, noise=lambda s, a, b: given[s][:, 0, a:b]), decode(theirs, codes))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write("".join(f"{name:<20} {error:.1e}\n" for name, error in found.items()))


if __name__ == "__main__":
    main()
