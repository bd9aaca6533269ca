"""pi0.5: cameras, a task and a robot's state are read once as a prefix; a flow draws a chunk of actions behind it.

To train: `Pi05(config)` is drawn and ready. Its forward is the whole in one pass, with gradients; `states` beside the
velocity are the prefix's last hidden states, for an auxiliary loss:

    noised = t * noise + (1 - t) * actions            # t `[B]` in (0, 1]; 1 is noise
    flow = model(cameras, ids, lengths, noised, t)    # cameras: tensors `[B, 3, h, w]` in [-1, 1], one for each camera
    loss = mse(flow.velocity, noise - actions)        # + 0.5 * mse(head(flow.states[rows, places]), target)

A token's place among `states` is cameras * patches + its index in `ids`. A model's files are its `state_dict()` and
`pi05_json(config)` of `models.pi05.config`; `pack` is only for serving, and freezes it.

`forward` is made of the pieces that are served separately: `see`, `read`, `modulations`, `denoise`.

Parameter names are the public checkpoint's.

Shape letters: B rows of a batch, C cameras, p patches of a camera, n tokens of text, P = C * p + n of a prefix, t
actions of a chunk, a numbers of an action, W width of the prefix or of the expert, G key/value heads, D head dim.
"""

import math
from collections.abc import Sequence
from typing import Generic, NamedTuple, Self, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.siglip import SquareVision
from walkgraph.layers.attention.dense_attention import KV
from walkgraph.layers.rope import NeoxRope
from walkgraph.models.pi05.config import Pi05Config
from walkgraph.models.pi05.layers import AdaNorm, ExpertLayer, GemmaNorm, Modulation, PrefixLayer


class Flow(NamedTuple):
    velocity: Tensor
    """float32 `[B, t, a]`: noise - actions."""
    states: Tensor
    """`[B, P, W]`: the prefix's last hidden states, normed."""


class Prefix(NamedTuple):
    """The context that the expert attends to."""

    kv: list[KV]
    """Per layer, `[B, P, G, D]`."""
    valid: Tensor | None
    """bool `[B, P]`; None: all rows are valid."""
    states: Tensor = torch.empty(0)
    """`[B, P, W]`, normed, if they were asked for."""


