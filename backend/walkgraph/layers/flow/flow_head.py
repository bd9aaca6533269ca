"""Arguments for the end of a flow step.

Shape letters: B blocks, W model width, A numbers of a row.
"""

from typing import NamedTuple

from torch import Tensor


class FlowInterval(NamedTuple):
    """Start and end times of an Euler step for every block: float32 `[B]`; they may be columns of a table."""

    time: Tensor
    to: Tensor


class VelocityHead(NamedTuple):
    """The last norm, which is modulated, and the linear map after it."""

    scale: Tensor
    """`[B, W]`; `shift` likewise. Rows need not be contiguous with each other."""
    shift: Tensor
    eps: float
    weight: Tensor
    """float32 `[A, W]`"""
    bias: Tensor
    """float32 `[A]`"""
