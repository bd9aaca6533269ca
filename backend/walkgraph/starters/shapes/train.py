"""Train the `shapes` starter from scratch: data, autoencoder, model.

    python -m walkgraph.starters.shapes.train --out DIR [--seconds 330] [--vae-seconds 75]

About nine minutes on one large GPU; slowly on a CPU. `DIR` then holds config.json, ema.safetensors (bf16),
ae.safetensors (bf16) and tokenizer.json: a checkpoint folder.
"""

import argparse
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.bagel.config import BagelConfig, bagel_json, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.weights import load_autoencoder, load_bagel
from walkgraph.models.flow.sampler import shifted
from walkgraph.starters.schedule import Clock, Ema, autocast, begin, optimizer, save
from walkgraph.starters.shapes import data
from walkgraph.starters.shapes.config import config
from walkgraph.starters.shapes.context import to_latents
from walkgraph.starters.shapes.losses import Tasks
from walkgraph.starters.shapes.render import render
from walkgraph.starters.shapes.tokens import FILE
from walkgraph.starters.shapes.train_vae import measure, reconstruction_error, train_vae

_log = logging.getLogger(__name__)
SHIFT = 5.0
"""Shift of training times: larger than in drawing, since the layout is decided near the noise."""
CE_WEIGHT = 0.25
TEXT_DROP, VIT_DROP, VAE_DROP = 0.1, 0.3, 0.3
_SAVE_EVERY = 90.0

Inputs = tuple[Any, ...]
"""Arguments for one task's method of `Tasks`."""


class Batch(NamedTuple):
    """Examples of each task per step; drawing is the hardest, and its examples have the fewest rows."""

    describe: int
    draw: int
    edit: int


class Examples:
    """Both tables on the device, with the latents of every picture that is drawn or kept."""

    def __init__(self, ae: AutoEncoder, draws: data.Draws, edits: data.Edits, config: BagelConfig) -> None:
        self.draws, self.edits, self.patch = draws, edits, config.vit.patch
        device = draws.items.device
        self.shifts = data.shifts(len(draws.items), device)
        self.before_shifts = data.shifts(len(edits.before), device)
        self.after_shifts = data.kept_shifts(self.before_shifts, data.shifts(len(edits.before), device), edits.moved)
        self.latents = _encode(ae, draws.items, draws.background, self.shifts)
        self.before = _encode(ae, edits.before, edits.background, self.before_shifts)
        self.after = _encode(ae, edits.after, edits.background_after, self.after_shifts)

    def batch(self, sizes: Batch) -> tuple[Inputs, Inputs, Inputs]:
        return self.describe(sizes.describe), self.draw(sizes.draw), self.edit(sizes.edit)

    def describe(self, count: int) -> Inputs:
        """Fresh drawings: captions, patches."""
        i = torch.randint(len(self.latents), (count,), device=self.latents.device)
        shifts = data.shifts(count, i.device)
        return self.draws.caption[i], self._patches(self.draws.items[i], self.draws.background[i], shifts)

    def draw(self, count: int) -> Inputs:
        i = torch.randint(len(self.latents), (count,), device=self.latents.device)
        return self.draws.prompt[i], *_noised(self.latents[i]), {0: _keep(count, TEXT_DROP, i.device)}

    def edit(self, count: int) -> Inputs:
        i = torch.randint(len(self.before), (count,), device=self.before.device)
        patches = self._patches(self.edits.before[i], self.edits.background[i], self.before_shifts[i])
        drops = {0: VAE_DROP, 1: VIT_DROP, 2: TEXT_DROP}
        kept = {block: _keep(count, drop, i.device) for block, drop in drops.items()}
        return self.edits.text[i], patches, self.before[i].float(), *_noised(self.after[i]), kept

    def _patches(self, items: Tensor, background: Tensor, shifts: Tensor) -> Tensor:
        return patchify(render(items, background, shifts) * 2 - 1, self.patch)


class TotalLoss(nn.Module):
    def __init__(self, model: Bagel, tasks: Tasks) -> None:
        super().__init__()
        self.model, self.tasks = model, tasks

    def forward(self, describe: Inputs, draw: Inputs, edit: Inputs) -> tuple[Tensor, Tensor]:
        """The loss to minimize, and its three parts (cross-entropy, drawing, editing)."""
        ce = self.tasks.describe(self.model, *describe)
        drawing = self.tasks.draw(self.model, *draw).mean()
        editing = self.tasks.edit(self.model, *edit).mean()
        return CE_WEIGHT * ce + drawing + editing, torch.stack([ce, drawing, editing]).detach()