class _Tower(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.vision_model = SquareVision(config.vision)


class _Projector(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.linear = nn.Linear(config.vision.width, config.prefix.width)


class _Language(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        shape = config.shape(config.prefix)
        self.embed_tokens = nn.Embedding(config.vocab, shape.width)
        nn.init.normal_(self.embed_tokens.weight, std=shape.width**-0.5)
        self.layers = nn.ModuleList(PrefixLayer(shape) for _ in range(config.layers))
        self.norm = GemmaNorm(shape.width, shape.norm_eps)


class _PaliGemmaModel(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.vision_tower = _Tower(config)
        self.multi_modal_projector = _Projector(config)
        self.language_model = _Language(config)


class _ExpertModel(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        shape = config.shape(config.expert)
        self.layers = nn.ModuleList(ExpertLayer(shape) for _ in range(config.layers))
        self.norm = AdaNorm(shape.width, shape.norm_eps)


M = TypeVar("M", _PaliGemmaModel, _ExpertModel)


class _Head(nn.Module, Generic[M]):
    """Wraps a model with a head, which is never read."""

    def __init__(self, model: M) -> None:
        super().__init__()
        self.model = model


class _Both(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.paligemma = _Head(_PaliGemmaModel(config))
        self.gemma_expert = _Head(_ExpertModel(config))


class Pi05(nn.Module):
    def __init__(self, config: Pi05Config) -> None:
        super().__init__()
        self.config = config
        width = config.expert.width
        self.paligemma_with_expert = _Both(config)
        self.action_in_proj = nn.Linear(config.action_width, width)
        self.action_out_proj = nn.Linear(width, config.action_width)
        self.time_mlp_in = nn.Linear(width, width)
        self.time_mlp_out = nn.Linear(width, width)
        self.rope = NeoxRope(config.head_dim, config.rope_theta)

    @property
    def vision(self) -> SquareVision:
        return self.paligemma_with_expert.paligemma.model.vision_tower.vision_model

    @property
    def projector(self) -> nn.Linear:
        return self.paligemma_with_expert.paligemma.model.multi_modal_projector.linear

    @property
    def language(self) -> _Language:
        return self.paligemma_with_expert.paligemma.model.language_model

    @property
    def expert(self) -> _ExpertModel:
        return self.paligemma_with_expert.gemma_expert.model

    def forward(
        self,
        cameras: Sequence[Tensor],
        ids: Tensor,
        lengths: Tensor | None,
        actions: Tensor,
        time: Tensor,
        present: Tensor | None = None,
    ) -> Flow:
        """cameras: `[B, 3, h, w]` each, in [-1, 1]; ids int64 `[B, n]`, of which the first `lengths` `[B]` are valid
        (None: all); noised actions `[B, t, a]`; time `[B]`; present: bool `[B, C]`, the cameras that a row has (None:
        all)."""
        prefix = self.read(*self.laid(cameras, ids, lengths, present), states=True)
        return Flow(self.denoise(actions, self.modulations(time), prefix), prefix.states)

    def see(self, pixels: Tensor) -> Tensor:
        """Pictures `[B, 3, h, w]` in [-1, 1] -> `[B, p, W]`, without the scaling that text gets."""
        return self.projector(self.vision(pixels)).unflatten(0, (pixels.shape[0], -1))

    def embed(self, ids: Tensor) -> Tensor:
        """int64 `[..., n]` -> `[..., n, W]`."""
        return self.language.embed_tokens(ids) * math.sqrt(self.config.prefix.width)

    def laid(
        self, cameras: Sequence[Tensor], ids: Tensor, lengths: Tensor | None, present: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Cameras and text, as in `forward` -> rows `[B, P, W]`, and bool `[B, P]`: true for valid ones (None: all)."""
        rows, count, device = ids.shape[0], len(cameras), ids.device
        seen = self.see(torch.cat([*cameras])).unflatten(0, (count, rows)) if cameras else []
        x = torch.cat([*seen, self.embed(ids)], 1)
        if lengths is None and present is None:
            return x, None
        if present is None:
            present = torch.ones(rows, count, dtype=torch.bool, device=device)
        if lengths is None:
            lengths = torch.full((rows,), ids.shape[1], device=device)
        text = torch.arange(ids.shape[1], device=device) < lengths[:, None]
        return x, torch.cat([present.repeat_interleave(self.config.patches, 1), text], 1)

    def read(self, x: Tensor, valid: Tensor | None = None, *, states: bool = False) -> Prefix:
        """x `[B, P, W]`, each row attending all valid ones. Without `states` the last layer computes only its keys and
        values."""
        layers = [cast(PrefixLayer, layer) for layer in self.language.layers]
        positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2]) if valid is None else _places(valid)
        rotation, kv = self.rope(positions.flatten()), list[KV]()
        mask = None if valid is None else valid[:, None, None]
        for layer in layers if states else layers[:-1]:
            x, kept = layer(x, rotation, mask)
            kv.append(kept)
        if states:
            return Prefix(kv, valid, self.language.norm(x))
        return Prefix([*kv, layers[-1].keys(x, rotation)], valid)

    def modulations(self, time: Tensor) -> Tensor:
        """Flow times `[n]` -> float32 `[n, norms, 3, W]`: scale, shift and gate of every norm of the expert, two per
        layer in order, then the last norm."""
        width, (low, high) = self.config.expert.width, self.config.periods
        share = torch.linspace(0, 1, width // 2, dtype=torch.float64, device=time.device)
        angles = time.double()[:, None] * (2 * math.pi / (low * (high / low) ** share))
        waves = torch.cat([angles.sin(), angles.cos()], 1).to(self.time_mlp_in.weight.dtype)
        condition = F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(waves))))
        layers = [cast(ExpertLayer, layer) for layer in self.expert.layers]
        norms = [norm for layer in layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
        return torch.stack([norm.numbers(condition) for norm in (*norms, self.expert.norm)], 1)

    def denoise(self, actions: Tensor, modulation: Tensor, prefix: Prefix) -> Tensor:
        """Noised actions `[B, t, a]` and the `modulations` of their times -> velocity, float32 `[B, t, a]`."""
        (rows, count, _), expert = actions.shape, self.expert
        held = prefix.kv[0][0].shape[1]
        after = torch.arange(count, device=actions.device)
        mask, first = None, torch.full((rows, 1), held, device=actions.device)
        if prefix.valid is not None:
            first = prefix.valid.sum(1, keepdim=True)
            mask = torch.cat([prefix.valid, prefix.valid.new_ones(rows, count)], 1)[:, None, None]
        rotation = self.rope((first + after).flatten())
        by = [Modulation.of(numbers) for numbers in modulation.unbind(1)]
        x = self.enter(actions)
        for index, layer in enumerate(expert.layers):
            x = layer(x, rotation, (by[2 * index], by[2 * index + 1]), prefix.kv[index], mask)
        return self.leave(expert.norm(x, by[-1]))

    def enter(self, actions: Tensor) -> Tensor:
        """`[..., a]` -> `[..., W]` of the expert's type."""
        into = self.action_in_proj
        first = cast(ExpertLayer, self.expert.layers[0])
        return into(actions.to(into.weight.dtype)).to(first.mlp.down_proj.weight.dtype)

    def leave(self, x: Tensor) -> Tensor:
        """States `[..., W]`, normed -> float32 `[..., a]`."""
        out = self.action_out_proj
        return F.linear(x.float(), out.weight.float(), out.bias.float())

    def pack(self) -> Self:
        """Lay out loaded weights so that fewer products read them; this freezes them."""
        self.vision.pack()
        for layer in (*self.language.layers, *self.expert.layers):
            cast("PrefixLayer | ExpertLayer", layer).pack()
        self.language.norm.pack()
        return self


def _places(valid: Tensor) -> Tensor:
    """Positions `[B, P]` of the valid rows; invalid ones get arbitrary positions."""
    return (valid.cumsum(1) - 1).clamp(min=0)
