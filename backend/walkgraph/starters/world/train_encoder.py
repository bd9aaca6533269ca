"""Train the encoder together with the painter: masked pictures to pixels, and places along fixed directions.

Features are compared by distance, so the distance between two places of the shape must show evenly in every token. A
linear map that is drawn once and never trained enforces this: the encoder has to produce the facts along its
directions.

Shape letters: B pictures, n patches, m of them seen, d width.
"""

import logging

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.vjepa2.config import TransformerConfig
from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Block, normed
from walkgraph.models.vjepa2.positions import angles
from walkgraph.models.world.painter import READ, Painter, facts
from walkgraph.models.world.picture import picture
from walkgraph.models.world.scene import Scene
from walkgraph.starters.schedule import Clock, Ema, Progress, autocast, optimizer
from walkgraph.starters.world import data

_log = logging.getLogger(__name__)
SHARES = (3.0, 3.0, 2.0, 1.5, 1.5, 1.0, 1.0)
"""Share of a token's deviation that each fact takes along its direction: place, grip, arrow, heading."""
_DRAWN = 4
_SEEN = 0.4
"""Share of patches that are seen when the rest is to be predicted."""


class MaskedDecoder(nn.Module):
    """Predicts the patches that were not seen; used only in training."""

    def __init__(self, width: int, patch: int, side: int) -> None:
        super().__init__()
        sizes = TransformerConfig(width=128, hidden=384, layers=2, heads=2)
        self.enter = nn.Linear(width, sizes.width)
        self.absent = nn.Parameter(torch.zeros(sizes.width))
        self.blocks = nn.ModuleList(Vjepa2Block(sizes, 1e-6) for _ in range(sizes.layers))
        self.leave = nn.Linear(sizes.width, 3 * patch**2)
        at = angles(sizes.head_dim, (side, side)).at(torch.zeros(()))
        self.cos, self.sin = (nn.Buffer(part, persistent=False) for part in at)

    def forward(self, features: Tensor, keep: Tensor) -> Tensor:
        """features `[B, m, d]` of the patches `keep` `[B, m]` -> all patches' pixels `[B, n, 3 * patch * patch]`."""
        entered = self.enter(features)
        x = self.absent.to(entered.dtype).expand(len(keep), self.cos.shape[0], -1)
        x = x.scatter(1, keep[..., None].expand_as(entered), entered)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.leave(x)


class EncoderLoss(nn.Module):
    def __init__(self, model: Vjepa2, painter: Painter) -> None:
        super().__init__()
        self.encoder, self.painter, self.patch = model.encoder, painter, model.encoder.config.patch
        self.decoder = MaskedDecoder(model.encoder.config.encoder.width, self.patch, model.encoder.config.side)

    def forward(self, images: Tensor, wanted: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        """images `[B, 3, h, w]`, facts `[B, READ]`, seen patches `[B / 2, m]` -> the loss, and its three parts."""
        half = len(keep)
        guess = self.decoder(self.encoder(images[:half], keep), keep)
        masked = F.mse_loss(guess.float(), patchify(images[:half], self.patch))
        features = normed(self.encoder(images[half:]).float())
        located = (self.painter.read(features) - wanted[half:, None]).abs().mean()
        painted = painting_error(self.painter(features), images[half:])
        return masked + 0.5 * located + painted, torch.stack([masked, located, painted]).detach()


def painting_error(painted: Tensor, images: Tensor) -> Tensor:
    """Error of painted pictures; both `[B, 3, h, w]`."""
    painted = painted.float()
    return F.l1_loss(painted, images) + 2 * F.mse_loss(painted, images)


def fixed_reading(painter: Painter, seed: int = 0) -> None:
    """Set `painter.read` permanently to directions that are orthogonal to each other and to a token's mean."""
    width = painter.config.features
    start = torch.randn(width, READ + 1, generator=torch.Generator().manual_seed(seed))
    start[:, 0] = 1
    directions = torch.linalg.qr(start).Q[:, 1:].T
    with torch.no_grad():
        painter.read.weight.copy_(directions / torch.tensor(SHARES)[:, None])
        painter.read.bias.zero_()
    painter.read.requires_grad_(False)


def drawn(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pictures `[B, 3, h, w]` and their facts."""
    half = count // 2
    scene = Scene(
        *(torch.cat(parts) for parts in zip(data.fresh(half, device), data.walked(half, device), strict=True))
    )
    order = torch.randperm(2 * half, device=device)
    scene = Scene(*(part[order] for part in scene))
    return picture(scene), facts(scene)


def train_encoder(model: Vjepa2, painter: Painter, seconds: float, batch: int, rate: float, warmup: int) -> None:
    """Train both in place; they end as their moving averages."""
    device = next(model.parameters()).device
    total = EncoderLoss(model, painter).to(device)
    adam, ema = optimizer(total, rate), Ema(total, 0.999)
    patches = model.encoder.config.patches
    clock, progress = Clock(seconds, warmup), Progress("encoder", "masked", "located", "painted")
    while clock.running():
        # Drawn for several steps at once, as it takes many small launches.
        for images, wanted in zip(*(part.split(batch) for part in drawn(_DRAWN * batch, device)), strict=True):
            keep = torch.rand(batch // 2, patches, device=device).argsort(1)[:, : int(_SEEN * patches)]
            with autocast(device):
                loss, parts = total(images, wanted, keep)
            clock.update(adam, total, loss)
            ema.update()
            progress.tell(clock.step, parts)
    ema.swap()
    _log.info("encoder: %d steps", clock.step)
