"""Pictures, videos and their embeddings against what the published code gave for them
(`tests/golden/qwen3_omni/make_seeing.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.pictures import png
from tests.golden.qwen3_omni import seeing as tiny
from tests.unit.engine.plans import call
from walkgraph.abi.operator import LoadContext
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.qwen3_omni.seeing.components import SEEING
from walkgraph.models.qwen3_omni.seeing.config import VISION_TINY, read_vision
from walkgraph.models.qwen3_omni.seeing.model import Seen
from walkgraph.models.qwen3_omni.seeing.operators import VideoEncoder, VisionEncoder
from walkgraph.models.qwen3_omni.seeing.picture_operators import FramesFit, PictureFit, PictureIn

torch.set_num_threads(1)
BAR = 3e-5
STATES: Any = None
Answers = Mapping[str, Tensor]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> LoadContext:
    folder = tiny.folder(tmp_path_factory.mktemp("roots"))
    assert read_vision(folder) == VISION_TINY
    return LoadContext(device=torch.device("cpu"), dtype=torch.float32, folder=folder, shared={}, options={})


@pytest.fixture(scope="module")
def answers() -> Answers:
    with np.load(tiny.ANSWERS) as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}


def defaults(component: str) -> dict[str, Any]:
    [found] = [one for one in SEEING if one.name == f"qwen3_omni.{component}"]
    return {name: param.default for name, param in found.params.items()}


def fitted(name: str) -> Tensor:
    levels = tiny.levels(*tiny.PICTURES[name])
    params = defaults("picture_in")
    [read] = PictureIn().forward([call("in", {"image": png(levels)}, **params)], STATES)
    [resized] = PictureFit().forward([call("fit", {"pixels": normalise(torch.from_numpy(levels))}, **params)], STATES)
    assert torch.equal(read["pixels"], resized["pixels"])
    return read["pixels"]


def frames(name: str) -> list[Tensor]:
    given = [normalise(torch.from_numpy(levels)) for levels in tiny.frames(name)]
    [made] = FramesFit().forward([call("fit", {"frames": given}, **defaults("frames_fit"))], STATES)
    return made["frames"]


def levels_of(patches: Tensor) -> Tensor:
    return ((patches + 1) * 127.5).round().to(torch.uint8)


@pytest.mark.parametrize("name", tiny.PICTURES)
def test_pictures_are_resized_as_published(name: str, answers: Answers) -> None:
    """Patch by patch: by blocks of 2 by 2, inside a patch by channel, row and column."""
    pixels = fitted(name)
    _, height, width = pixels.shape
    assert [1, height // 16, width // 16] == answers[f"{name}: grid"].tolist()
    patches = [
        pixels[:, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16].flatten()
        for top in range(0, height // 16, 2)
        for left in range(0, width // 16, 2)
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1))
    ]
    wanted = answers[f"{name}: patches"]
    assert torch.equal(levels_of(torch.stack(patches)[:: tiny.KEPT]), wanted)


@pytest.mark.parametrize("name", tiny.VIDEOS)
def test_frames_are_resized_as_published(name: str, answers: Answers) -> None:
    """Two frames make a patch, and the last one is repeated."""
    made = frames(name)
    sheets, rows, columns = answers[f"{name} video: grid"].tolist()
    assert {tuple(frame.shape) for frame in made} == {(3, 16 * rows, 16 * columns)}
    pairs = [made[first : first + 2] for first in range(0, len(made), 2)]
    assert len(pairs) == sheets
    patches = [
        torch.stack([(pair * 2)[i][:, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16] for i in range(2)], 1)
        for pair in pairs
        for top in range(0, rows, 2)
        for left in range(0, columns, 2)
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1))
    ]
    wanted = answers[f"{name} video: patches"]
    assert torch.equal(levels_of(torch.stack(patches).flatten(1)[:: tiny.KEPT**2]), wanted)


def near(found: Mapping[str, Any], name: str, answers: Answers, every: int = 1) -> None:
    for port in ("embeddings", "deepstack"):
        got = found[port][..., ::every, :]
        torch.testing.assert_close(got, answers[f"{name}: {port}"], atol=BAR, rtol=BAR)
    sheets, rows, columns = answers[f"{name}: grid"].tolist()
    assert found["grid"].tolist() == [sheets, rows // 2, columns // 2]


@pytest.mark.parametrize("name", tiny.PICTURES)
@torch.inference_mode()
def test_pictures_give_the_published_embeddings(name: str, context: LoadContext, answers: Answers) -> None:
    [found] = VisionEncoder.load(context).forward([call("eye", {"pixels": fitted(name)})], STATES)
    near(found, name, answers)


@pytest.mark.parametrize("name", tiny.VIDEOS)
@torch.inference_mode()
def test_videos_give_the_published_embeddings(name: str, context: LoadContext, answers: Answers) -> None:
    [found] = VideoEncoder.load(context).forward([call("eye", {"frames": frames(name), "rate": 4.0})], STATES)
    near(found, f"{name} video", answers, tiny.KEPT)
    assert found["seconds"] == 0.5


@torch.inference_mode()
def test_a_batch_gives_what_each_picture_gives_alone(context: LoadContext, answers: Answers) -> None:
    names = [*tiny.PICTURES, "small"]
    found = VisionEncoder.load(context).forward([call("eye", {"pixels": fitted(name)}) for name in names], STATES)
    for name, one in zip(names, found, strict=True):
        near(one, name, answers)
    videos = VideoEncoder.load(context).forward([call("eye", {"frames": frames(name)}) for name in tiny.VIDEOS], STATES)
    for name, one in zip(tiny.VIDEOS, videos, strict=True):
        near(one, f"{name} video", answers, tiny.KEPT)
        assert one["seconds"] == 2.0


def test_both_operators_share_the_weights(context: LoadContext) -> None:
    assert VisionEncoder.load(context)._model is VideoEncoder.load(context)._model
    assert Seen._fields == ("embeddings", "deepstack", "grid")
