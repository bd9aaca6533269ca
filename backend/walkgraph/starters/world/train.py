"""Train the `world` starter from scratch: encoder and painter, then the predictor on the frozen encoder.

    python -m walkgraph.starters.world.train --out DIR [--seconds 390]

Under seven minutes on one large GPU; slowly on a CPU. `DIR` then holds config.json, encoder.safetensors,
predictor.safetensors, painter.json and painter.safetensors (all bf16): a weights folder.

Shape letters: B episodes, T actions, n patches, d width.
"""

import argparse
import dataclasses
import json
import logging
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from walkgraph.models.vjepa2.config import vjepa2_json
from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Block, Vjepa2Encoder, Vjepa2Predictor, normed
from walkgraph.models.world.painter import Painter
from walkgraph.models.world.picture import picture
from walkgraph.models.world.scene import Scene
from walkgraph.starters import schedule
from walkgraph.starters.schedule import Clock, Ema, Progress, autocast, optimizer
from walkgraph.starters.world import data
from walkgraph.starters.world.config import MODEL, PAINTER
from walkgraph.starters.world.train_encoder import fixed_reading, painting_error, train_encoder

_log = logging.getLogger(__name__)
_ENCODER_SHARE = 0.26
_DRAWN = 6
_PAINTED = 256
"""Pictures for training the painter further, per step of the predictor."""


