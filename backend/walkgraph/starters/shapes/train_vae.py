"""Train the starter's autoencoder on fresh drawings, and measure the shift and scale of its latents."""

import logging
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.starters.schedule import Clock, Ema, autocast, optimizer
from walkgraph.starters.shapes import data
from walkgraph.starters.shapes.config import config
from walkgraph.starters.shapes.render import render

_log = logging.getLogger(__name__)
_KL = 1e-6
_INK = 10.0
"""Extra weight of pixels on or beside an item, as most of a picture is background."""
_FIRST_LOG_VARIANCE = -6.0
"""The posterior starts narrow; at unit width its noise hides small items, which are then never learned."""


def train_vae(table: data.Draws, seconds: float, batch: int, *, compiled: bool) -> AutoEncoder:
    """Train, and return the averaged autoencoder on the table's device, with unit shift and scale."""
    device = table.items.device
    model = AutoEncoder(config().vae).to(device)
    with torch.no_grad():
        model.get_parameter("encoder.conv_out.bias")[model.config.latent_channels :] = _FIRST_LOG_VARIANCE
    step = Reconstruction(model)
    loss_of = torch.compile(step) if compiled else step
    adam, ema = optimizer(model, rate=2e-3), Ema(model, 0.998)
    with autocast(device):
        first = pictures(table, torch.arange(batch, device=device) % len(table.items))
        loss_of(first.to(memory_format=torch.channels_last)).backward()
    clock = Clock(seconds, warmup=200)
    while clock.running():
        images = pictures(table, torch.randint(len(table.items), (batch,), device=device))
        with autocast(device):
            loss = loss_of(images.to(memory_format=torch.channels_last))
        clock.update(adam, model, loss)
        ema.update()
        if clock.step % 200 == 0:
            _log.info(
                "vae step %d, %.0f s, loss %.5f", clock.step, time.monotonic() - clock.start, float(loss.detach())
            )
    ema.swap()
    return model.eval()


def pictures(table: data.Draws, chosen: Tensor) -> Tensor:
    """Fresh drawings of the chosen scenes, `[B, 3, S, S]` in [-1, 1]."""
    items, background = table.items[chosen], table.background[chosen]
    return render(items, background, data.shifts(len(chosen), items.device)) * 2 - 1


class Reconstruction(nn.Module):
    """L1, squares and L1 of differences between neighbours, weighted towards the items, plus a little KL."""

    def __init__(self, model: AutoEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        mean, log_variance = self.model.posterior(images)
        log_variance = log_variance.float().clamp(-20, 10)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        out = self.model.decoder(z).float()
        kl = 0.5 * (mean.float().square() + log_variance.exp() - 1 - log_variance).sum((1, 2, 3)).mean()
        weight = _weight(images)
        error = (out - images).abs() + (out - images).square()
        for dim in (2, 3):
            edge = (out.diff(dim=dim) - images.diff(dim=dim)).abs()
            error = error + F.pad(edge, (0, 1) if dim == 3 else (0, 0, 0, 1))
        return (error * weight).mean() / weight.mean() + _KL * kl


def _weight(images: Tensor) -> Tensor:
    """`[B, 1, S, S]`; the corner pixel of a drawing is always background."""
    ink = ((images - images[:, :, :1, :1]).abs().amax(1, keepdim=True) > 0.02).float()
    return 1 + _INK * F.max_pool2d(ink, 3, 1, 1)


@torch.no_grad()
def measure(model: AutoEncoder, table: data.Draws) -> tuple[float, float]:
    """Shift and scale that give latents mean 0 and variance 1."""
    chosen = torch.arange(min(4096, len(table.items)), device=table.items.device)
    z, _ = model.posterior(pictures(table, chosen))
    return float(z.mean()), float(1 / z.std())


@torch.no_grad()
def reconstruction_error(model: AutoEncoder, table: data.Draws) -> float:
    """Mean absolute error per channel, in 255ths, from the posterior's mean."""
    images = pictures(table, torch.arange(min(2048, len(table.items)), device=table.items.device))
    return float((model.decode(model.encode(images)) - images).abs().mean() * 127.5)
