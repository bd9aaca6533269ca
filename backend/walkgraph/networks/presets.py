"""The configurations that a `random:CONFIG:SEED` source may name, and weights drawn for them."""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from walkgraph.checkpoints.bagel import BAGEL_7B_MOT, BagelConfig, LlmConfig, PictureRules, SpecialTokens, VaeConfig
from walkgraph.checkpoints.decoder import LongContext
from walkgraph.checkpoints.orpheus import ORPHEUS_3B, LlamaConfig, OrpheusConfig, SpeechTokens
from walkgraph.checkpoints.pi05 import PI05_BASE, Pi05Config, Widths
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.checkpoints.vjepa2 import VJEPA2_AC_VITG, TransformerConfig, Vjepa2Config
from walkgraph.errors import NotFound
from walkgraph.layers.unset import unset

M = TypeVar("M", bound=nn.Module)
C = TypeVar("C")

BAGEL: dict[str, BagelConfig] = {
    "bagel-7b-mot": BAGEL_7B_MOT,
    "bagel-tiny": BagelConfig(
        llm=LlmConfig(width=32, hidden=48, layers=2, heads=4, kv_heads=2, head_dim=8, vocab=264),
        vit=SiglipConfig(width=24, hidden=32, layers=2, heads=3, patch=8, side=16),
        vae=VaeConfig(
            channels=8, multipliers=(1, 1, 2, 2), blocks=1, latent_channels=4, shift=0.1, scale=0.5, norm_groups=4
        ),
        tokens=SpecialTokens(bos=256, eos=257, boi=258, eoi=259),
        vit_pictures=PictureRules(min_side=16, max_side=128, stride=8),
        vae_pictures=PictureRules(min_side=16, max_side=128, stride=16),
        latent_side=8,
    ),
}
"""Full-size shapes for measurements, tiny ones for tests: the same classes."""


_CODES = SpeechTokens.after_bytes(codebook=64)
ORPHEUS: dict[str, OrpheusConfig] = {
    "orpheus-3b": ORPHEUS_3B,
    "orpheus-tiny": OrpheusConfig(
        llm=LlamaConfig(
            width=48,
            hidden=80,
            layers=2,
            heads=4,
            kv_heads=2,
            head_dim=16,
            vocab=_CODES.vocab,
            scaling=LongContext(factor=8.0, low=1.0, high=4.0, original=64),
        ),
        tokens=_CODES,
    ),
}

VJEPA2: dict[str, Vjepa2Config] = {
    "vjepa2-ac-vitg": VJEPA2_AC_VITG,
    "vjepa2-ac-tiny": Vjepa2Config(
        encoder=TransformerConfig(width=48, hidden=64, layers=2, heads=2),
        predictor=TransformerConfig(width=32, hidden=48, layers=2, heads=2),
        patch=8,
        side=4,
    ),
}


PI05: dict[str, Pi05Config] = {
    "pi05-base": PI05_BASE,
    "pi05-tiny": Pi05Config(
        vision=SiglipConfig(width=24, hidden=40, layers=2, heads=3, patch=8, side=4),
        prefix=Widths(width=32, hidden=64),
        expert=Widths(width=24, hidden=48),
        layers=3,
        heads=8,
        kv_heads=1,
        head_dim=8,
        vocab=259,
        bos=256,
    ),
}


def bagel_config(name: str) -> BagelConfig:
    return _named(BAGEL, name)


def orpheus_config(name: str) -> OrpheusConfig:
    return _named(ORPHEUS, name)


def vjepa2_config(name: str) -> Vjepa2Config:
    return _named(VJEPA2, name)


def pi05_config(name: str) -> Pi05Config:
    return _named(PI05, name)


def text_edges(name: str) -> tuple[int, int]:
    """Ids of the begin and the end of a text, in the vocabulary of a configuration of any family that has one."""
    found = _named({**BAGEL, **ORPHEUS, **PI05}, name)
    # pi0.5 reads texts and writes none: nothing in it ends one.
    return (found.bos, found.bos) if isinstance(found, Pi05Config) else (found.tokens.bos, found.tokens.eos)


def _named(known: Mapping[str, C], name: str) -> C:
    if name not in known:
        raise NotFound(f"no configuration `{name}` of this family; choose one of {sorted(known)}")
    return known[name]


def drawn(build: Callable[[], M], seed: int, *, device: torch.device, dtype: torch.dtype) -> M:
    """A module with every tensor drawn, also those that training starts at zero: nothing passes a test by being 0.

    Each tensor depends on the seed and its own name alone, so that a part loads as it does within the whole. CPU and
    GPU draw different numbers.
    """
    with unset():
        module = build()
    state = {name: _draw(name, tensor.shape, seed, device).to(dtype) for name, tensor in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def _draw(name: str, shape: torch.Size, seed: int, device: torch.device) -> Tensor:
    """Matrices keep the scale of what they multiply; vectors of weights are near 1, biases near 0."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest, "big"))
    numbers = torch.randn(shape, generator=generator, device=device)
    if len(shape) > 1:
        return numbers / math.sqrt(math.prod(shape[1:]))
    return numbers * 0.1 + (0.0 if name.endswith("bias") else 1.0)
