"""Measures a trained `reach` policy in fresh episodes, in a closed loop with the arm.

    python -m walkgraph.starters.reach.evaluate [FOLDER] [--count 256] [--json FILE] [--strips FILE]

Scenes and wordings come from seeds that training never draws. `success`: the tip reaches the named target within 48
actions. `wrong`: another target is nearer at the end.
"""

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from walkgraph.layers.pictures.patches import to_picture
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.pictures import picture
from walkgraph.models.reach.words import FORMS
from walkgraph.starters.reach.policy import STEPS, Episodes, Policy, load

_log = logging.getLogger(__name__)
FIRST = 1_000_000
"""Seed of the first episode."""
MOST = 48
"""The most actions of an episode."""
WAYS = ((2, STEPS), (4, STEPS), (8, STEPS), (2, 4), (2, 2))
"""(actions taken from a chunk, its flow steps). The first pair is the graph's default."""
_FRAMES, _SIDE = 12, 96


def scenes(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Scenes `[count, WIDTH]` and forms `[count]` of their instructions; episode i has seed `FIRST` + i."""
    states = torch.stack([world.scene(FIRST + index) for index in range(count)])
    forms = torch.arange(count) * 7 % len(FORMS)
    return states.to(device), forms.to(device)


def score(policy: Policy, count: int, apply: int, steps: int = STEPS) -> tuple[dict[str, Any], Episodes]:
    start, chunks = time.monotonic(), -(-MOST // apply)
    ran = policy.drive(*scenes(count, policy.device), seed=FIRST, apply=apply, chunks=chunks, steps=steps)
    reached = ran.reached
    return {
        "success": round(reached.float().mean().item(), 4),
        "wrong": round(ran.wrong.float().mean().item(), 4),
        "actions": round(ran.taken[reached].float().mean().item(), 2) if bool(reached.any()) else None,
        "count": count,
        "apply": apply,
        "steps": steps,
        "seconds": round(time.monotonic() - start, 1),
    }, ran


def strips(ran: Episodes, rows: int = 10) -> Image.Image:
    """The first episodes, one per row, as frames from left to right."""
    chosen = torch.linspace(0, len(ran.film) - 1, min(_FRAMES, len(ran.film))).round().long().tolist()
    frames = [picture(ran.film[index][:rows], _SIDE) for index in chosen]
    return Image.fromarray(to_picture(torch.cat([*torch.cat(frames, 3)], 1)).cpu().numpy())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Measure a `reach` policy.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--count", type=int, default=256, help="episodes")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--strips", type=Path, help="also write films of the first episodes here, as one PNG")
    options = parser.parse_args()
    policy = load(options.folder, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    scores: list[dict[str, Any]] = []
    for apply, steps in WAYS:
        figures, ran = score(policy, options.count, apply, steps)
        scores.append(figures)
        _log.info("%s", figures)
        if options.strips and (apply, steps) == WAYS[0]:
            strips(ran).save(options.strips)
    if options.json:
        options.json.write_text(json.dumps({"episodes": scores}, indent=2) + "\n")


if __name__ == "__main__":
    main()
