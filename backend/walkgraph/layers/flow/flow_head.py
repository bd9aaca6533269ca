"""What the end of a flow step takes.

Shape letters: B blocks, W model width, A numbers of a row.
"""

from typing import NamedTuple

from torch import Tensor


class FlowInterval(NamedTuple):
    """What an Euler step goes from and to, of every block: float32 `[B]`; they may be columns of a table."""

    time: Tensor
    to: Tensor


class VelocityHead(NamedTuple):
    """The last norm, which is modulated, and the map after it."""

    scale: Tensor
    """`[B, W]`; `shift` likewise: their rows may be apart."""
    shift: Tensor
    eps: float
    weight: Tensor
    """float32 `[A, W]`"""
    bias: Tensor
    """float32 `[A]`"""
