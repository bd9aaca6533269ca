"""Measure a trained `world` folder in newly drawn scenes: the accuracy of its imagination, and its planning.

    python -m walkgraph.starters.world.evaluate [FOLDER] [--count 512] [--json FILE] [--strips FILE.png]

`latent`: mean absolute error of the features over a rollout of 8, and its share of that of saying that nothing changes.
`place`: how far the shape is from where it should be, in pixels, as a fixed linear map reads it from the features.
`plan`: the share of goal pictures that are reached, acting on the first action of a new plan in every step.
"""

import argparse
import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from walkgraph.architectures.weights import load
from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Encoder, Vjepa2Predictor
from walkgraph.models.world.painter import Painter
from walkgraph.models.world.picture import picture
from walkgraph.models.world.scene import NEAR, SIDE, apart, at_goal, drawn, moved
from walkgraph.starters.schedule import autocast
from walkgraph.starters.world import data
from walkgraph.starters.world.config import MODEL, PAINTER
from walkgraph.starters.world.imagine import Search, imagined, planned, seen

_log = logging.getLogger(__name__)
HORIZON = 8
MOVES = 16
"""The most steps for which a plan is followed."""
SEARCHES = (
    Search(),
    Search(rounds=2),
    Search(samples=48, top=6, rounds=2),
    Search(samples=64, top=8),
    Search(samples=64, top=8, horizon=2, rounds=4),
)
"""The first one is the graph's default."""


def read(folder: Path) -> tuple[Vjepa2, Painter]:
    """The weights in float32, on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Vjepa2(MODEL).to(device)
    model.encoder = load(lambda: Vjepa2Encoder(MODEL), folder, "encoder", device=device)
    model.predictor = load(lambda: Vjepa2Predictor(MODEL), folder, "predictor", device=device)
    return model, load(lambda: Painter(PAINTER), folder, "painter", device=device)


@torch.inference_mode()
def foresight(model: Vjepa2, painter: Painter, count: int, length: int, seed: int) -> dict[str, Any]:
    """Errors of rollouts under random drives, by frame number."""
    device = next(model.parameters()).device
    torch.manual_seed(seed)
    scene, actions, poses = data.episodes(count, length, device)
    with autocast(device):
        true = seen(model, picture(scene))
        dreamt = imagined(model.predictor, true[:, 0], actions, poses[:, 0])
    error = (dreamt - true[:, 1:]).abs().mean((0, 2, 3))
    still = (true[:, :1] - true[:, 1:]).abs().mean((0, 2, 3))
    said, sight = painter.reading(dreamt), painter.reading(true[:, 1:])
    place, arrow = scene.place[:, 1:], scene.arrow()[:, 1:]
    off = (said.place - place).norm(dim=-1) * SIDE
    return {
        "latent": {
            "share_of_copy_last": float(error[:HORIZON].mean() / still[:HORIZON].mean()),
            "by_frame": _rounded(error / still, 4),
        },
        "place": {
            "pixels_at_8": float(off[:, HORIZON - 1].mean()),
            "pixels_at_8_of_nine_in_ten": float(off[:, HORIZON - 1].quantile(0.9)),
            "by_frame": _rounded(off.mean(0), 3),
            "seen": float((sight.place - place).norm(dim=-1).mean() * SIDE),
            "moved_by_frame": _rounded((place - scene.place[:, :1]).norm(dim=-1).mean(0) * SIDE, 2),
        },
        "arrow": {"by_frame": _rounded((said.arrow - arrow).norm(dim=-1).mean(0) * SIDE, 3)},
        "grip": {"by_frame": _rounded((said.grip - scene.grip[:, 1:]).abs().mean(0), 4)},
        "count": count,
    }


@torch.inference_mode()
def planning(model: Vjepa2, count: int, how: Search, seed: int) -> dict[str, Any]:
    """Closed-loop planning in scenes of the seeds from `seed` on, replanning in every step."""
    device = next(model.parameters()).device
    torch.manual_seed(seed)
    scene = drawn(list(range(seed, seed + count)), device)
    placed, both = torch.zeros(count, device=device), torch.zeros(count, device=device)
    steps = torch.full((count,), float(MOVES), device=device)
    with autocast(device):
        goal = seen(model, picture(at_goal(scene)))
        for step in range(MOVES):
            seeds = torch.arange(count, device=device) * MOVES + step
            action = planned(model.predictor, seen(model, picture(scene)), goal, scene.pose(), how, seeds)
            scene = moved(scene, action.float())
            off, alike = apart(scene)
            placed, both = placed.maximum((off <= NEAR).float()), both.maximum(alike.float())
            steps = torch.where(alike, steps.clamp(max=step + 1), steps)
            if bool(both.all()):
                break
    return {
        "reached": float(both.mean()),
        "place_reached": float(placed.mean()),
        "steps": float(steps[both > 0].mean()) if bool(both.any()) else None,
        "count": count,
        "how": dataclasses.asdict(how),
    }


@torch.inference_mode()
def strips(model: Vjepa2, painter: Painter, seed: int, rows: int = 8, length: int = 16) -> Image.Image:
    """Truth above imagination, one row of frames per scene."""
    device = next(model.parameters()).device
    torch.manual_seed(seed)
    scene, actions, poses = data.episodes(rows, length, device)
    true = picture(scene)
    with autocast(device):
        first = seen(model, true[:, 0])
        frames = torch.cat([first[:, None], imagined(model.predictor, first, actions, poses[:, 0])], 1)
        painted = painter(frames.flatten(0, 1)).unflatten(0, (rows, length + 1)).float()
    both = torch.stack([true, painted], 1)
    levels = ((both.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 1, 4, 2, 5, 3)
    return Image.fromarray(levels.reshape(rows * 2 * SIDE, (length + 1) * SIDE, 3).cpu().numpy())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Measure a trained `world`.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--count", type=int, default=512)
    parser.add_argument("--goals", type=int, default=128)
    parser.add_argument("--searches", type=int, default=len(SEARCHES), help="how many of the ways to plan are measured")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--strips", type=Path)
    options = parser.parse_args()
    model, painter = read(options.folder)
    figures = foresight(model, painter, options.count, 24, seed=1_000_000)
    _log.info("%s", json.dumps(figures))
    if options.strips:
        strips(model, painter, 1_000_000).save(options.strips)
    figures["plan"] = []
    for how in SEARCHES[: options.searches]:
        figures["plan"].append(planning(model, options.goals, how, seed=1_000_000))
        _log.info("%s", json.dumps(figures["plan"][-1]))
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2) + "\n")


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]


if __name__ == "__main__":
    main()
