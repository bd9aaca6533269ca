from __future__ import annotations

import io
import random
import zlib

import numpy as np
import pytest
import soundfile
import torch
from PIL import Image
from torch.nn import functional as F

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call
from walkgraph.architectures.pictures import MAX_PIXELS
from walkgraph.engine.engine import Engine

NODES = {
    name: (f"walkgraph.models.media.operators:{cls}", {})
    for name, cls in (("in", "PictureIn"), ("out", "PictureOut"), ("audio", "AudioOut"))
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES))


def encoded(picture: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def read(data: object, *, run: str = "r", size: int = 0, least: int = 0, most: int = 0, stride: int = 1) -> Call:
    rules = {"size": size, "min_side": least, "max_side": most, "stride": stride, "max_pixels": MAX_PIXELS}
    rules |= {"crop": False, "resample": "bicubic"}
    return call("in", {"image": data}, run=run, **rules)


def some(width: int, height: int) -> Image.Image:
    numbers = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(numbers)


def test_pixels_are_scaled_and_come_back_bit_for_bit(engine: Engine) -> None:
    picture = some(7, 5)
    [pixels] = outputs(engine, read(encoded(picture)))
    assert pixels["pixels"].shape == (3, 5, 7)
    torch.testing.assert_close(pixels["pixels"][0, 2, 3], torch.tensor(picture.getpixel((3, 2))[0] / 127.5 - 1))
    # The way out truncates, as the published code does: half a step keeps each value.
    [out] = outputs(engine, call("out", {"pixels": pixels["pixels"] + 0.5 / 127.5}))
    assert np.array_equal(np.array(Image.open(io.BytesIO(out["image"]))), np.array(picture))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_three_formats_are_read(engine: Engine, form: str) -> None:
    [pixels] = outputs(engine, read(encoded(Image.new("RGB", (8, 8), (255, 0, 0)), form)))
    assert pixels["pixels"][:, 4, 4].round().tolist() == [1, -1, -1]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_alpha_is_laid_on_white(engine: Engine, mode: str) -> None:
    picture = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    picture.putpixel((1, 0), (0, 0, 0, 255))
    [pixels] = outputs(engine, read(encoded(picture.convert(mode))))
    assert pixels["pixels"][:, 0].T.tolist() == [[1, 1, 1], [-1, -1, -1]]


def test_a_picture_is_turned_upright(engine: Engine) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    [pixels] = outputs(engine, read(encoded(some(6, 4), "JPEG", exif=exif)))
    assert pixels["pixels"].shape == (3, 6, 4)


@pytest.mark.parametrize(
    ("size", "rules", "wanted"),
    [
        ((30, 20), {}, (30, 20)),
        ((30, 20), {"size": 64}, (64, 64)),
        ((30, 20), {"stride": 16}, (32, 16)),
        ((2000, 1000), {"least": 512, "most": 1024, "stride": 16}, (1024, 512)),
        ((100, 50), {"least": 512, "most": 1024, "stride": 16}, (1024, 512)),
        ((400, 10), {"least": 32, "most": 64, "stride": 16}, (64, 16)),
        ((100, 60), {"most": 50}, (50, 30)),
        ((100, 60), {"least": 120}, (200, 120)),
        ((100, 60), {"least": 10, "most": 50, "stride": 14}, (42, 28)),
    ],
)
def test_sides_fit_between_the_bounds(
    engine: Engine, size: tuple[int, int], rules: dict[str, int], wanted: tuple[int, int]
) -> None:
    [pixels] = outputs(engine, read(encoded(Image.new("RGB", size)), **rules))
    assert tuple(pixels["pixels"].shape) == (3, wanted[1], wanted[0])


@pytest.mark.safety("S9")
def test_a_bomb_is_refused_before_it_is_decoded(engine: Engine) -> None:
    data = bytearray(encoded(Image.new("1", (8, 8))))
    for width in (9000, 60_000):
        data[16:24] = width.to_bytes(4, "big") * 2
        data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
        [done] = serve(engine, read(bytes(data)))
        assert done.error is not None
        assert done.error.code == "invalid_input"
        assert "64 million" in done.error.message


@pytest.mark.parametrize("form", ["GIF", "BMP", "TIFF", "PPM", "ICO", "JPEG2000"])
def test_other_formats_never_reach_their_decoders(engine: Engine, form: str) -> None:
    bad, good = serve(engine, read(encoded(some(16, 16), form)), read(encoded(some(4, 4)), run="good"))
    assert bad.error is not None
    assert (bad.error.code, bad.error.port) == ("invalid_input", "image")
    assert good.error is None


def test_broken_bytes_end_one_run_with_our_own_sentence(engine: Engine) -> None:
    chance = random.Random(0)
    for form in ("PNG", "JPEG", "WEBP"):
        whole = encoded(some(24, 24), form)
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            if chance.random() < 0.3:
                del data[chance.randrange(len(data)) :]
            [done] = serve(engine, read(bytes(data), most=64))
            assert done.error is None or done.error.code == "invalid_input"
    for data in (b"", b"hello", 5, None):
        [done] = serve(engine, read(data))
        assert done.error is not None
        assert done.error.code == "invalid_input"
        assert "encode it again" in done.error.message


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 7), (300, 2), (64, 64)])
def test_pictures_of_any_size_are_written_whole(engine: Engine, width: int, height: int) -> None:
    picture = some(width, height)
    pixels = torch.from_numpy(np.array(picture)).movedim(-1, 0)
    [out] = outputs(engine, call("out", {"pixels": (pixels + 0.5) / 127.5 - 1}))
    with Image.open(io.BytesIO(out["image"])) as back:
        back.verify()
    assert np.array_equal(np.array(Image.open(io.BytesIO(out["image"]))), np.array(picture))


