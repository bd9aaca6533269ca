"""Speech of a batch of texts without the engine: each step attends all frames before it."""

from collections.abc import Sequence

import torch

from walkgraph.layers.attention.dense_attention import KV, PackedAttend
from walkgraph.models.voice.config import PAUSE
from walkgraph.models.voice.model import Speaker


@torch.no_grad()
def spoken(model: Speaker, texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """The units of texts -> the codes of each, always the likeliest frame."""
    config, count = model.config, len(texts)
    pause = config.units.index(PAUSE)
    token = [config.vocab] * count
    place, age = [0] * count, [0] * count
    made: list[list[int]] = [[] for _ in texts]
    past: list[KV] = []
    step = 0
    while any(at < len(units) for at, units in zip(place, texts, strict=True)):
        padded = [[*units, pause, pause][min(at, len(units)) :] for at, units in zip(place, texts, strict=True)]
        columns = torch.tensor([token, [one[0] for one in padded], [one[1] for one in padded], age])
        attend = PackedAttend([1], past=past, keep=True)
        rows = torch.arange(count)
        logits = model(model.embed(*columns), torch.full((count,), step), attend, rows)
        past, step = attend.kept, step + 1
        token = logits.argmax(1).tolist()
        for at, units in enumerate(texts):
            if place[at] >= len(units):
                continue
            made[at].append(token[at] % config.codec.codes)
            last = token[at] >= config.codec.codes or age[at] >= config.ages - 1
            place[at], age[at] = place[at] + last, 0 if last else age[at] + 1
    return made
