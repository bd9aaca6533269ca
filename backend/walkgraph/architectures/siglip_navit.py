"""The SigLIP vision transformer over packed patches of pictures of any size; learned positions, no rotation.

Parameter names are the public checkpoint's.

Shape letters: R rows (patches of all pictures), W width, H heads, D head dim.
"""

from typing import cast

from torch import Tensor, nn

from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.layers.attention.dense_attention import Attend
from walkgraph.layers.attention.encoder_attention import EncoderAttention
from walkgraph.layers.encoder import EncoderWeights
from walkgraph.layers.linear.mlp import GeluMLP
from walkgraph.layers.norm.layer_norm import added_norm


class SiglipLayer(nn.Module):
    def __init__(self, config: SiglipConfig) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.width, config.norm_eps)
        self.self_attn = EncoderAttention(config.width, config.heads)
        self.layer_norm2 = nn.LayerNorm(config.width, config.norm_eps)
        self.mlp = GeluMLP(config.width, config.hidden, config.width)

    def forward(self, layer: int, x: Tensor, attend: Attend) -> Tensor:
        """x `[R, W]` -> `[R, W]`."""
        _, normed = added_norm(x, None, self.layer_norm1)
        x, normed = added_norm(x, self.self_attn(layer, normed, attend), self.layer_norm2)
        return x + self.mlp(normed)

    def weights(self) -> EncoderWeights:
        """The weights of a forward without gradients; needs `pack` of its attention."""
        return EncoderWeights(
            norm=self.layer_norm1,
            qkv=self.self_attn.qkv,
            heads=self.self_attn.heads,
            out=self.self_attn.out_proj,
            mlp_norm=self.layer_norm2,
            fc1=self.mlp.fc1,
            fc2=self.mlp.fc2,
            activation="gelu_tanh",
        )


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
