"""Trains the `world` starter from nothing: encoder and painter, then the predictor on the encoder as it is.

    python -m walkgraph.starters.world.train --out DIR [--seconds 230]

About four minutes on one large GPU; slowly on a CPU. `DIR` then holds config.json, encoder.safetensors,
predictor.safetensors, painter.json and painter.safetensors (all bf16): a weights folder.

Shape letters: B episodes, T actions, n patches, d width.
"""

import argparse
import dataclasses
import json
import logging
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from walkgraph.networks.vjepa2 import Vjepa2, Vjepa2Block, normed
from walkgraph.networks.world_painter import Painter
from walkgraph.networks.world_picture import picture
from walkgraph.networks.world_scene import Scene
from walkgraph.starters.shapes.schedule import Clock, Ema, autocast, optimizer
from walkgraph.starters.world import data
from walkgraph.starters.world.config import MODEL, PAINTER
from walkgraph.starters.world.imagine import seen
from walkgraph.starters.world.train_encoder import Progress, fixed_reading, painting_error, train_encoder

_log = logging.getLogger(__name__)
_ENCODER_SHARE = 0.36
_PAINTED = 256
"""Pictures that the painter goes on with in a step of the predictor."""


class PredictorLoss(nn.Module):
    def __init__(self, model: Vjepa2) -> None:
        super().__init__()
        self.predictor = model.predictor

    def forward(self, frames: Tensor, actions: Tensor, poses: Tensor, deep: int) -> tuple[Tensor, Tensor]:
        """frames `[B, T + 1, n, d]`, actions and poses `[B, T, 7]` -> the loss, and its two parts.

        The first part predicts from true frames. The second predicts again with what was predicted in their places,
        `deep` times: frame t is then what a rollout from the first frame has there for all t <= `deep`, and nearly so
        for the others, at the cost of parallel passes."""
        wanted = frames[:, 1:]
        given = self._next(frames[:, :-1], actions, poses)
        one = (given - wanted).abs().mean()
        before = given
        for _ in range(deep - 1):
            with torch.no_grad(), torch.compiler.set_stance("force_eager"):
                before = self._next(torch.cat([frames[:, :1], before[:, :-1]], 1), actions, poses)
        given = self._next(torch.cat([frames[:, :1], before[:, :-1]], 1), actions, poses)
        more = (given - wanted).abs().mean()
        return one + more, torch.stack([one, more]).detach()

    def _next(self, frames: Tensor, actions: Tensor, poses: Tensor) -> Tensor:
        return normed(self.predictor(frames, actions, poses).float())


def train_predictor(model: Vjepa2, painter: Painter, seconds: float, options: argparse.Namespace) -> None:
    """Trains the predictor, and the painter further, in place; they are left as their moving average."""
    device = next(model.parameters()).device
    batch, length, rate = options.episodes, options.length, options.rate
    total = PredictorLoss(model)
    adam, ema = optimizer(total, rate), Ema(total, 0.999)
    brush, brushes = optimizer(painter, rate / 2), Ema(painter, 0.999)
    clock, again = Clock(seconds, options.warmup), Clock(seconds, options.warmup)
    progress = Progress("predictor", "one", "more", "painted")
    while clock.running():
        scene, actions, poses = data.episodes(batch, length, device)
        images, frames = viewed(model, scene)
        deep = 1 if time.monotonic() - clock.start < 0.5 * seconds else 3
        with autocast(device):
            loss, parts = total(frames, actions, poses, deep)
        clock.update(adam, total, loss)
        ema.update()
        some = torch.randint(batch, (_PAINTED,), device=device), torch.randint(length + 1, (_PAINTED,), device=device)
        with autocast(device):
            painted = painting_error(painter(frames[some]), images[some])
        again.update(brush, painter, painted)
        brushes.update()
        progress.tell(clock.step, torch.cat([parts, painted.detach()[None]]))
    ema.swap()
    brushes.swap()
    _log.info("predictor: %d steps", clock.step)


@torch.no_grad()
def viewed(model: Vjepa2, scene: Scene) -> tuple[Tensor, Tensor]:
    """Scenes `[B, T + 1]` -> their pictures `[B, T + 1, 3, h, w]` and features `[B, T + 1, n, d]`."""
    images = picture(scene)
    # Compiled for gradients alone: another form of the blocks would take seconds of the training to make.
    with autocast(images.device), torch.compiler.set_stance("force_eager"):
        return images, seen(model, images)


def fresh() -> tuple[Vjepa2, Painter]:
    model, painter = Vjepa2(MODEL), Painter(PAINTER)
    fixed_reading(painter)
    for layer in (model.predictor.action_encoder, model.predictor.state_encoder):
        # Places and shifts are small numbers, the shifts a tenth of the places.
        nn.init.normal_(layer.weight, std=0.5)
    nn.init.normal_(model.predictor.action_encoder.weight, std=2.0)
    nn.init.zeros_(model.predictor.extrinsics_encoder.weight)
    return model, painter


def save(model: Vjepa2, painter: Painter, out: Path) -> None:
    """A weights folder of two families, all tensors in bf16."""
    out.mkdir(parents=True, exist_ok=True)
    for name, module in (("encoder", model.encoder), ("predictor", model.predictor), ("painter", painter)):
        tensors = module.state_dict().items()
        path = out / f"{name}.safetensors"
        save_file({key: tensor.detach().to("cpu", torch.bfloat16).contiguous() for key, tensor in tensors}, path)
    (out / "config.json").write_text(
        json.dumps({"format": "walkgraph/vjepa2@1", **dataclasses.asdict(MODEL)}, indent=2)
    )
    (out / "painter.json").write_text(json.dumps(dataclasses.asdict(PAINTER), indent=2))


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    options = _options()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
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
    parser.add_argument("--seconds", type=float, default=230)
    parser.add_argument("--batch", type=int, default=1024, help="pictures in a step of the encoder")
    parser.add_argument("--episodes", type=int, default=128, help="episodes in a step of the predictor")
    parser.add_argument("--length", type=int, default=12, help="actions of an episode")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--warmup", type=int, default=200, help="first steps, with a lower rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="do not compile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
