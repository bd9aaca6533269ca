"""Float32 arithmetic without torch: each operation is rounded as torch rounds it, so a comparison on the host gives the
same result as on the device."""

from functools import lru_cache
from struct import Struct

_BYTES = Struct("<f")


def float32(value: float) -> float:
    """The nearest float32 number. Raises OverflowError if there is none."""
    return _BYTES.unpack(_BYTES.pack(value))[0]


@lru_cache(maxsize=4096)
def flow_time(i: float, steps: float, shift: float) -> float:
    """The i-th of `steps` timesteps from 1 to 0, shifted by `shift`: exactly the float32 of `t = torch.linspace(1, 0,
    steps)[i]` and `shift * t / (1 + (shift - 1) * t)`. Some shifts below 1 begin slightly above 1.

    `linspace` counts from the nearer end and rounds product and sum together, like processors with a fused
    multiply-add. Both are exact in double precision, so a single rounding remains.
    """
    step = float32(-1 / (steps - 1))
    t = float32(1 + step * i) if i < steps // 2 else float32(-step * (steps - 1 - i))
    return float32(float32(float32(shift) * t) / float32(1 + float32(float32(shift - 1) * t)))
