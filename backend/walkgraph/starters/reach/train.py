"""Train the starter from scratch: `model.safetensors`, `config.json`, `norm_stats.json` and `tokenizer.json`.

    python -m walkgraph.starters.reach.train --out DIR [--seconds 215]

Every example is drawn on demand on the training device. Besides the flow, an auxiliary head, which is not saved, learns
the target's place from the prefix's last state at the colour's word: without it the policy takes very long to find the
target.
"""

import argparse
import logging
import math
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from walkgraph.checkpoints.statistics import statistics_json
from walkgraph.models.pi05.config import pi05_json
from walkgraph.models.pi05.model import Pi05, Prefix
from walkgraph.models.reach import scene as world
from walkgraph.starters import schedule
from walkgraph.starters.reach import evaluate
from walkgraph.starters.reach.config import config
from walkgraph.starters.reach.data import Examples, Prompts, examples
from walkgraph.starters.reach.policy import Policy
from walkgraph.starters.reach.tokens import FILE, LEVELS
from walkgraph.starters.schedule import Clock, Ema, Progress, optimizer

_log = logging.getLogger(__name__)
_AUX = 0.5
"""Weight of the auxiliary head's loss."""
_PLACES = 0.3
"""Initial standard deviation of the patches' positions."""


class Trained(nn.Module):
    """The policy and the head. A prefix is read once for `noises` draws of noise and time."""

    def __init__(self, model: Pi05, noises: int) -> None:
        super().__init__()
        self.model, self.noises = model, noises
        self.head = nn.Linear(model.config.prefix.width, 2)

    def forward(self, given: Examples) -> tuple[Tensor, Tensor]:
        """The losses of the flow and of the head."""
        model, rows = self.model, torch.arange(len(given.ids), device=given.ids.device)
        x, valid = model.laid([given.pixels], given.ids, given.lengths)
        prefix = model.read(x, valid, states=True)
        named = prefix.states[rows, model.config.patches + given.named_at]
        aux = F.mse_loss(self.head(named.float()), given.place)
        actions = given.actions.repeat(self.noises, 1, 1)
        noise = torch.randn_like(actions)
        # Beta(1.5, 1): more of the noisy times, like the published model.
        t = torch.rand(len(actions), device=actions.device) ** (1 / 1.5) * 0.999 + 0.001
        noised = t[:, None, None] * noise + (1 - t[:, None, None]) * actions
        velocity = model.denoise(noised, model.modulations(t), _repeated(prefix, self.noises))
        return F.mse_loss(velocity, noise - actions), aux


def _repeated(prefix: Prefix, times: int) -> Prefix:
    kv = [(k.repeat(times, 1, 1, 1), v.repeat(times, 1, 1, 1)) for k, v in prefix.kv]
    return Prefix(kv, None if prefix.valid is None else prefix.valid.repeat(times, 1))


@torch.no_grad()
def fresh(tokenizer: Tokenizer) -> Pi05:
    """A model with zero initial velocity, where nearby numbers of a state have similar embeddings."""
    model = Pi05(config())
    nn.init.zeros_(model.action_out_proj.weight)
    nn.init.normal_(model.vision.embeddings.position_embedding.weight, std=_PLACES)
    table = model.language.embed_tokens.weight
    width = table.shape[1]
    waves = torch.arange(LEVELS)[:, None] / LEVELS * math.pi * torch.arange(1, width // 2 + 1) / 2
    spread = torch.arange(1, width // 2 + 1) ** -0.5
    smooth = torch.cat([waves.sin() * spread, waves.cos() * spread], 1)
    rows = [tokenizer.encode(f" {number}", add_special_tokens=False).ids[0] for number in range(LEVELS)]
    table[rows] = smooth / smooth.std() * width**-0.5
    return model


def train(trained: Trained, prompts: Prompts, seconds: float, batch: int, rate: float, seed: int) -> Pi05:
    """Train, and return the averaged model."""
    device = next(trained.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    adam, ema = optimizer(trained, rate), Ema(trained, 0.999)
    clock, progress = Clock(seconds, warmup=200), Progress("policy", "flow", "place")
    while clock.running():
        flow, aux = trained(examples(batch, prompts, generator))
        clock.update(adam, trained, flow + _AUX * aux)
        ema.update()
        progress.tell(clock.step, torch.stack([flow, aux]).detach())
    _log.info("trained %d steps", clock.step)
    ema.swap()
    return trained.model.eval()


def save(model: Pi05, folder: Path) -> None:
    """Save all tensors in bf16, with the files that are read beside them."""
    schedule.save(model, folder / "model.safetensors")
    (folder / "config.json").write_text(pi05_json(model.config))
    state = list(zip(world.LOW, world.HIGH, strict=True))
    actions = [(-world.SPEED, world.SPEED)] * len(state)
    (folder / "norm_stats.json").write_text(statistics_json(state, actions))
    if folder != FILE.parent:
        shutil.copy(FILE, folder)


def main() -> None:
    options = _options()
    device = schedule.begin(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(FILE))
    trained = Trained(fresh(tokenizer), options.noises).to(device)
    model = train(trained, Prompts(tokenizer, device), options.seconds, options.batch, options.rate, options.seed)
    save(model, options.out)
    _log.info("%s", evaluate.score(Policy(model, tokenizer), 128, apply=2)[0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the `reach` starter.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=215, help="training time")
    parser.add_argument("--batch", type=int, default=1024 if torch.cuda.is_available() else 64)
    parser.add_argument("--noises", type=int, default=4, help="draws of noise for each example")
    parser.add_argument("--rate", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