def test_a_written_picture_is_about_as_small_as_a_librarys(engine: Engine) -> None:
    rough = torch.randn(3, 192, 192, generator=torch.Generator().manual_seed(0))
    fields = [F.avg_pool2d(rough, 2 * n + 1, 1, n, count_include_pad=False) * (2 * n + 1) for n in (0, 2, 12)]
    pixels = (0.01 * fields[0] + 0.05 * fields[1] + 0.1 * fields[2]).clamp(-1, 1)
    [out] = outputs(engine, call("out", {"pixels": pixels}))
    wanted = encoded(Image.open(io.BytesIO(out["image"])))
    assert len(out["image"]) < 1.15 * len(wanted)


def test_out_of_range_pixels_are_clamped(engine: Engine) -> None:
    [out] = outputs(engine, call("out", {"pixels": torch.full((3, 2, 2), 3.0)}))
    assert np.array(Image.open(io.BytesIO(out["image"]))).min() == 255


def test_a_waveform_becomes_sixteen_bit_sound(engine: Engine) -> None:
    wave = torch.sin(torch.arange(480) / 10) * 1.5
    [out] = outputs(engine, call("audio", {"waveform": wave}, sample_rate=24_000))
    back, rate = soundfile.read(io.BytesIO(out["audio"]))
    assert rate == 24_000
    np.testing.assert_allclose(back, wave.clamp(-1, 1).numpy(), atol=1e-4)
    assert soundfile.info(io.BytesIO(out["audio"])).subtype == "PCM_16"


def test_a_waveform_without_samples_gives_no_sound(engine: Engine) -> None:
    assert outputs(engine, call("audio", {"waveform": torch.zeros(0)}, sample_rate=24_000)) == [{}]


@pytest.mark.parametrize("count", [1, 2048])
def test_sound_is_encoded_as_the_library_does(engine: Engine, count: int) -> None:
    sound = torch.randn(count, generator=torch.Generator().manual_seed(count)) * 0.7
    sound[-1], sound[0] = -1.0, 1.0
    [made] = outputs(engine, call("audio", {"waveform": sound}, sample_rate=24_000))
    wanted = io.BytesIO()
    soundfile.write(wanted, sound.clamp(-1, 1).numpy(), 24000, format="WAV", subtype="PCM_16")
    assert made["audio"] == wanted.getvalue()
