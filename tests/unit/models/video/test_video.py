"""Video in and out as lists of pictures, and what is refused."""

from __future__ import annotations

import io
import random
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import soundfile
import torch

from tests.support.palette import Served
from walkgraph.architectures import recordings
from walkgraph.models.video import operators


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("video")


def shade(index: int, count: int) -> float:
    return -0.8 + 1.6 * index / max(count - 1, 1)


def film(count: int, width: int = 64, height: int = 48) -> list[torch.Tensor]:
    """Each frame lighter than the one before, its left half black."""
    frames = [torch.full((3, height, width), shade(index, count)) for index in range(count)]
    for frame in frames:
        frame[:, :, : width // 2] = -1
    return frames


def shades(frames: list[torch.Tensor]) -> list[float]:
    return [float(frame[:, :, -frame.shape[2] // 4 :].mean()) for frame in frames]


def encoded(count: int = 8, width: int = 64, height: int = 48, *, codec: str = "libx264", form: str = "mp4") -> bytes:
    """By FFmpeg alone, 10 frames a second."""
    made = io.BytesIO()
    with av.open(made, "w", format=form) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for index, picture in enumerate(film(count, width, height)):
            levels = ((picture.movedim(0, -1) + 1) * 127.5).round().to(torch.uint8).numpy()
            frame = av.VideoFrame.from_ndarray(levels, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return made.getvalue()


@pytest.mark.parametrize(
    ("codec", "form"), [("libx264", "mp4"), ("libvpx-vp9", "webm"), ("libvpx", "webm"), ("mpeg4", "mp4")]
)
def test_frames_come_in_order_with_their_rate(served: Served, codec: str, form: str) -> None:
    made = served.give("video.frames_in", {"video": encoded(codec=codec, form=form)})
    assert [tuple(frame.shape) for frame in made["frames"]] == [(3, 48, 64)] * 8
    np.testing.assert_allclose(shades(made["frames"]), [shade(n, 8) for n in range(8)], atol=0.06)
    assert all(float(frame[:, :, :16].mean()) < -0.9 for frame in made["frames"])
    assert made["rate"] == pytest.approx(10, abs=0.05)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"every": 3}, [0, 3, 6]),
        ({"every": 2, "most": 2}, [0, 2]),
        ({"start": 0.25}, [3, 4, 5, 6, 7]),
        ({"start": 0.45, "every": 2}, [5, 7]),
        ({"every": 1000}, [0]),
    ],
)
def test_every_n_th_frame_is_taken(served: Served, given: dict[str, Any], wanted: list[int]) -> None:
    made = served.give("video.frames_in", {"video": encoded()}, **given)
    np.testing.assert_allclose(shades(made["frames"]), [shade(n, 8) for n in wanted], atol=0.06)
    assert made["rate"] == pytest.approx(max(10 / given.get("every", 1), 0.1), rel=0.01)


@pytest.mark.parametrize(("codec", "form"), [("libx264", "mp4"), ("libvpx-vp9", "webm")])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"most": 3}, [0, 3, 6]),
        ({"every": 2, "most": 3}, [0, 4, 6]),
        ({"start": 0.25, "most": 2}, [3, 6]),
        ({"most": 1}, [0]),
        ({"most": 8}, list(range(8))),
    ],
)
def test_too_many_frames_are_taken_evenly_from_all_of_a_video(
    served: Served, given: dict[str, Any], wanted: list[int], codec: str, form: str
) -> None:
    made = served.give("video.frames_in", {"video": encoded(codec=codec, form=form)}, spread=True, **given)
    np.testing.assert_allclose(shades(made["frames"]), [shade(n, 8) for n in wanted], atol=0.06)
    if len(wanted) > 1:
        assert made["rate"] == pytest.approx(10 * (len(wanted) - 1) / (wanted[-1] - wanted[0]), rel=0.02)


