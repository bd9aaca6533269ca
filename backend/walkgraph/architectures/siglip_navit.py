"""The SigLIP vision transformer over packed patches of pictures of any size; learned positions, no rotation.

Parameter names are the public checkpoint's.

Shape letters: R rows (patches of all pictures), W width, H heads, D head dim.
"""

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.linear.mlp import GeluMLP
from walkgraph.layers.linear.packed import Packable, Packed
from walkgraph.layers.norm.layer_norm import added_norm


class SiglipAttention(Packable):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, config.width)
        self.v_proj = nn.Linear(config.width, config.width)
        self.out_proj = nn.Linear(config.width, config.width)
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
    def is_packed(self) -> bool:
        return self.packed is not None


class SiglipLayer(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.width, config.norm_eps)
        self.self_attn = SiglipAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = GeluMLP(config.width, config.hidden, config.width)

    def forward(self, layer: int, x: Tensor, attend: Attend) -> Tensor:
        """x `[R, W]` -> `[R, W]`."""
        _, normed = added_norm(x, None, self.layer_norm1)
        x, normed = added_norm(x, self.self_attn(layer, normed, attend), self.layer_norm2)
        return x + self.mlp(normed)


class SiglipEmbeddings(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.patch_embedding = nn.Linear(3 * config.patch**2, config.width)
        self.position_embedding = nn.Embedding(config.side**2, config.width)

    def forward(self, patches: Tensor, ids: Tensor) -> Tensor:
        """patches `[R, 3 * patch²]`, ids int64 `[R]` -> `[R, W]`."""
        return self.patch_embedding(patches) + self.position_embedding(ids)


class SiglipEncoder(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SiglipLayer(config) for _ in range(config.layers))


class SiglipVision(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.embeddings = SiglipEmbeddings(config)
        self.encoder = SiglipEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.width, config.norm_eps)

    def forward(self, patches: Tensor, ids: Tensor, attend: Attend) -> Tensor:
        """patches `[R, 3 * patch²]` (row, column, channel), ids int64 `[R]` = row * side + column -> `[R, W]`."""
        x = self.embeddings(patches, ids)
        for index, layer in enumerate(self.encoder.layers):
            x = layer(index, x, attend)
        return self.post_layernorm(x)


class SiglipNavit(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.vision_model = SiglipVision(config)

    def pack(self) -> None:
        """Lay weights that read one input side by side. State names stay; parameters become frozen views."""
        for layer in self.vision_model.encoder.layers:
            cast(SiglipLayer, layer).self_attn.pack()
