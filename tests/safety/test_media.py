"""Damaged pictures and sounds: each is read or refused in our words, and nothing internal is in them."""

from __future__ import annotations

import base64
import io
import random
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import soundfile
from PIL import Image

from tests.safety.plugin import Figure, Scale
from tests.support.storm.judge import UNTOLD
from tests.unit.engine.plans import call
from walkgraph.abi.calls import CallFailed
from walkgraph.architectures import pictures
from walkgraph.errors import WalkgraphError
from walkgraph.service.openai import hearing
from walkgraph.service.values import sound

FOREIGN = "BMP GIF TIFF PPM ICO TGA PCX SGI MSP DDS JPEG2000 EPS PDF XBM SPIDER DIB ICNS BLP".split()
"""Formats that a client's bytes must not reach a decoder of."""


def damaged(whole: bytes, chance: random.Random) -> bytes:
    """Bits flipped, bytes cut out, doubled or overwritten; mostly in its head, where sizes are."""
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        at = chance.randrange(min(len(data), chance.choice((32, 128, len(data)))))
        match chance.randrange(5):
            case 0 | 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff"))
            case 3:
                del data[at : at + chance.randrange(1, 32)]
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 64)]
        if not data:
            return b""
    return bytes(data[: chance.randrange(len(data))] if chance.random() < 0.2 else data)


def pictures_of_all_kinds(chance: random.Random) -> list[bytes]:
    noise = Image.effect_noise((48, 40), 80)
    modes = [("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB"), ("JPEG", "L"), ("WEBP", "RGB"), ("WEBP", "RGBA")]
    return [written(noise.convert(mode), form) for form, mode in modes]


def written(picture: Image.Image, form: str) -> bytes:
    made = io.BytesIO()
    picture.save(made, form)
    return made.getvalue()


def foreign() -> Iterator[bytes]:
    for form in FOREIGN:
        for mode in ("RGB", "L", "1"):
            try:
                yield written(Image.effect_noise((48, 40), 80).convert(mode), form)
            except (OSError, KeyError, ValueError):
                continue  # this build of the library writes no such file
            break


def sounds() -> list[bytes]:
    samples = np.sin(np.linspace(0, 300, 4000)).astype(np.float32)
    found: list[bytes] = []
    for form, subtype in [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)]:
        made = io.BytesIO()
        soundfile.write(made, samples, 24_000, subtype, format=form)
        found.append(made.getvalue())
    return found


def judged(read: Callable[[bytes], object], data: bytes) -> str:
    """`read`, or `refused` with a sentence of ours that tells nothing of the inside."""
    try:
        read(data)
    except (WalkgraphError, CallFailed) as error:
        code, told = (error.info() if isinstance(error, WalkgraphError) else error).code, str(error)
    else:
        return "read"
    assert code in ("invalid_input", "node_error"), code
    assert UNTOLD.search(told) is None, told
    return "refused"


def decode(data: bytes) -> object:
    return pictures.decode(call("picture_in", {"image": data}))


def heard(data: bytes) -> object:
    """As a client's and as a model's."""
    judged(sound.read, data)
    return hearing._as_wav(base64.b64encode(data).decode(), 1 << 20, "/input")


@pytest.mark.safety("S9")
def test_damaged_pictures(scale: Scale, figure: Figure) -> None:
    chance, count = random.Random(9), scale(150, 2000)
    whole = pictures_of_all_kinds(chance)
    ends = Counter(judged(decode, damaged(chance.choice(whole), chance)) for _ in range(count))
    others = list(foreign())
    assert len(others) >= 8
    assert {judged(decode, data) for data in others} == {"refused"}
    assert ends["refused"] > count / 5
    figure("damaged pictures, read or refused", ends.total() + len(others), at_least=2000)


@pytest.mark.safety("S9")
def test_damaged_sounds(scale: Scale, figure: Figure) -> None:
    chance, count, whole = random.Random(9), scale(150, 2000), sounds()
    ends = Counter(judged(heard, damaged(chance.choice(whole), chance)) for _ in range(count))
    assert ends["refused"] > count / 10
    figure("damaged sounds, read or refused", ends.total(), at_least=2000)