def test_a_start_after_the_end_is_refused(served: Served) -> None:
    assert "no frame after 5 seconds" in served.refusal("video.frames_in", {"video": encoded()}, start=5.0)


@pytest.mark.parametrize(("side", "shape"), [(32, (24, 32)), (512, (48, 64)), (16, (12, 16))])
def test_frames_fit_into_a_square(served: Served, side: int, shape: tuple[int, int]) -> None:
    made = served.give("video.frames_in", {"video": encoded()}, max_side=side)
    assert {tuple(frame.shape) for frame in made["frames"]} == {(3, *shape)}


def test_a_video_is_turned_upright(served: Served) -> None:
    data = encoded(2)
    # The matrix of the track's header, which a phone that is held upright writes: a quarter turn clockwise.
    at = data.index(b"tkhd") + 4 + 40
    turned = np.array([0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30], ">i4").tobytes()
    made = served.give("video.frames_in", {"video": data[:at] + turned + data[at + 36 :]})
    # What was black at the left is at the top.
    for frame in made["frames"]:
        assert frame.shape == (3, 64, 48)
        assert float(frame[:, :28].mean()) < -0.9 < -0.85 < float(frame[:, 36:].mean())


@pytest.mark.parametrize("form", ["mp4", "webm"])
@pytest.mark.parametrize(("width", "height"), [(64, 48), (33, 17), (2, 2), (1, 1)])
def test_pictures_become_a_video_and_come_back(served: Served, form: str, width: int, height: int) -> None:
    frames = film(6, width, height) if width > 2 else [torch.full((3, height, width), shade(n, 6)) for n in range(6)]
    data = served.give("video.frames_out", {"frames": frames}, format=form, rate=12.5, quality=90)
    made = served.give("video.frames_in", {"video": data})
    # Sides of a video are even.
    assert {tuple(frame.shape) for frame in made["frames"]} == {(3, height + height % 2, width + width % 2)}
    np.testing.assert_allclose(shades(made["frames"]), shades(frames), atol=0.08)
    assert made["rate"] == pytest.approx(12.5, rel=0.01)


def test_a_rate_at_the_port_comes_first(served: Served) -> None:
    for rate in (5.0, torch.tensor(5.0)):
        data = served.give("video.frames_out", {"frames": film(4), "rate": rate}, rate=24.0)
        assert served.give("video.frames_in", {"video": data})["rate"] == pytest.approx(5, rel=0.01)
    for rate in (0.0, -1.0, 1e9, float("inf"), float("nan")):
        assert "0.1 to 240" in served.refusal("video.frames_out", {"frames": film(1), "rate": rate})


@pytest.mark.parametrize("form", ["mp4", "webm"])
def test_sound_goes_with_the_pictures(served: Served, form: str) -> None:
    wave = 0.5 * torch.sin(2 * torch.pi * 440 * torch.arange(12000) / 24000)
    data = served.give("video.frames_out", {"frames": film(12), "waveform": wave}, format=form)
    made = served.give("video.audio_in", {"video": data}).numpy()
    assert 11000 <= len(made) <= 14400
    spectrum = np.abs(np.fft.rfft(made[2000:10000] * np.hanning(8000)))
    assert spectrum.argmax() * 24000 / 8000 == pytest.approx(440, abs=4)
    assert len(served.give("video.frames_in", {"video": data})["frames"]) == 12
    silent = served.give("video.frames_out", {"frames": film(2), "waveform": torch.zeros(0)}, format=form)
    assert served.give("video.audio_in", {"video": silent}).shape == (0,)
    assert served.give("video.audio_in", {"video": encoded(2)}).shape == (0,)


