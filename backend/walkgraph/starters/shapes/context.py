"""A plain runtime for evaluation: batches of equal shape, contiguous caches, one picture or text after another.

It keeps BAGEL's contexts, masks and positions and nothing of an engine's machinery; the tests compare it with the
training layout, and an engine can be compared with it.

Shape letters: B sequences, P kept tokens, T text tokens (padded), N tokens of a picture, C latent channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.layers.attention.dense_attention import KV, PackedAttend
from walkgraph.layers.pictures.patches import grid_ids, patchify, unpatchify
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.flow import sampler


@dataclass(frozen=True, kw_only=True)
class Guidance:
    """Settings of drawing; `steps` counts times, so there are `steps - 1` Euler steps."""

    steps: int = 50
    shift: float = 3.0
    text_scale: float = 4.0
    image_scale: float = 1.0
    interval: tuple[float, float] = (0.4, 1.0)
    renorm: sampler.Renorm = "global"
    renorm_min: float = 0.0


@dataclass(frozen=True)
class Context:
    """The context that `B` sequences have read so far."""

    model: Bagel
    past: tuple[KV, ...]
    seen: Tensor
    """bool `[B, P]`: true for kept tokens, false for padding."""
    position: Tensor
    """int64 `[B]`: the next rotary position."""

    @classmethod
    def empty(cls, model: Bagel, count: int) -> Self:
        device = model.vae2llm.weight.device
        seen = torch.ones(count, 0, dtype=torch.bool, device=device)
        return cls(model, (), seen, torch.zeros(count, dtype=torch.int64, device=device))

    def text(self, ids: Tensor, there: Tensor) -> tuple[Self, Tensor]:
        """Append text `[B, T]` (bos and eos included), padded where `there` is false -> context, states `[B, T, W]`."""
        b, t = ids.shape
        causal = torch.ones(t, t, dtype=torch.bool, device=ids.device).tril()
        alone = torch.eye(t, dtype=torch.bool, device=ids.device)
        mask = self._over_past(t, there[:, None] & causal | alone)
        positions = self.position[:, None] + torch.arange(t, device=ids.device)
        attend = PackedAttend((t,), mask=mask, past=self.past, keep=True)
        x = self.model.embed_text(ids.flatten())
        h = self.model.backbone(x, positions.flatten(), b * t, attend)
        after = replace(
            self, past=tuple(attend.kept), seen=torch.cat([self.seen, there], 1), position=self.position + there.sum(1)
        )
        return after, h.unflatten(0, (b, t))

    def picture_seen(self, images: Tensor) -> Self:
        """Append pictures `[B, 3, H, W]` in [-1, 1] through the ViT."""
        vit = self.model.config.vit
        patches = patchify(images, vit.patch)
        b, n, _ = patches.shape
        ids = grid_ids(images.shape[2] // vit.patch, images.shape[3] // vit.patch, vit.side, device=images.device)
        tokens = self.model.vit_tokens(patches.flatten(0, 1), ids.repeat(b), [n] * b)
        edges = self._edges(b)
        attend = self._block(n + 2, (2, n), keep=True)
        rows = torch.cat([edges, tokens])
        positions = torch.cat([self.position.repeat_interleave(2), self.position.repeat_interleave(n)])
        self.model.backbone(rows, positions, rows.shape[0], attend)
        return self._grown(attend, n + 2)

    def picture_kept(self, latents: Tensor, grid: tuple[int, int]) -> Self:
        """Append clean latent tokens `[B, N, C]`."""
        attend = self._block(latents.shape[1] + 2, (2, latents.shape[1]), keep=True)
        self._latent_pass(latents, torch.zeros(latents.shape[0], device=latents.device), grid, attend)
        return self._grown(attend, latents.shape[1] + 2)

    def velocity(self, latents: Tensor, t: Tensor, grid: tuple[int, int]) -> Tensor:
        """Noised latent tokens `[B, N, C]` at times `[B]` -> velocities of the same shape; nothing is kept."""
        attend = self._block(latents.shape[1] + 2, (2, latents.shape[1]), keep=False)
        h = self._latent_pass(latents, t, grid, attend)
        return self.model.velocity(h[2 * latents.shape[0] :]).view(latents.shape)

    def _latent_pass(self, latents: Tensor, t: Tensor, grid: tuple[int, int], attend: PackedAttend) -> Tensor:
        b, n, _ = latents.shape
        ids = grid_ids(*grid, self.model.config.latent_side, device=latents.device)
        tokens = self.model.embed_latents(latents.flatten(0, 1), t.repeat_interleave(n), ids.repeat(b))
        positions = torch.cat([self.position.repeat_interleave(2), self.position.repeat_interleave(n)])
        return self.model.backbone(torch.cat([self._edges(b), tokens]), positions, 2 * b, attend)

    def _edges(self, b: int) -> Tensor:
        tokens = self.model.config.tokens
        return self.model.embed_text(torch.tensor([tokens.boi, tokens.eoi] * b, device=self.position.device))

    def _block(self, length: int, widths: Sequence[int], *, keep: bool) -> PackedAttend:
        everything = torch.ones(length, length, dtype=torch.bool, device=self.position.device)
        return PackedAttend(widths, mask=self._over_past(length, everything[None]), past=self.past, keep=keep)

    def _over_past(self, length: int, block: Tensor) -> Tensor | None:
        if bool(self.seen.all()) and bool(block.all()):
            return None
        b = self.seen.shape[0]
        return torch.cat([self.seen[:, None].expand(-1, length, -1), block.expand(b, -1, -1)], 2)

    def _grown(self, attend: PackedAttend, length: int) -> Self:
        seen = torch.cat([self.seen, self.seen.new_ones(self.seen.shape[0], length)], 1)
        return replace(self, past=tuple(attend.kept), seen=seen, position=self.position + 1)


def denoise(
    noise: Tensor,
    full: Context,
    no_text: Context | None,
    no_image: Context | None,
    grid: tuple[int, int],
    how: Guidance,
) -> Tensor:
    """Noise `[B, N, C]` -> clean latent tokens. Guidance branches run only inside the guidance interval and if their
    scale asks for it."""
    x = noise
    times = sampler.timesteps(how.steps, how.shift)
    inside = sampler.inside(times, *how.interval).tolist()
    for t, t_next, guided in zip(times[:-1].tolist(), times[1:].tolist(), inside[:-1], strict=True):
        at = torch.full((x.shape[0],), t, device=x.device)
        with_text = no_text is not None and guided and how.text_scale > 1
        with_image = no_image is not None and with_text and how.image_scale > 1
        v = sampler.guide(
            full.velocity(x, at, grid),
            no_text.velocity(x, at, grid) if no_text is not None and with_text else None,
            no_image.velocity(x, at, grid) if no_image is not None and with_image else None,
            text_scale=how.text_scale,
            image_scale=how.image_scale,
            renorm=how.renorm,
            renorm_min=how.renorm_min,
        )
        x = x - v * (t - t_next)
    return x


def write(context: Context, most: int) -> list[list[int]]:
    """Greedy text after a context: feed bos, stop at eos (not returned) or after `most` tokens."""
    tokens = context.model.config.tokens
    ids = torch.full_like(context.position, tokens.bos)
    out: list[Tensor] = []
    for _ in range(most):
        context, h = context.text(ids[:, None], torch.ones_like(ids, dtype=torch.bool)[:, None])
        ids = context.model.logits(h[:, 0]).argmax(-1)
        out.append(ids)
        if bool((torch.stack(out) == tokens.eos).any(0).all()):
            break
    written = torch.stack(out, 1).tolist()
    return [row[: row.index(tokens.eos)] if tokens.eos in row else row for row in written]


def to_latents(ae: AutoEncoder, images: Tensor, patch: int) -> Tensor:
    """images `[B, 3, H, W]` in [-1, 1] -> latent tokens `[B, N, C]`, the posterior's mean."""
    return patchify(ae.encode(images), patch)


def to_images(ae: AutoEncoder, latents: Tensor, grid: tuple[int, int], patch: int) -> Tensor:
    """latent tokens `[B, N, C]` -> images `[B, 3, H, W]`."""
    return ae.decode(unpatchify(latents, patch, *grid))
