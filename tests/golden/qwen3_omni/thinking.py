"""A tiny thinker in the public layout, and the conversations from which the stored answers were made.

`make_thinking.py` gives them to `transformers`, the parity tests to ours. Everything follows from names and seeds, so
that only answers are stored. Rows of media are drawn: encoders have parity tests of their own.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.golden.qwen3_omni.speaking import CONFIG
from walkgraph.checkpoints.fields import Fields
from walkgraph.models.qwen3_omni.thinker.config import TINY, ThinkerConfig

SEED = 20261128
ANSWERS = Path(__file__).parent / "thinking.npz"
STEPS = 12
"""Tokens that are generated, and as many that are given."""
WIDTH, DEEPSTACK = TINY.llm.width, TINY.deepstack


def config() -> ThinkerConfig:
    return ThinkerConfig.published(Fields(CONFIG))


@dataclass(frozen=True)
class Media:
    """One picture, video, sound, or video with its sound."""

    grid: tuple[int, int, int] | None = None
    """Frames, rows and columns of a picture or a video."""
    seconds: float | None = None
    """The seconds of one step of a video's grid."""
    mel: int = 0
    """Frames of a sound, before the encoder."""


Talk = Sequence[str | Media]
"""Texts, whose marks are written `<|im_start|>`, and media between them."""
_BEGIN, _ANSWER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
TALKS: Mapping[str, Talk] = {
    "text": ("<|im_start|>system\nBe short.<|im_end|>\n", _BEGIN, "What is a walk?", _ANSWER),
    "picture": (_BEGIN, Media(grid=(1, 3, 5)), "What is this?", _ANSWER),
    "sound": ("<|im_start|>system\nHear.<|im_end|>\n", _BEGIN, "Listen:", Media(mel=250), _ANSWER),
    "picture and sound": (_BEGIN, "Look ", Media(grid=(1, 4, 2)), " and hear ", Media(mel=90), "!", _ANSWER),
    "video": (_BEGIN, Media(grid=(3, 2, 3), seconds=1.0), "What happens?", _ANSWER),
    "film": (_BEGIN, Media(grid=(2, 2, 3), seconds=1.0, mel=230), "And now?", Media(mel=40), _ANSWER),
    "videos at odd rates": (
        _BEGIN, Media(grid=(3, 2, 2), seconds=2 / 2.4975), "What?", Media(grid=(1, 2, 2)), "Then ",
        Media(grid=(2, 2, 3), seconds=2 / 14.985), _ANSWER,
    ),
    "film whose sound ends early": (
        _BEGIN, Media(grid=(2, 30, 1), seconds=2 / 14.985, mel=40), "And now?", _ANSWER,
    ),
    "films, and a turn behind them": (
        _BEGIN, Media(grid=(2, 9, 2), seconds=2 / 2.997, mel=60), "Or?", _ANSWER, "No.", "<|im_end|>\n",
        _BEGIN, Media(grid=(1, 8, 12)), Media(grid=(2, 40, 2), seconds=2 / 29.97, mel=50), "?", _ANSWER,
    ),
    "two turns": (
        "<|im_start|>system\nBe kind.<|im_end|>\n",
        _BEGIN, Media(grid=(1, 2, 6)), "What colour?", _ANSWER, "Red.", "<|im_end|>\n",
        _BEGIN, Media(mel=120), "And this?", Media(grid=(1, 5, 3)), _ANSWER,
    ),
}  # fmt: skip
_MARKS = {"<|im_start|>": 256, "<|im_end|>": 257, "system": 258, "user": 259, "assistant": 260}


def ids_of(text: str) -> list[int]:
    """A text's bytes, with the marks and roles of its turns."""
    found: list[int] = []
    for index, part in enumerate(text.split("<|im_start|>")):
        if index:
            role, _, part = part.partition("\n")
            found += [_MARKS["<|im_start|>"], _MARKS[role], ord("\n")]
        before, *after = part.split("<|im_end|>")
        found += before.encode()
        for rest in after:
            found += [_MARKS["<|im_end|>"], *rest.encode()]
    return found


def heard(mel: int) -> int:
    """Rows of a sound of so many frames."""
    over = mel % 100
    for _ in range(3):
        over = (over + 1) // 2
    return 13 * (mel // 100) + over


def drawn(name: str, *shape: int) -> Tensor:
    """float32, from the name alone."""
    digest = hashlib.blake2b(f"{SEED}:{name}".encode(), digest_size=8).digest()
    numbers = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big"))).standard_normal(shape)
    return torch.from_numpy(numbers.astype(np.float32))


def weight(name: str, shape: tuple[int, ...]) -> Tensor:
    """Larger than a fresh model's, so that attention and routing are far from even, and no norm is a 1 that could be
    left out."""
    return drawn(name, *shape) * 0.2 + (1.0 if "norm" in name else 0.0)


def weights() -> Iterator[tuple[str, Tensor]]:
    """By their names in public files, without the part's prefix."""
    for name, shape in config().tensors():
        yield name, weight(name, shape)


def rows(talk: str, index: int, one: Media) -> Mapping[str, Tensor]:
    """The inputs of the thinker for the medium at this index of a talk."""
    found: dict[str, Tensor] = {}
    if one.grid is not None:
        seen = one.grid[0] * one.grid[1] * one.grid[2]
        found["image"] = drawn(f"{talk}:{index}:image", seen, WIDTH)
        found["deepstack"] = drawn(f"{talk}:{index}:deepstack", DEEPSTACK, seen, WIDTH)
        found["grid"] = torch.tensor(one.grid)
    if one.seconds is not None:
        found["seconds"] = torch.tensor(one.seconds)
    if one.mel:
        found["audio"] = drawn(f"{talk}:{index}:audio", heard(one.mel), WIDTH)
    return found


def given() -> list[int]:
    """Tokens of an answer that is not the model's own."""
    return drawn("given", STEPS).mul(60).abs().long().clamp(max=255).tolist()


def write_folder(root: Path, *, nested: bool = False, shards: int = 2) -> Path:
    """As published: a config, and shards with an index. `nested`: the layout of later exports."""
    folder = root / ("nested" if nested else "published")
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    inner = "thinker.model.language_model." if nested else "thinker.model."
    named = {
        name.replace("model.", inner, 1) if name.startswith("model.") else f"thinker.{name}": tensor
        for name, tensor in weights()
    }
    others = {"thinker.audio_tower.ln_post.bias": torch.zeros(3), "code2wav.x": torch.zeros(2)}
    state, places = {**named, **others}, dict[str, str]()
    for index in range(shards):
        file = f"model-{index + 1:05}-of-{shards:05}.safetensors"
        mine = {name: state[name] for name in sorted(state)[index::shards]}
        save_file(mine, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(mine, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder
