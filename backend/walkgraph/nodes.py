"""Words for the signatures of components that are Python functions. A plug-in's file imports them; no torch.

    def sharpen(pixels: Pixels, *, amount: Annotated[float, Between(0, 5)] = 1.0) -> Pixels:

The service reads these aliases from this file's source, so each is a plain assignment.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Actions",
    "BadInput",
    "Between",
    "Embeddings",
    "EncodedAudio",
    "EncodedImage",
    "Features",
    "Latents",
    "Pixels",
    "Seed",
    "Tokens",
    "Waveform",
    "deterministic",
]

F = TypeVar("F", bound=Callable[..., object])

EncodedImage = Annotated[bytes, "image: bytes"]
"""The bytes of a PNG, JPEG or WebP file. `PIL.Image.Image` gives the picture itself."""
EncodedAudio = Annotated[bytes, "audio: bytes"]
"""The bytes of a WAV file."""
Pixels = Annotated["Tensor", "pixels: float[3, h, w]"]
"""RGB in [-1, 1]."""
Waveform = Annotated["Tensor", "waveform: float[n]"]
"""One channel in [-1, 1]."""
Tokens = Annotated["Tensor", "tokens: int[n]"]
Latents = Annotated["Tensor", "latents: float[h, w, c]"]
Embeddings = Annotated["Tensor", "embeddings: float[n, c]"]
Features = Annotated["Tensor", "features: float[n, c]"]
Actions = Annotated["Tensor", "actions: float[n, c]"]
Seed = int
"""The type of a keyword-only argument that gets the call's seed, 63 bits. It is no parameter of the node."""


@dataclass(frozen=True)
class Between:
    """Bounds of a parameter, both included; None leaves a side open."""

    low: float | None = None
    high: float | None = None


class BadInput(Exception):
    """Raise it where the caller's own value is at fault: the run fails as `invalid_input`, with this text."""


def deterministic(function: F) -> F:
    """Decorator of a component's function: equal inputs and parameters always give equal outputs. A page that
    runs what is drawn doesn't call it again for the same."""
    return function
