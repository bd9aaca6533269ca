"""Measure a trained `shapes` checkpoint on scenes that training never draws, with the rule-based detector.

    python -m walkgraph.starters.shapes.evaluate [FOLDER] [--count 1000] [--json FILE]

`caption`: the exact caption of a drawing. `draw`: everything in the prompt is right, and nothing else is there. `edit`:
the edited item is right, and every other item is unchanged and within 2.5 pixels of its place.
"""

import argparse
import itertools
import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.layers.pictures.patches import normalise, to_picture
from walkgraph.models.bagel.config import read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.weights import load_autoencoder, load_bagel
from walkgraph.starters.shapes import data, language
from walkgraph.starters.shapes.context import Context, Guidance, denoise, to_images, to_latents, write
from walkgraph.starters.shapes.detector import Seen, detect
from walkgraph.starters.shapes.render import offsets, render, rows
from walkgraph.starters.shapes.scenes import Request, draw_scenes, generator

_log = logging.getLogger(__name__)
DRAW = Guidance(text_scale=5.0)
EDIT = Guidance(text_scale=2.0)
"""The best settings measured. For drawing, 4 to 5 are equal within the noise, and 5 keeps relations best; for editing,
more guidance loses some points."""
_SEED = 7
_KEPT_WITHIN = 2.5
"""Pixels that an item may shift and still count as unmoved."""


class Judge:
    """One checkpoint on one device, run in batches."""

    def __init__(self, model: Bagel, ae: AutoEncoder, tokenizer: Tokenizer, batch: int) -> None:
        self.model, self.ae, self.tokenizer, self.batch = model, ae, tokenizer, batch
        self.device = model.vae2llm.weight.device
        self.grid = model.config.latent_grid(64, 64)

    @torch.inference_mode()
    def captions(self, images: Tensor) -> list[str]:
        """uint8 `[n, S, S, 3]` -> the captions that the model writes."""
        out: list[str] = []
        for part in images.split(self.batch):
            context = Context.empty(self.model, len(part)).picture_seen(normalise(part.to(self.device)))
            out += self.tokenizer.decode_batch(write(context, data.CAPTION + 4))
        return out

    @torch.inference_mode()
    def drawings(self, prompts: list[str], how: Guidance) -> Tensor:
        """uint8 `[n, S, S, 3]` drawn from each prompt."""
        parts = []
        for index in range(0, len(prompts), self.batch):
            texts = prompts[index : index + self.batch]
            empty = Context.empty(self.model, len(texts))
            parts.append(self._draw(self._read(empty, texts, data.PROMPT), empty, None, how, index))
        return torch.cat(parts)

    @torch.inference_mode()
    def edits(self, images: Tensor, texts: list[str], how: Guidance) -> Tensor:
        """uint8 `[n, S, S, 3]`: each picture after its edit instruction."""
        parts = []
        for index in range(0, len(texts), self.batch):
            pixels = normalise(images[index : index + self.batch].to(self.device))
            said = texts[index : index + self.batch]
            empty = Context.empty(self.model, len(said))
            latents = to_latents(self.ae, pixels, self.model.config.latent_patch)
            seen = empty.picture_kept(latents, self.grid).picture_seen(pixels)
            full, text_only = self._read(seen, said, data.EDIT), self._read(empty, said, data.EDIT)
            parts.append(self._draw(full, seen, text_only, how, index))
        return torch.cat(parts)

    def _read(self, context: Context, texts: list[str], length: int) -> Context:
        ids = torch.from_numpy(data.encode(self.tokenizer, texts, length)).long().to(self.device)
        return context.text(ids.clamp(min=0), ids >= 0)[0]

    def _draw(self, full: Context, no_text: Context, no_image: Context | None, how: Guidance, first: int) -> Tensor:
        """Example i of the whole set has the noise of seed i, whatever the batch."""
        shape = (self.grid[0] * self.grid[1], self.model.config.latent_channels)
        seeds = range(first, first + len(full.position))
        noise = torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        latents = denoise(noise.to(self.device), full, no_text, no_image, self.grid, how)
        return to_picture(to_images(self.ae, latents, self.grid, self.model.config.latent_patch)).cpu()


def caption_score(judge: Judge, count: int) -> dict[str, Any]:
    scenes = list(itertools.islice(draw_scenes(_SEED, reserved=True), count))
    items, backgrounds = rows(scenes)
    written = judge.captions(_drawn(items, backgrounds, offsets(count, _SEED)))
    pairs = [(text, language.caption(scene)) for text, scene in zip(written, scenes, strict=True)]
    wrong = [{"written": a, "exact": b} for a, b in pairs if a != b]
    return {"right": 1 - len(wrong) / count, "count": count, "wrong": wrong[:8]}