class PredictorLoss(nn.Module):
    def __init__(self, predictor: Vjepa2Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, frames: Tensor, actions: Tensor, poses: Tensor, deep: int) -> tuple[Tensor, Tensor]:
        """frames `[B, T + 1, n, d]`, actions and poses `[B, T, 7]` -> the loss, and its two parts.

        The first part predicts from true frames. The second predicts again with what was predicted in their places,
        `deep` times: frame t is then what a rollout from the first frame has there for all t <= `deep`, and nearly so
        for the others, at the cost of parallel passes. What moves counts more: most tokens stay as they are.
        """
        wanted = frames[:, 1:]
        weight = _weights(frames)
        given = self._next(frames[:, :-1], actions, poses)
        one = (weight * (given - wanted).abs()).mean()
        before = given
        for _ in range(deep - 1):
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                before = self._next(torch.cat([frames[:, :1], before[:, :-1]], 1), actions, poses)
        given = self._next(torch.cat([frames[:, :1], before[:, :-1]], 1), actions, poses)
        more = (weight * (given - wanted).abs()).mean()
        return one + more, torch.stack([one, more]).detach()

    def _next(self, frames: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        return normed(self.predictor(frames, actions, poses).float())


def _weights(frames: Tensor) -> Tensor:
    """Weights of tokens: frames `[B, T + 1, n, d]` -> `[B, T, n, 1]`, about 1 on average."""
    moved = (frames[:, 1:] - frames[:, :-1]).abs().mean(-1, keepdim=True)
    return 0.5 + 0.5 * (moved / moved.mean()).clamp(max=8)


class Stage(NamedTuple):
    """A stage of the predictor's training."""

    until: float
    """Share of the training time at which it ends."""
    episodes: int
    """Episodes per step."""
    length: int
    """Actions of an episode."""
    deep: int


def train_predictor(model: Vjepa2, painter: Painter, seconds: float, options: argparse.Namespace) -> None:
    """Train the predictor, and the painter further, in place; they end as their moving averages."""
    device = next(model.parameters()).device
    stages = _stages(options)
    total = PredictorLoss(model.predictor)
    adam, ema = optimizer(total, options.rate), Ema(total, 0.999)
    brush, brushes = optimizer(painter, options.rate / 3), Ema(painter, 0.995)
    clock, again = Clock(seconds, options.warmup), Clock(seconds, options.warmup)
    progress = Progress("predictor", "one", "more")
    while clock.running():
        spent = (time.monotonic() - clock.start) / seconds
        stage = next((stage for stage in stages if spent < stage.until), stages[-1])
        # Drawn for several steps at once, as it takes many small launches.
        scene, actions, poses = data.episodes(_DRAWN * stage.episodes, stage.length, device)
        images, frames = viewed(model.encoder, scene)
        for some in torch.arange(len(actions), device=device).split(stage.episodes):
            with autocast(device):
                loss, parts = total(frames[some], actions[some], poses[some], stage.deep)
            clock.update(adam, total, loss)
            ema.update()
            progress.tell(clock.step, parts)
        some = torch.randint(images[:, :, 0, 0, 0].numel(), (_PAINTED,), device=device)
        with autocast(device):
            painted = painting_error(painter(frames.flatten(0, 1)[some]), images.flatten(0, 1)[some])
        again.update(brush, painter, painted)
        brushes.update()
    ema.swap()
    brushes.swap()
    _log.info("predictor: %d steps", clock.step)


def _stages(options: argparse.Namespace) -> tuple[Stage, ...]:
    """Short episodes, then rollouts, then long ones."""
    few, length = options.episodes, options.length
    return (
        Stage(0.4, few, length, 1),
        Stage(0.6, few, length, 3),
        Stage(1.0, max(1, few * 5 // 8), 2 * length, 4),
    )


@torch.no_grad()
def viewed(encoder: Vjepa2Encoder, scene: Scene) -> tuple[Tensor, Tensor]:
    """Scenes `[B, T + 1]` -> their pictures `[B, T + 1, 3, h, w]` and features `[B, T + 1, n, d]`."""
    images = picture(scene)
    # Compiled for gradients only: compiling the blocks once more would take seconds of the training.
    with autocast(images.device), torch.compiler.set_stance("force_eager"):
        features = normed(encoder(images.flatten(0, 1)).float())
    return images, features.unflatten(0, images.shape[:2])


def fresh() -> tuple[Vjepa2, Painter]:
    """New models. The predictor starts by predicting no change, so it learns only the changes."""
    model, painter = Vjepa2(MODEL), Painter(PAINTER)
    fixed_reading(painter)
    predictor = model.predictor
    for layer in (predictor.predictor_embed, predictor.predictor_proj):
        nn.init.eye_(layer.weight)
    # Places and shifts are small numbers, and shifts a tenth of places.
    nn.init.normal_(predictor.state_encoder.weight, std=0.5)
    nn.init.normal_(predictor.action_encoder.weight, std=3.0)
    nn.init.zeros_(predictor.extrinsics_encoder.weight)
    return model, painter


def save(model: Vjepa2, painter: Painter, out: Path) -> None:
    """Save a weights folder of two families, all tensors in bf16."""
    out.mkdir(parents=True, exist_ok=True)
    for name, module in (("encoder", model.encoder), ("predictor", model.predictor), ("painter", painter)):
        schedule.save(module, out / f"{name}.safetensors")
    (out / "config.json").write_text(vjepa2_json(MODEL))
    (out / "painter.json").write_text(json.dumps(dataclasses.asdict(PAINTER), indent=2) + "\n")


def main() -> None:
    options = _options()
    device = schedule.begin(options.seed)
    started = time.monotonic()
    model, painter = fresh()
    model, painter = model.to(device), painter.to(device)
    if device.type == "cuda" and not options.eager:
        for part in model.modules():
            if isinstance(part, Vjepa2Block):
                part.compile(dynamic=False)
    first = options.seconds * _ENCODER_SHARE
    train_encoder(model, painter, first, options.batch, options.rate, options.warmup)
    model.encoder.requires_grad_(False)
    save(model, painter, options.out)
    left = options.seconds - (time.monotonic() - started)
    train_predictor(model, painter, left, options)
    save(model, painter, options.out)
    _log.info("done, %.0f s", time.monotonic() - started)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the `world` starter.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=390)
    parser.add_argument("--batch", type=int, default=1024, help="pictures in a step of the encoder")
    parser.add_argument("--episodes", type=int, default=64, help="episodes in a step of the predictor")
    parser.add_argument("--length", type=int, default=8, help="actions of an episode; twice as many at last")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--warmup", type=int, default=200, help="first steps, with a lower rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
