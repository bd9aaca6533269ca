"""A whole tiny Qwen3-Omni in the published layout, and the talks from which the stored answers were made.

`make_whole.py` gives them to `transformers` from the text, the pixels and the samples to the waveform, the tests of the
bundled graph to ours.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import tokenizers
from PIL import Image
from tokenizers import decoders, models, pre_tokenizers
from torch import Tensor

from tests.golden.qwen3_omni import hearing, seeing, speaking, vocoder
from tests.golden.qwen3_omni.drawing import weight, write_folder
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_TINY
from walkgraph.models.qwen3_omni.parts import CODE2WAV, part_of
from walkgraph.models.qwen3_omni.presets import OMNI
from walkgraph.models.qwen3_omni.seeing.config import VISION_TINY
from walkgraph.models.qwen3_omni.tensors import published_tensors
from walkgraph.models.qwen3_omni.thinker import config as thinker
from walkgraph.models.qwen3_omni.vocoder.config import TINY

ANSWERS = Path(__file__).parent / "whole.npz"
TOKENS, FRAMES = 9, 12
"""Tokens of an answer, and frames of its speech."""
KEPT = 5
"""Every so many samples are stored."""
CONFIG: Mapping[str, Any] = {
    **speaking.CONFIG,
    "thinker_config": {
        **speaking.CONFIG["thinker_config"],
        "audio_config": hearing.PUBLISHED,
        "vision_config": seeing.PUBLISHED,
    },
    "code2wav_config": vocoder.section(TINY),
}


Part = str | int | tuple[int, int] | Path | list[int]
VIDEO = Path(__file__).parent / "whole.mp4"
"""Two seconds of four frames each, with sound."""
BRIEF = Path(__file__).parent / "brief.mp4"
"""Six frames, 29.97 a second, whose sound ends before the places of the last one's columns."""


@dataclass(frozen=True)
class Turn:
    role: str
    parts: Sequence[Part]
    """Texts, sounds of so many samples, pictures of a height and a width, files of videos, and ids."""


WIDE = Path(__file__).parent / "wide.mp4"
"""Four frames of fifty columns of cells, whose sound ends before the columns' places."""


TALKS: Mapping[str, Sequence[Turn]] = {
    "text": [Turn("system", ["Be kind."]), Turn("user", ["Who are you?"])],
    "sound": [Turn("system", ["Be brief."]), Turn("user", [20000, "Say it again."])],
    "picture and sound": [Turn("system", ["Be fair."]), Turn("user", ["See ", (64, 96), "and hear ", 9000])],
    "two turns": [
        Turn("user", [(96, 64), "What is it?"]),
        Turn("assistant", ["A red door, or two."]),
        Turn("user", ["And this? ", 16000, (64, 64)]),
    ],
}
"""Name -> its turns; the next one answers."""
FILMED: Mapping[str, tuple[bool, Sequence[Turn]]] = {
    "two turns with videos": (
        False,
        [
            Turn("system", ["Be fair."]),
            Turn("user", [VIDEO, "What moves?"]),
            Turn("assistant", ["A red door."]),
            Turn("user", ["And here? ", BRIEF, (64, 64), "Or there?"]),
        ],
    ),
    "two turns with films": (
        True,
        [
            Turn("user", ["See ", BRIEF, "and hear ", 9000]),
            Turn("assistant", ["A song."]),
            Turn("user", [VIDEO, "Which one, ", (64, 96), BRIEF, "is it?"]),
        ],
    ),
    "a brief film": (True, [Turn("user", [BRIEF])]),
    "a wide film": (True, [Turn("user", [WIDE, "So?"])]),
    "a wide film behind another": (
        True,
        [Turn("user", ["See ", BRIEF, WIDE]), Turn("assistant", ["A wall."]), Turn("user", ["And?"])],
    ),
}
"""Name -> whether its videos are heard, and its turns."""
WATCHED: Mapping[str, tuple[bool, str]] = {"watched": (False, "What moves?"), "watched and heard": (True, "And now?")}
"""Name -> whether the video is heard too, and what is asked about it."""
PROMPT = "Be fair."
"""The system prompt of these."""


def tensors() -> dict[str, Tensor]:
    """By their published names."""
    shapes = published_tensors(OMNI["qwen3-omni-tiny"], AUDIO_TINY, VISION_TINY)
    drawn = {name: weight(name, shape) for name, shape in shapes.items() if part_of(name) != CODE2WAV}
    return {**drawn, **vocoder.state(TINY)}


def folder(root: Path) -> Path:
    """With a tokenizer, of bytes."""
    made = write_folder(root / "whole", CONFIG, tensors())
    tokenizer().save(str(made / "tokenizer.json"))
    return made


def tokenizer() -> tokenizers.Tokenizer:
    """A token is a byte; numbers above have names that are no text."""
    letters = {letter: byte for byte, letter in enumerate(_letters())}
    made = tokenizers.Tokenizer(models.BPE(letters, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    named = {number: name for name, number in vars(thinker.TINY.marks).items() if number > 255}
    vocab = thinker.TINY.llm.vocab
    made.add_special_tokens([f"<|{named.get(number, number)}|>" for number in range(256, vocab)])
    return made


def _letters() -> list[str]:
    """The letter that stands for each byte: itself where it can be seen, otherwise the next above 255."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    other = iter(range(256, 512))
    return [chr(byte if byte in seen else next(other)) for byte in range(256)]


def samples(count: int) -> np.ndarray:
    """int16 `[count]` at 16 kHz."""
    return (hearing.sound(count / hearing.RATE) * 20000).astype(np.int16)


def sound(count: int) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples(count), hearing.RATE, "PCM_16", format="WAV")
    return file.getvalue()


def picture(height: int, width: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(seeing.levels(height, width)).save(file, "PNG")
    return file.getvalue()
