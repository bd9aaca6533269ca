"""Train the starter: recordings, the codec's table, then the speaker. A minute of one CPU core.

    pip install espeakng-loader==0.2.4
    python -m walkgraph.starters.voice.train --out DIR

The same command on the same machine gives the same files.
"""

import argparse
import logging
import math
from itertools import islice
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.models.voice.config import PAUSE, VoiceConfig, voice_json
from walkgraph.models.voice.model import Speaker
from walkgraph.starters import schedule
from walkgraph.starters.voice.codebook import codebook
from walkgraph.starters.voice.config import config
from walkgraph.starters.voice.data import IGNORED, Codes, Rows, rows, texts
from walkgraph.starters.voice.judge import Judge, spectra
from walkgraph.starters.voice.recordings import record
from walkgraph.starters.voice.units import RECORDINGS, UNITS

_log = logging.getLogger(__name__)
_SHORT, _LONG = (8, 128), (2, 512)
"""Texts of a step, and their frames: every fourth step has long ones."""
_WARMUP = 30
_FLIPPED = 0.05
"""Share of frames that are replaced by others where they are read, so that a wrong one is not followed by more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=4e-3)
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    schedule.begin(0)
    # The order of sums depends on the number of threads.
    torch.set_num_threads(1)
    sizes = config()
    recorded = record(sizes.codec)
    named = [(UNITS[one.unit], spectra(one.sound, one.rate)) for one in recorded if UNITS[one.unit] != PAUSE]
    Judge.of(named).save(out / RECORDINGS)
    codec, codes = codebook(sizes.codec, [one.frames for one in recorded])
    save_file(
        {name: table.half().contiguous() for name, table in codec.state_dict().items()}, out / "codec.safetensors"
    )
    table = {(one.unit, one.final): part for one, part in zip(recorded, codes, strict=True)}
    schedule.save(train(sizes, table, options.steps, options.rate), out / "speaker.safetensors")
    (out / "config.json").write_text(voice_json(sizes), "utf-8")


def train(sizes: VoiceConfig, codes: Codes, steps: int, rate: float) -> Speaker:
    model, source = Speaker(sizes), texts(1)
    for parameter in model.parameters():
        if parameter.ndim >= 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    adam, ema = schedule.optimizer(model, rate), schedule.Ema(model, 0.98)
    progress = schedule.Progress("speaker", "loss", "right")
    noise = torch.Generator().manual_seed(2)
    for step in range(steps):
        count, length = _LONG if step % 4 == 3 else _SHORT
        batch = rows(list(islice(source, count)), codes, sizes.codec.codes, length)
        factor = min((step + 1) / _WARMUP, 1.0) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in adam.param_groups:
            group["lr"] = group["base"] * factor
        flipped = torch.rand(batch.token.shape, generator=noise) < _FLIPPED
        other = torch.randint(sizes.vocab, batch.token.shape, generator=noise)
        loss, right = losses(model, batch._replace(token=torch.where(flipped, other, batch.token)))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        ema.update()
        progress.tell(step, torch.stack([loss.detach(), right]))
    ema.swap()
    return model


def losses(model: Speaker, batch: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """Cross-entropy of the frames' tokens, and the share of them that is the likeliest: scalars."""
    texts_, length = batch.token.shape
    flat = Rows(*(part.flatten() for part in batch))
    places = torch.arange(length).repeat(texts_)
    attend = PackedAttend([length], mask=causal_mask(length))
    x = model.embed(flat.token, flat.unit, flat.following, flat.age)
    spoken = flat.wanted != IGNORED
    hidden = model(x, places, attend, spoken)
    wanted = flat.wanted[spoken]
    return F.cross_entropy(hidden, wanted), (hidden.detach().argmax(1) == wanted).float().mean()


if __name__ == "__main__":
    main()
