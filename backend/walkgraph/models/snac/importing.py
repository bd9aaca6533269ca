"""SNAC, the vocoder of Orpheus: its decoder half, in the published layout."""

from collections.abc import Iterator

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Companion, Part, Published, Shapes
from walkgraph.checkpoints.files import Shape
from walkgraph.models.snac.config import SnacConfig, read_snac

_KERNEL = 7
_UNITS = 3
_WEIGHT_NORMS = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)
"""Suffixes of a weight's length and direction."""


def _recognises(contents: Contents) -> bool:
    return {"vq_strides", "decoder_rates"} <= contents.config.keys() and "model" in contents.weights


def _parts(contents: Contents) -> list[Part]:
    """The tensors that the config requires. Raises InvalidInput for a config that can't be served."""
    return [Part("model", dict(_tensors(read_snac(contents.folder))), _named)]


def _tensors(config: SnacConfig) -> Iterator[tuple[str, Shape]]:
    latent, widths = config.latent_dim, config.widths
    for level in range(len(config.vq_strides)):
        at = f"quantizer.quantizers.{level}"
        yield f"{at}.codebook.weight", (config.codebook_size, config.codebook_dim)
        yield from _convolution(f"{at}.out_proj", latent, config.codebook_dim, 1)
    if config.depthwise:
        yield from _convolution("decoder.model.0", latent, 1, _KERNEL)
        yield from _convolution("decoder.model.1", widths[0], latent, 1)
    else:
        yield from _convolution("decoder.model.0", widths[0], latent, _KERNEL)
    first = 2 if config.depthwise else 1
    for stage, rate in enumerate(config.decoder_rates):
        yield from _stage(f"decoder.model.{first + stage}.block", widths[stage], rate, config)
    last = first + len(config.decoder_rates)
    yield f"decoder.model.{last}.alpha", (1, widths[-1], 1)
    yield from _convolution(f"decoder.model.{last + 1}", 1, widths[-1], _KERNEL)


def _stage(at: str, width: int, rate: int, config: SnacConfig) -> Iterator[tuple[str, Shape]]:
    """Upsampling, noise, residual units."""
    out = width // 2
    yield f"{at}.0.alpha", (1, width, 1)
    yield f"{at}.1.weight", (width, out, 2 * rate)
    yield f"{at}.1.bias", (out,)
    if config.noise:
        yield f"{at}.2.linear.weight", (out, out, 1)
    for unit in range(_UNITS):
        inner = f"{at}.{unit + (3 if config.noise else 2)}.block"
        yield f"{inner}.0.alpha", (1, out, 1)
        yield from _convolution(f"{inner}.1", out, 1 if config.depthwise else out, _KERNEL)
        yield f"{inner}.2.alpha", (1, out, 1)
        yield from _convolution(f"{inner}.3", out, out, 1)


def _convolution(name: str, out: int, into: int, side: int) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (out, into, side)
    yield f"{name}.bias", (out,)


def _named(found: Shapes) -> Shapes:
    """Without the encoder half; length and direction of a weight become the weight."""
    names = {name: s for name, s in found.items() if not name.startswith("encoder.") and ".in_proj." not in name}
    for length, direction in _WEIGHT_NORMS:
        for name in [name for name in names if name.endswith(length)]:
            stem = name.removesuffix(length)
            if stem + direction in names:
                del names[name]
                names[f"{stem}.weight"] = names.pop(stem + direction)
    return names


COMPANION = Companion(
    title="SNAC, the vocoder",
    recognises=_recognises,
    parts=_parts,
    published=(
        Published(
            "hubertsiuzdak/snac_24khz",
            "snac_24khz",
            80_000_000,
            ("config.json", "model.safetensors"),
            "It is published as a pickle, `pytorch_model.bin`, which Walkgraph doesn't read: convert it in the folder "
            "to `model.safetensors`.",
        ),
    ),
)