def draw_score(judge: Judge, count: int, how: Guidance = DRAW) -> dict[str, Any]:
    rng = generator(_SEED)
    scenes = itertools.islice(draw_scenes(_SEED + 1, reserved=True), count)
    prompts = [language.prompt(rng, scene) for scene in scenes]
    seen = _seen(judge.drawings([prompt.text for prompt in prompts], how))
    right = [p.request.allows(s.scene) and not s.strange for p, s in zip(prompts, seen, strict=True)]
    wrong = [
        {"prompt": p.text, "drawn": language.caption(s.scene), "strange": s.strange}
        for p, s, ok in zip(prompts, seen, right, strict=True)
        if not ok
    ]
    kinds = _by_kind([_kind(prompt.request) for prompt in prompts], right)
    return {"right": sum(right) / count, "count": count, "kinds": kinds, "how": asdict(how), "wrong": wrong[:8]}


def edit_score(judge: Judge, count: int, how: Guidance = EDIT) -> dict[str, Any]:
    edits = list(itertools.islice(data.edit_stream(_SEED, reserved=True), count))
    items, backgrounds = rows([edit.before for edit in edits])
    shifts = offsets(count, _SEED)
    before = _drawn(items, backgrounds, shifts)
    seen = _seen(judge.edits(before, [edit.text for edit in edits], how))
    middles = [s.middles for s in _seen(before)]
    right = [_edited(e, s, m) for e, s, m in zip(edits, seen, middles, strict=True)]
    kinds = _by_kind([edit.kind for edit in edits], right)
    wrong = [
        {"before": language.caption(e.before), "text": e.text, "drawn": language.caption(s.scene), "strange": s.strange}
        for e, s, ok in zip(edits, seen, right, strict=True)
        if not ok
    ]
    return {"right": sum(right) / count, "count": count, "kinds": kinds, "how": asdict(how), "wrong": wrong[:8]}


def _by_kind(kinds: list[str], right: list[bool]) -> dict[str, float]:
    """The share of right answers by kind."""
    by_kind = {kind: [ok for k, ok in zip(kinds, right, strict=True) if k == kind] for kind in sorted(set(kinds))}
    return {kind: round(sum(oks) / len(oks), 4) for kind, oks in by_kind.items()}


def _kind(request: Request) -> str:
    """Kind of a prompt: complete, with a relation of its items, or open."""
    if request.relation is not None:
        return "relation"
    said = request.background is not None and not any(None in wanted for wanted in request.items)
    return "complete" if said else f"open, {len(request.items)} items"


def _edited(edit: language.Edit, seen: Seen, middles: tuple[tuple[float, float], ...]) -> bool:
    if seen.strange or not edit.wanted.allows(seen.scene):
        return False
    stays = [(new, old) for new, old in zip(seen.middles, edit.moved, strict=True) if old is not None]
    return all(np.hypot(x - middles[old][0], y - middles[old][1]) <= _KEPT_WITHIN for (x, y), old in stays)


def _drawn(items: Tensor, backgrounds: Tensor, shifts: Tensor) -> Tensor:
    return render(items, backgrounds, shifts).mul(255).round().byte().movedim(1, -1)


def _seen(pictures: Tensor) -> list[Seen]:
    return [detect(picture) for picture in pictures.numpy()]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description="Measure a `shapes` checkpoint.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    parser.add_argument("--count", type=int, default=1000, help="held-out examples of each task")
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    judge = load(options.folder, options.batch)
    scores: dict[str, Any] = {}
    tasks: list[tuple[str, Callable[[Judge, int], dict[str, Any]]]] = [
        ("caption", caption_score),
        ("draw", draw_score),
        ("edit", edit_score),
    ]
    for name, score in tasks:
        start = time.monotonic()
        scores[name] = score(judge, options.count) | {"seconds": round(time.monotonic() - start, 1)}
        _log.info("%s: %.1f %% of %d", name, 100 * scores[name]["right"], options.count)
    if options.json:
        options.json.write_text(json.dumps(scores, indent=2) + "\n", "utf-8")


def load(folder: Path, batch: int = 250) -> Judge:
    """Load a checkpoint in float32, on the GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = read_bagel(folder)
    model = load_bagel(folder, config, device=device)
    ae = load_autoencoder(folder, config, device=device)
    return Judge(model, ae, Tokenizer.from_file(str(folder / "tokenizer.json")), batch)


if __name__ == "__main__":
    main()
