"""The mixture-of-transformers language model: one attention, two full sets of weights ("und" and "gen").

Parameter names are the public checkpoint's: the und set has plain names, the gen set ends in `_moe_gen`.

Shape letters: R rows, W width, V vocabulary.
"""

from typing import cast

from torch import Tensor, cat, nn

from walkgraph.checkpoints.decoder import DecoderShape
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.norm.rms_norm import RMSNorm
from walkgraph.layers.rope import NeoxRope

UND, GEN = "", "_moe_gen"


class MoTModel(nn.Module):
    def __init__(self, shape: DecoderShape, layers: int, vocab: int, rope_theta: float) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, shape.width)
        self.layers = nn.ModuleList(DecoderLayer(shape, (UND, GEN)) for _ in range(layers))
        self.norm = RMSNorm(shape.width, shape.norm_eps)
        self.norm_moe_gen = RMSNorm(shape.width, shape.norm_eps)
        self.rope = NeoxRope(shape.head_dim, rope_theta)

    def forward(self, x: Tensor, positions: Tensor, split: int, attend: Attend) -> Tensor:
        """x `[R, W]`, positions int64 `[R]` -> normed states `[R, W]`; `x[:split]` is und, `x[split:]` is gen."""
        parts = {s: rows for s, rows in ((UND, x[:split]), (GEN, x[split:])) if rows.shape[0]}
        rotation = self.rope(positions)
        for index, layer in enumerate(self.layers):
            parts = cast(DecoderLayer, layer)(index, parts, rotation, attend)
        normed = [self.norm(rows) if s == UND else self.norm_moe_gen(rows) for s, rows in parts.items()]
        return normed[0] if len(normed) == 1 else cat(normed)


class MoTForCausalLM(nn.Module):
    def __init__(self, shape: DecoderShape, layers: int, vocab: int, rope_theta: float) -> None:
        super().__init__()
        self.model = MoTModel(shape, layers, vocab, rope_theta)
        self.lm_head = nn.Linear(shape.width, vocab, bias=False)
