"""Pictures, sound and video with real processes on two ranks: a video is taken apart, changed and put together."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence

from tests.support.deployment import Deployment, deployed
from tests.support.palette import Served
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.wire import messages as m

pytestmark = pytest.mark.asyncio(loop_scope="session")

NODES = {
    "frames_in": "video.frames_in",
    "flip": "picture.flip",
    "joined": "video.concat",
    "frames_out": "video.frames_out",
    "animate": "picture.animate",
    "grid": "picture.grid",
    "png": "media.picture_out",
    "audio_in": "video.audio_in",
    "split": "sound.silence_split",
    "words": "sound.concat",
    "spectrogram": "sound.spectrogram",
    "heard": "media.picture_out",
    "wav": "media.audio_out",
}
FILM: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "film",
    "nodes": {name: {"component": component} for name, component in NODES.items()},
    "walks": {
        "change": {
            "inputs": {"video": "video"},
            "body": [
                "frames_in",
                {"map": "frames_in.frames", "bound": "20", "width": "4", "body": ["flip"]},
                "joined",
                "audio_in",
                "frames_out",
                "animate",
                "grid",
                "png",
                "split",
                "words",
                "wav",
                "spectrogram",
                "heard",
            ],
            "edges": [
                ["@in.video", "frames_in.video"],
                ["@in.video", "audio_in.video"],
                {"from": "frames_in.frames", "to": "flip.pixels", "each": True},
                ["frames_in.frames", "joined.frames"],
                {"from": "flip.pixels", "to": "joined.more", "collect": "list"},
                ["joined.frames", "frames_out.frames"],
                ["frames_in.rate", "frames_out.rate"],
                ["audio_in.waveform", "frames_out.waveform"],
                ["frames_out.video", "@out.video"],
                ["joined.frames", "animate.pictures"],
                ["animate.image", "@out.moving"],
                ["joined.frames", "grid.pictures"],
                ["grid.pixels", "png.pixels"],
                ["png.image", "@out.grid"],
                ["audio_in.waveform", "split.waveform"],
                ["split.waveforms", "words.waveforms"],
                ["words.waveform", "wav.waveform"],
                ["wav.audio", "@out.words"],
                ["audio_in.waveform", "spectrogram.waveform"],
                ["spectrogram.pixels", "heard.pixels"],
                ["heard.image", "@out.heard"],
            ],
        }
    },
    "tasks": {
        "change": {
            "inputs": {"video": {"modality": "video"}},
            "outputs": ["video", "moving", "grid", "words", "heard"],
            "steps": [{"walk": "change", "with": {"video": "@task.video"}}],
        }
    },
}


def a_video() -> bytes:
    """Three frames at 6 a second, each white at its left, with two beeps around a silence."""
    frames = [torch.full((3, 32, 48), -1.0) for _ in range(3)]
    for frame in frames:
        frame[:, :, :16] = 1
    beep = 0.5 * torch.sin(2 * torch.pi * 500 * torch.arange(6000) / 24000)
    wave = torch.cat([beep, torch.zeros(12000), beep])
    return Served("video").give("video.frames_out", {"frames": frames, "waveform": wave}, rate=6.0, quality=90)


async def test_a_video_is_taken_apart_changed_and_put_together() -> None:
    found = check(FILM, catalogue())
    assert found.ok, found.errors
    graph = codec.load(FILM)
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("flip", "grid", "words", "frames_out"), ranks=(1,)))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    plan = assemble(Assignment(graph, Placement(name="film", groups=groups, ranks=devices)), catalogue())
    data = a_video()
    async with deployed(graph, plan) as deployment:
        run = deployment.submit("change", {}, inputs={"video": [m.Blob(data=data)]})
        assert (await deployment.end(run)).error is None
        check_outputs({name: value for name, [value] in deployment.outputs[run].items()})
        await refused(deployment, data[: len(data) // 2])


async def refused(deployment: Deployment, data: bytes) -> None:
    """A file without its end is the client's fault, and the rank goes on."""
    run = deployment.submit("change", {}, inputs={"video": [m.Blob(data=data)]})
    error = (await deployment.end(run)).error
    assert error is not None
    assert error.code == "invalid_input"


def check_outputs(made: dict[str, bytes]) -> None:
    grid = np.array(Image.open(io.BytesIO(made["grid"])).convert("L"))
    assert grid.shape == (64, 144)
    # Three frames that are white at the left, then three that are white at the right.
    white = [grid[y + 8 : y + 24, x : x + 16].mean() > 128 for y in (0, 32) for x in range(0, 144, 16)]
    assert white == [True, False, False] * 3 + [False, False, True] * 3
    with av.open(io.BytesIO(made["video"]), format="mp4") as container:
        shown = [frame.to_ndarray(format="gray") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 6
    assert [bool(frame[:, :12].mean() > 128) for frame in shown] == [True] * 3 + [False] * 3
    moving = Image.open(io.BytesIO(made["moving"]))
    assert (moving.format, len(list(ImageSequence.Iterator(moving)))) == ("WEBP", 2), "equal frames are one"
    # Without the silence, but for its margins, of which there are four at most.
    seconds = (len(made["words"]) - 44) / 2 / 24000
    assert 0.5 <= seconds < 0.85
    heard = np.array(Image.open(io.BytesIO(made["heard"])).convert("L"))
    assert heard.shape == (256, 512)
    assert heard[:, 256].max() < 40 < 128 < heard[:, 60].max()
