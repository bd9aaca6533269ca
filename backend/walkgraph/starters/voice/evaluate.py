"""Measure the starter: a judge that is told nothing recognises the words of new texts.

python -m walkgraph.starters.voice.evaluate [DIR] [--json figures.json]
"""

import argparse
import json
import logging
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from walkgraph.architectures.weights import load as load_weights
from walkgraph.models.voice.codec import Codec, Past
from walkgraph.models.voice.config import read_voice
from walkgraph.models.voice.model import Speaker
from walkgraph.starters import schedule
from walkgraph.starters.shapes.language import caption
from walkgraph.starters.shapes.scenes import draw_scenes
from walkgraph.starters.shapes.tokens import WORDS
from walkgraph.starters.voice.data import ids_of
from walkgraph.starters.voice.judge import Judge, errors
from walkgraph.starters.voice.plain import spoken
from walkgraph.starters.voice.units import RECORDED, RECORDINGS

FOLDER = Path(__file__).parent
_log = logging.getLogger(__name__)
_BATCH = 20
_SEED = 77


def load(folder: Path) -> tuple[Speaker, Codec]:
    config = read_voice(folder)
    return (
        load_weights(lambda: Speaker(config), folder, "speaker"),
        load_weights(lambda: Codec(config.codec), folder, "codec"),
    )


def judge(folder: Path) -> Judge:
    return Judge.load(folder / RECORDINGS, RECORDED)


def descriptions() -> Iterator[str]:
    """Descriptions of scenes that training never had."""
    return (caption(scene) for scene in draw_scenes(_SEED, reserved=True))


def word_lists() -> Iterator[str]:
    """Words in any order, five to twelve."""
    rng = random.Random(_SEED)  # noqa: S311 (texts, not secrets)
    while True:
        yield " ".join(rng.choice(WORDS) for _ in range(rng.randint(5, 12)))


def sounds(model: Speaker, codec: Codec, texts: Sequence[str]) -> list[NDArray[np.float32]]:
    made: list[NDArray[np.float32]] = []
    for at in range(0, len(texts), _BATCH):
        for codes in spoken(model, [ids_of(text) for text in texts[at : at + _BATCH]]):
            made.append(codec.decode(torch.tensor(codes), Past.fresh())[0].numpy())
    return made


def shuffled(sound: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """The tenths of a second of a sound in another order."""
    piece = rate // 10
    whole = sound[: len(sound) // piece * piece].reshape(-1, piece)
    return np.random.default_rng(_SEED).permutation(whole).ravel()


def score(hears: Judge, texts: Sequence[str], made: Sequence[NDArray[np.float32]], rate: int) -> dict[str, Any]:
    """The share of words that are recognised: one less each for a word that is missed, put in, or taken for another."""
    words = sum(len(text.split()) for text in texts)
    wrong = sum(errors(text.split(), hears.hears(sound, rate)) for text, sound in zip(texts, made, strict=True))
    return {"texts": len(texts), "words": words, "recognised": round(1 - wrong / words, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    schedule.begin(0)
    torch.set_num_threads(1)
    model, codec = load(options.folder)
    hears, rate = judge(options.folder), codec.sizes.rate
    texts = list(islice(descriptions(), options.count))
    made = sounds(model, codec, texts)
    seconds = sum(map(len, made)) / rate
    broken = [shuffled(sound, rate) for sound in made]
    lists = list(islice(word_lists(), options.count))
    figures = {
        "descriptions": {**score(hears, texts, made, rate), "seconds": round(seconds, 1)},
        "any_order": score(hears, lists, sounds(model, codec, lists), rate),
        "shuffled": score(hears, texts, broken, rate),
    }
    _log.info("%s", json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
