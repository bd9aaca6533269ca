"""Writes `tests/golden/snac_tiny/`: a tiny public checkpoint, and the reference's output for codes.

Needs the package `snac` on the path, besides what the tests need:
python tests/golden/make_snac.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from snac import SNAC
from torch import Tensor, nn

FOLDER = Path(__file__).resolve().with_name("snac_tiny")
CONFIG = {
    "sampling_rate": 24000,
    "encoder_dim": 1,
    "encoder_rates": [2, 4, 8, 8],
    "decoder_dim": 16,
    "decoder_rates": [8, 8, 4, 2],
    "attn_window_size": None,
    "codebook_size": 64,
    "codebook_dim": 4,
    "vq_strides": [4, 2, 1],
    "noise": True,
    "depthwise": True,
}
FRAMES = 3
ORDER = ((0,), (1, 4), (2, 3, 5, 6))


def main() -> None:
    torch.manual_seed(7)
    model = SNAC(**CONFIG).eval().requires_grad_(False)
    state = {name: drawn(name, tensor) for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    codes = torch.randint(0, CONFIG["codebook_size"], (2, 7 * FRAMES))
    noises: list[Tensor] = []
    for block in [m for m in model.modules() if type(m).__name__ == "NoiseBlock"]:
        block.register_forward_hook(lambda module, inputs, output: silent(module, inputs[0], noises))
    cases = {"codes": codes, "silent": decode(model, codes)}
    length = FRAMES * 4
    for stage, rate in enumerate(CONFIG["decoder_rates"]):
        length *= rate
        noises.append(torch.randn(2, 1, length))
        cases[f"noise.{stage}"] = noises[-1]
    cases["noisy"] = decode(model, codes)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, FOLDER / "model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in cases.items()}, FOLDER / "cases.safetensors")


def drawn(name: str, tensor: Tensor) -> Tensor:
    """Alphas and lengths of weights too, which the reference starts at one value."""
    if name.endswith(("alpha", "original0")):
        return tensor * (0.85 + 0.6 * torch.rand_like(tensor))
    return tensor if tensor.dim() > 1 else torch.randn_like(tensor) * 0.05


def silent(module: nn.Module, x: Tensor, noises: list[Tensor]) -> Tensor:
    """The block's output with our noise or without noise; called once for each stage, in order."""
    if not noises:
        return x
    [noise] = [noise for noise in noises if noise.shape[-1] == x.shape[-1]]
    return x + noise * module.get_submodule("linear")(x)


def decode(model: nn.Module, codes: Tensor) -> Tensor:
    framed = codes.view(len(codes), -1, 7)
    levels = [framed[..., list(places)].flatten(1) for places in ORDER]
    return model.decode(levels)[:, 0]


if __name__ == "__main__":
    main()
