"""The three training tasks as fixed layouts: describe a picture, draw one, edit one.

Shape letters: B examples, T tokens of a text, N latent tokens, C latent channels.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import PackedAttend
from walkgraph.layers.pictures.patches import grid_ids
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.flow.sampler import interpolate
from walkgraph.starters.shapes.data import CAPTION, EDIT, PROMPT
from walkgraph.starters.shapes.layout import Block, Layout
from walkgraph.starters.shapes.render import SIDE


class Tasks:
    """The layouts of the three tasks and their losses; texts are padded with -1."""

    def __init__(self, config: BagelConfig, device: torch.device | str) -> None:
        seen, drawn = (SIDE // config.vit.patch) ** 2, (SIDE // config.pixels_per_token) ** 2
        side = SIDE // config.vit.patch
        self.vit_ids = grid_ids(side, side, config.vit.side, device=device)
        side = SIDE // config.pixels_per_token
        self.latent_ids = grid_ids(side, side, config.latent_side, device=device)
        self.edges = torch.tensor([config.tokens.boi, config.tokens.eoi], device=device)
        vit, noise = Block("vit", seen), Block("noise", drawn)
        self.describing = Layout([vit, Block("text", CAPTION)], device)
        self.drawing = Layout([Block("text", PROMPT), noise], device)
        self.editing = Layout([Block("vae", drawn), vit, Block("text", EDIT), noise], device)

    def describe(self, model: Bagel, ids: Tensor, patches: Tensor) -> Tensor:
        """Cross-entropy of captions `[B, T]` given patches `[B, n, 3 * patch²]`: a scalar."""
        layout = self.describing
        there = layout.there({1: (ids >= 0).sum(1)}, {}, len(ids))
        x = torch.cat([*self._vit(model, patches), model.embed_text(ids.clamp(min=0))], 1)
        h = self._backbone(model, layout, there, x, None)
        logits = model.logits(h[: x[..., 0].numel()].unflatten(0, x.shape[:2])[:, -ids.shape[1] : -1])
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=-1)

    def draw(
        self, model: Bagel, ids: Tensor, data: Tensor, noise: Tensor, t: Tensor, kept: dict[int, Tensor]
    ) -> Tensor:
        """Squared velocity error `[B]` of drawing latents `data` `[B, N, C]` after a prompt, at times `[B]`."""
        there = self.drawing.there({0: (ids >= 0).sum(1)}, kept, len(ids))
        und = torch.cat([model.embed_text(ids.clamp(min=0)), self._image_edges(model, len(ids))], 1)
        noisy, velocity = interpolate(data, noise, t[:, None, None])
        h = self._backbone(model, self.drawing, there, und, self._latents(model, noisy, t))
        return self._error(model, h[und.shape[0] * und.shape[1] :], velocity)

    def edit(
        self,
        model: Bagel,
        ids: Tensor,
        patches: Tensor,
        clean: Tensor,
        data: Tensor,
        noise: Tensor,
        t: Tensor,
        kept: dict[int, Tensor],
    ) -> Tensor:
        """The same for editing: after a picture (its latents `clean`, its `patches`) and an instruction."""
        b = len(ids)
        there = self.editing.there({2: (ids >= 0).sum(1)}, kept, b)
        edges = self._image_edges(model, b)
        und = torch.cat([edges, *self._vit(model, patches), model.embed_text(ids.clamp(min=0)), edges], 1)
        noisy, velocity = interpolate(data, noise, t[:, None, None])
        gen = torch.cat([self._latents(model, clean, torch.zeros_like(t)), self._latents(model, noisy, t)], 1)
        h = self._backbone(model, self.editing, there, und, gen)
        return self._error(model, h[und.shape[0] * und.shape[1] :], velocity)

    def _backbone(self, model: Bagel, layout: Layout, there: Tensor, und: Tensor, gen: Tensor | None) -> Tensor:
        rows = und.flatten(0, 1) if gen is None else torch.cat([und.flatten(0, 1), gen.flatten(0, 1)])
        widths = [width for width in layout.widths if width]
        attend = PackedAttend(widths, mask=layout.mask(there))
        return model.backbone(rows, layout.rows(layout.positions(there)), und.shape[0] * und.shape[1], attend)

    def _error(self, model: Bagel, gen: Tensor, velocity: Tensor) -> Tensor:
        b, n, _ = velocity.shape
        return (model.velocity(gen.unflatten(0, (b, -1))[:, -n:]) - velocity).square().mean((1, 2))

    def _image_edges(self, model: Bagel, b: int) -> Tensor:
        return model.embed_text(self.edges).expand(b, -1, -1)

    def _vit(self, model: Bagel, patches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, _ = patches.shape
        edges = self._image_edges(model, b)
        tokens = model.vit_tokens(patches.flatten(0, 1), self.vit_ids.repeat(b), [n] * b).unflatten(0, (b, n))
        return edges[:, :1], tokens, edges[:, 1:]

    def _latents(self, model: Bagel, latents: Tensor, t: Tensor) -> Tensor:
        b, n, _ = latents.shape
        rows = model.embed_latents(latents.flatten(0, 1), t.repeat_interleave(n), self.latent_ids.repeat(b))
        return rows.unflatten(0, (b, n))
