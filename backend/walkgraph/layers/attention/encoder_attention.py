"""Projections of an encoder's attention, and of its heads.

Shape letters: R rows, W width, H heads, D head dim.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.linear.packed import UNPACKED, Packable, Packed


class EncoderAttention(Packable):
    """Queries, keys and values have a bias and a matrix each; `pack` lays them side by side."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self.packed: Packed | None = None

    def forward(self, layer: int, x: Tensor, attend: Attend) -> Tensor:
        """x `[R, W]` -> `[R, W]`."""
        if self.packed is None:
            parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        else:
            parts = F.linear(x, *self.packed).chunk(3, 1)
        q, k, v = (part.unflatten(1, (self.heads, -1)) for part in parts)
        return self.out_proj(attend(layer, q, k, v).flatten(1))

    def pack(self) -> None:
        """Lay q, k and v side by side, so that one product reads them; this freezes them."""
        self.packed = Packed.of(self.q_proj, self.k_proj, self.v_proj)

    @property
    def qkv(self) -> Packed:
        """The matrices side by side; raises RuntimeError before `pack`."""
        if self.packed is None:
            raise RuntimeError(UNPACKED)
        return self.packed

    @property
    def is_packed(self) -> bool:
        return self.packed is not None