def test_lists_are_sampled_and_joined(served: Served) -> None:
    frames = [torch.full((3, 1, 1), float(n)) for n in range(7)]
    for every, first, most in ((1, 0, 0), (2, 0, 0), (3, 1, 0), (2, 1, 2), (9, 6, 0)):
        made = served.give("video.sample", {"frames": frames}, every=every, first=first, most=most)
        assert [int(one[0, 0, 0]) for one in made] == list(range(first, 7, every))[: most or None]
    assert "leaves out all 7" in served.refusal("video.sample", {"frames": frames}, first=7)
    joined = served.give("video.concat", {"frames": frames[:2], "more": frames[5:]})
    assert [int(one[0, 0, 0]) for one in joined] == [0, 1, 5, 6]
    assert "2,049 pictures" in served.refusal("video.concat", {"frames": frames[:1] * 2048, "more": frames[:1]})
    for bad in ([], "abc", [torch.zeros(3)], torch.zeros(3)):
        assert served.refusal("video.sample", {"frames": bad})
        assert served.refusal("video.concat", {"frames": frames, "more": bad})
        assert served.refusal("video.frames_out", {"frames": bad})


def test_pictures_that_make_no_video_are_refused(served: Served) -> None:
    vast = torch.zeros(3, 1, 1)
    for frames, says in (
        ([torch.zeros(3, 2, 2), torch.zeros(3, 2, 4)], "different sizes"),
        ([vast.expand(3, 4000, 4000)], "9,437,184 pixels"),
        ([vast.expand(3, 2, 8194)], "9,437,184 pixels"),
        ([vast.expand(3, 2000, 2000)] * 65, "256 million"),
    ):
        assert says in served.refusal("video.frames_out", {"frames": frames})


def test_large_and_long_videos_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded()
    monkeypatch.setattr(operators, "MAX_PIXELS", 20_000)
    assert "lower `most` or `max_side`" in served.refusal("video.frames_in", {"video": data})
    assert len(served.give("video.frames_in", {"video": data}, max_side=32)["frames"]) == 8
    monkeypatch.setattr(operators, "_MOST_READ", 10_000)
    assert "send a shorter or smaller one" in served.refusal("video.frames_in", {"video": data}, every=1000)
    assert len(served.give("video.frames_in", {"video": data}, most=2)["frames"]) == 2
    monkeypatch.setattr(operators, "MAX_FRAME", 3_000)
    assert "3,000 pixels" in served.refusal("video.frames_in", {"video": data})


def test_a_frame_that_is_larger_than_its_file_says_is_never_decoded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded()
    monkeypatch.setattr(recordings, "MAX_FRAME", 64 * 48)
    assert len(served.give("video.frames_in", {"video": data})["frames"]) == 8
    # What the operator reads of the file passes; the decoder has its own bound.
    monkeypatch.setattr(recordings, "MAX_FRAME", 64 * 48 - 1)
    assert "encode it again" in served.refusal("video.frames_in", {"video": data})


def test_files_that_are_no_video_are_refused(served: Served) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(100), 8000, format="WAV")
    whole = encoded()
    only_sound = io.BytesIO()
    with av.open(only_sound, "w", format="mp4") as container:
        stream = container.add_stream("aac", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4000), np.float32), format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 8000, 0, Fraction(1, 8000)
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    for data in (b"", b"hello", sound.getvalue(), b"#EXTM3U\nfile:///etc/hostname\n", whole[:40], 5, None):
        for name in ("frames_in", "audio_in"):
            assert "encode it again" in served.refusal(f"video.{name}", {"video": data})
    assert "no pictures that can be read" in served.refusal("video.frames_in", {"video": only_sound.getvalue()})


@pytest.mark.parametrize(("codec", "form"), [("libx264", "mp4"), ("libvpx-vp9", "webm")])
def test_damaged_videos_end_one_call(served: Served, codec: str, form: str) -> None:
    chance, whole = random.Random(2), encoded(3, 32, 32, codec=codec, form=form)
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            del data[chance.randrange(8, len(data)) :]
        try:
            served.give("video.frames_in", {"video": bytes(data)})
        except AssertionError:
            served.refusal("video.frames_in", {"video": bytes(data)})
