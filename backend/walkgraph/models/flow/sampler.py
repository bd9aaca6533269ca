"""Rectified flow: the schedule, the Euler step, guidance and the training pair. x_1 is noise, x_0 data, v = x_1 - x_0.

Shape letters: N tokens of one picture, C channels of a token; `...` pictures.
"""

from typing import Literal

import torch
from torch import Tensor

Renorm = Literal["global", "channel", "text_channel", "none"]


def shifted(t: Tensor, shift: float) -> Tensor:
    """Time moved towards noise: s t / (1 + (s - 1) t)."""
    return shift * t / (1 + (shift - 1) * t)


def timesteps(steps: int, shift: float) -> Tensor:
    """float32 `[steps]` from 1 to 0, shifted: `steps - 1` Euler steps lie between them."""
    return shifted(torch.linspace(1, 0, steps, dtype=torch.float32), shift)


def inside(t: Tensor, low: float, high: float) -> Tensor:
    """True where guidance acts at (shifted) time t: low < t <= high."""
    return (t > low) & (t <= high)


def euler(x: Tensor, v: Tensor, t: Tensor, t_next: Tensor) -> Tensor:
    """One step from t down to t_next."""
    return x - v * (t - t_next)


def interpolate(data: Tensor, noise: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The training pair at time t: (x_t, v)."""
    return data + (noise - data) * t, noise - data


def guide(
    v: Tensor,
    v_text: Tensor | None = None,
    v_image: Tensor | None = None,
    *,
    text_scale: Tensor | float = 1.0,
    image_scale: Tensor | float = 1.0,
    renorm: Renorm = "global",
    renorm_min: Tensor | float = 0.0,
) -> Tensor:
    """Guided velocity `[..., N, C]` of pictures with N tokens each.

    `v_text`, `v_image`: velocities in the contexts without the text and without the image. A term without its velocity
    is off, and so is one whose scale is 1 or less. Where the text's term is off, the image's is off too.
    Scales and `renorm_min` are numbers or tensors that broadcast, `[..., 1, 1]`. The renorm never lengthens:
    `global` by the norm over a picture, `channel` over each token, `text_channel` over each token of the text-guided
    velocity alone, before the image term.
    """
    if v_text is None:
        return v
    guided = v_text + text_scale * (v - v_text)
    if renorm == "text_channel":
        guided = _shrink(guided, v, (-1,), renorm_min)
    if v_image is not None:
        guided = _where_on(image_scale, v_image + image_scale * (guided - v_image), guided)
    if renorm == "global":
        guided = _shrink(guided, v, (-2, -1), renorm_min)
    if renorm == "channel":
        guided = _shrink(guided, v, (-1,), renorm_min)
    return _where_on(text_scale, guided, v)


def _where_on(scale: Tensor | float, guided: Tensor, plain: Tensor) -> Tensor:
    if isinstance(scale, Tensor):
        return torch.where(scale > 1, guided, plain)
    return guided if scale > 1 else plain


def _shrink(guided: Tensor, v: Tensor, dims: tuple[int, ...], low: Tensor | float) -> Tensor:
    wanted = torch.linalg.vector_norm(v, dim=dims, keepdim=True)
    ratio = wanted / (torch.linalg.vector_norm(guided, dim=dims, keepdim=True) + 1e-8)
    return guided * torch.minimum(torch.maximum(ratio, torch.as_tensor(low, device=v.device)), torch.ones_like(ratio))
