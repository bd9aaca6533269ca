"""The places of a batch's sequences in a paged cache, as attention reads them.

Shape letters: B sequences of a batch, T rows of the tables, P pages of a row.
"""

from typing import NamedTuple, Protocol

from torch import Tensor


class BlockRows(Protocol):
    """`walkgraph.abi.step.PagedRows` without positions. All int32."""

    @property
    def rows(self) -> Tensor: ...  # [B], into the tables
    @property
    def pages(self) -> Tensor: ...  # [T, P]
    @property
    def lengths(self) -> Tensor: ...  # [T], tokens kept before this step


class StepRows(BlockRows, Protocol):
    """`BlockRows` of one new token each."""

    @property
    def positions(self) -> Tensor: ...  # [T], rope position of the new token


class StepArguments(NamedTuple):
    """The arguments of `step_attention`."""

    qkv: Tensor
    slot_k: Tensor
    slot_v: Tensor
    rows: StepRows
    frequencies: Tensor
    heads: int
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    eps: float = 1e-6
    page: int = 16