def train(
    examples: Examples, model: Bagel, out: Path, seconds: float, batch: Batch, rate: float, *, compiled: bool
) -> Bagel:
    """Train, and return the averaged model; saves it to `out` every minute and a half."""
    device = examples.latents.device
    # The rope keeps a table per device; created while compiling, it would compile everything twice.
    model.language_model.model.rope(torch.zeros(1, dtype=torch.int64, device=device))
    total = TotalLoss(model, Tasks(model.config, device))
    loss_of = torch.compile(total) if compiled else total
    adam, ema = optimizer(model, rate), Ema(model, 0.9995)
    with autocast(device):
        loss_of(*examples.batch(batch))[0].backward()
    _log.info("first step done")
    clock, saved = Clock(seconds, warmup=500), time.monotonic()
    while clock.running():
        with autocast(device):
            loss, parts = loss_of(*examples.batch(batch))
        clock.update(adam, model, loss)
        ema.update()
        if clock.step % 200 == 0:
            spent = time.monotonic() - clock.start
            _log.info("step %d, %.0f s, ce %.4f draw %.4f edit %.4f", clock.step, spent, *parts.tolist())
        if time.monotonic() - saved > _SAVE_EVERY:
            ema.swap()
            save(model, out / "ema.safetensors")
            ema.swap()
            saved = time.monotonic()
    _log.info("trained %d steps", clock.step)
    ema.swap()
    return model.eval()


def fresh(conf: BagelConfig) -> Bagel:
    """A model with small normal matrices, zero biases, and a velocity head that starts at zero."""
    model = Bagel(conf)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim >= 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    nn.init.zeros_(model.llm2vae.weight)
    return model


def resumed(folder: Path, conf: BagelConfig) -> Bagel:
    model = load_bagel(folder, conf).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith("pos_embed"))
    return model


def main() -> None:
    options = _options()
    device = begin(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    started, compiled = time.monotonic(), device.type == "cuda" and not options.eager
    draws = data.Draws(*(t.to(device) for t in data.draws(options.examples, 1_000, options.workers)))
    edits = data.Edits(*(t.to(device) for t in data.edits(options.examples, 2_000_000_000, options.workers)))
    _log.info("%d examples of each kind, %.0f s", options.examples, time.monotonic() - started)
    known = options.resume or options.vae
    if known:
        conf = read_bagel(known)
        ae = load_autoencoder(known, conf, device=device)
        shutil.copy(known / "ae.safetensors", options.out)
    else:
        ae = train_vae(draws, options.vae_seconds, options.vae_batch, compiled=compiled)
        conf = config(*measure(ae, draws))
        save(ae, options.out / "ae.safetensors")
        ae.config = conf.vae
    (options.out / "config.json").write_text(bagel_json(conf))
    shutil.copy(FILE, options.out)
    _log.info("autoencoder error %.3f/255, %.0f s", reconstruction_error(ae, draws), time.monotonic() - started)
    examples = Examples(ae, draws, edits, conf)
    _log.info("latents encoded, %.0f s", time.monotonic() - started)
    model = (resumed(options.resume, conf) if options.resume else fresh(conf)).to(device)
    model = train(examples, model, options.out, options.seconds, Batch(*options.batch), options.rate, compiled=compiled)
    save(model, options.out / "ema.safetensors")
    _log.info("done, %.0f s", time.monotonic() - started)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the `shapes` starter.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=330, help="training time of the model")
    parser.add_argument("--vae-seconds", type=float, default=75, help="training time of the autoencoder")
    parser.add_argument("--vae", type=Path, help="a folder with a trained autoencoder, to train the model alone")
    parser.add_argument("--resume", type=Path, help="a folder with a trained model, to train it further")
    parser.add_argument("--vae-batch", type=int, default=192)
    batch = {"metavar": ("DESCRIBE", "DRAW", "EDIT"), "default": (106, 640, 320), "help": "examples in a step"}
    parser.add_argument("--batch", type=int, nargs=3, **batch)
    parser.add_argument("--rate", type=float, default=1.2e-3, help="highest learning rate")
    parser.add_argument("--examples", type=int, default=600_000, help="scenes and edits to draw from")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    return parser.parse_args()


@torch.no_grad()
def _encode(ae: AutoEncoder, items: Tensor, background: Tensor, shifts: Tensor) -> Tensor:
    """Latent tokens of a whole table, bf16 `[n, N, C]`."""
    parts = []
    for rows in torch.arange(len(items), device=items.device).split(4096):
        images = render(items[rows], background[rows], shifts[rows]) * 2 - 1
        with autocast(items.device):
            parts.append(to_latents(ae, images, 2).bfloat16())
    return torch.cat(parts)


def _noised(latents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t = shifted(torch.sigmoid(torch.randn(len(latents), device=latents.device)), SHIFT)
    data = latents.float()
    return data, torch.randn_like(data), t


def _keep(count: int, drop: float, device: torch.device) -> Tensor:
    return torch.rand(count, device=device) >= drop


if __name__ == "__main__":
    main()
