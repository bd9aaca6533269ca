"""The operators that see: any pictures and videos together, in pieces; sizes of pictures; errors for what can't be
seen."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden.pictures import png
from tests.golden.qwen3_omni.seeing import levels
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call, CallFailed
from walkgraph.checkpoints.fields import Fields
from walkgraph.engine.engine import Engine
from walkgraph.errors import InvalidInput
from walkgraph.layers.pictures.patches import normalise
from walkgraph.layers.unset import unset
from walkgraph.models.qwen3_omni.seeing import model as seeing
from walkgraph.models.qwen3_omni.seeing import operators
from walkgraph.models.qwen3_omni.seeing.config import VISION, VISION_TINY, VisionConfig, fitted
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder
from walkgraph.models.qwen3_omni.seeing.picture_operators import FramesFit, PictureFit, PictureIn

torch.set_num_threads(1)
SEEN = "walkgraph.models.qwen3_omni.seeing.operators"
NODES = {"eye": (f"{SEEN}:VisionEncoder", {}), "watch": (f"{SEEN}:VideoEncoder", {})}
STATES: Any = None
LIMITS = {"min_pixels": 3136, "max_pixels": 12_845_056}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:qwen3-omni-tiny:5"))


def pixels(height: int, width: int, seed: int = 0) -> Tensor:
    return normalise(torch.from_numpy(levels(height, width, seed)))


def frames(count: int, height: int, width: int) -> list[Tensor]:
    return [pixels(height, width, seed) for seed in range(count)]


def refused(engine: Engine, one: Call) -> str:
    [done] = serve(engine, one)
    assert done.error is not None
    assert done.error.code == "invalid_input"
    return done.error.message


SIZES = [(64, 64), (32, 96), (96, 32), (64, 64), (128, 160), (32, 32)]


def test_a_batch_gives_what_each_picture_gives_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [call("eye", {"pixels": pixels(*size, i)}, run=str(i)) for i, size in enumerate(SIZES)]
    alone = [outputs(engine, one)[0] for one in given]
    for rows in (seeing._ROWS, 40, 1):
        monkeypatch.setattr(seeing, "_ROWS", rows)
        done = serve(engine, *given)
        assert {one.batch for one in done} == {len(given)}
        for one, wanted, (height, width) in zip(done, alone, SIZES, strict=True):
            assert one.outputs is not None
            assert one.outputs["grid"].tolist() == [1, height // 32, width // 32]
            assert one.outputs["embeddings"].shape == (height * width // 32**2, VISION_TINY.out)
            for port in ("embeddings", "deepstack"):
                torch.testing.assert_close(one.outputs[port], wanted[port], rtol=1e-4, atol=2e-5)


def test_frames_are_seen_in_pairs_whatever_else_is_watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two frames don't see other frames, and a picture is one frame counted twice."""
    five, picture = frames(5, 64, 32), pixels(64, 64)
    given = [call("watch", {"frames": list(five), "rate": 2.0}), call("watch", {"frames": [picture]}, run="other")]
    for rows in (seeing._ROWS, 8):
        monkeypatch.setattr(seeing, "_ROWS", rows)
        watched, still = outputs(engine, *given)
        assert (watched["grid"].tolist(), watched["seconds"]) == ([3, 2, 1], 1.0)
        assert (still["grid"].tolist(), still["seconds"]) == ([1, 2, 2], 2.0)
        [seen] = outputs(engine, call("eye", {"pixels": picture}))
        torch.testing.assert_close(still["embeddings"], seen["embeddings"], rtol=1e-4, atol=2e-5)
        pairs = [call("watch", {"frames": pair}) for pair in (five[:2], five[2:4], [five[4]] * 2)]
        alone = [outputs(engine, pair)[0] for pair in pairs]
        for port, axis in (("embeddings", 0), ("deepstack", 1)):
            whole = torch.cat([one[port] for one in alone], axis)
            torch.testing.assert_close(watched[port], whole, rtol=1e-4, atol=2e-5)


def test_places_tell_patches_apart(engine: Engine) -> None:
    grey = [torch.zeros(3, *size) for size in ((64, 64), (32, 128))]
    square, wide = outputs(engine, *[call("eye", {"pixels": one}, run=str(i)) for i, one in enumerate(grey)])
    rows = torch.cat([square["embeddings"], wide["embeddings"]])
    assert all(float((rows[i] - rows[j]).abs().max()) > 1e-3 for i in range(8) for j in range(i))


def test_pictures_that_do_not_fit_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "multiples of 32" in refused(engine, call("eye", {"pixels": torch.zeros(3, 64, 65)}))
    assert "frames_fit" in refused(engine, call("watch", {"frames": [torch.zeros(3, 64, 65)]}))
    assert "different sizes" in refused(engine, call("watch", {"frames": [pixels(32, 32), pixels(32, 64)]}))
    assert "1 to 768 pictures" in refused(engine, call("watch", {"frames": []}))
    assert "shape [3, height, width]" in refused(engine, call("eye", {"pixels": torch.zeros(1, 32, 32)}))
    for rate in (0.0, -1.0, math.nan, math.inf):
        assert "frames a second" in refused(engine, call("watch", {"frames": frames(1, 32, 32), "rate": rate}))
    large = torch.zeros(1, 1, 1).expand(3, 32 * 120, 32 * 120)
    assert "12,845,056 pixels" in refused(engine, call("eye", {"pixels": large}))
    monkeypatch.setattr(operators, "_MOST_EMBEDDINGS", 4)
    assert "6 embeddings" in refused(engine, call("watch", {"frames": frames(5, 64, 32)}))


def test_a_number_that_is_not_finite_fails_its_call_alone(engine: Engine) -> None:
    good, bad = pixels(64, 64), pixels(64, 64)
    bad[1, 5, 5] = math.nan
    done = serve(engine, call("eye", {"pixels": good}), call("eye", {"pixels": bad}, run="bad"))
    assert [one.error is None for one in done] == [True, False]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((64, 96), (64, 96)),
        ((80, 112), (64, 128)),  # halves to even
        ((1, 1), (64, 64)),
        ((20, 400), (32, 384)),
        ((10, 2000), (32, 800)),
        ((3000, 5000), (2752, 4608)),
        ((8192, 41), (8192, 32)),
    ],
)
def test_sizes_of_pictures(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    assert fitted(*size, 32, 3136, 12_845_056) == wanted


def test_every_size_is_within_its_bounds() -> None:
    dice = torch.Generator().manual_seed(0)
    for height, width in torch.randint(1, 3000, (300, 2), generator=dice).tolist():
        if max(height, width) > 200 * min(height, width):
            with pytest.raises(ValueError, match="over 200 times"):
                fitted(height, width, 32, 131_072, 786_432)
            continue
        new = fitted(height, width, 32, 131_072, 786_432)
        assert all(side % 32 == 0 and side for side in new)
        assert math.prod(new) >= 131_072
        assert math.prod(new) <= 786_432 or min(new) == 32


def test_pictures_come_as_bytes_or_pixels_and_bad_ones_are_refused() -> None:
    def fails(operator: Any, **inputs: Any) -> str:
        params = inputs.pop("params", LIMITS)
        with pytest.raises(CallFailed) as caught:
            operator().forward([call("node", inputs, **params)], STATES)
        assert caught.value.code == "invalid_input"
        return str(caught.value)

    assert "over 200 times" in fails(PictureIn, image=png(levels(1, 201)))
    assert "pictures" in fails(PictureIn, image=b"no picture")
    assert "over 200 times" in fails(PictureFit, pixels=torch.zeros(3, 1, 201))
    assert "different sizes" in fails(FramesFit, frames=[pixels(8, 8), pixels(8, 9)])
    assert "above `max_pixels`" in fails(
        PictureFit, pixels=pixels(8, 8), params={"min_pixels": 9999, "max_pixels": 1024}
    )
    many = [torch.zeros(1, 1, 1).expand(3, 1, 1)] * 768
    assert "64 million" in fails(FramesFit, frames=many, params={"min_pixels": 131_072, "max_pixels": 786_432})
    [small] = PictureFit().forward([call("node", {"pixels": pixels(100, 100)}, min_pixels=1, max_pixels=1024)], STATES)
    assert small["pixels"].shape == (3, 32, 32)


def test_the_published_config_and_size() -> None:
    published = {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 2048,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    assert VisionConfig.published(Fields(published)) == VISION
    with unset():
        assert sum(tensor.numel() for tensor in VisionEncoder(VISION).state_dict().values()) == 538_631_408
    for wrong in ({"in_channels": 1}, {"hidden_act": "gelu"}, {"num_position_embeddings": 2305}):
        with pytest.raises(InvalidInput):
            VisionConfig.published(Fields({**published, **wrong}))
    for wrong in ({"num_heads": 7}, {"deepstack_visual_indexes": [16, 8, 24]}):
        with pytest.raises(ValueError, match=r"heads|features"):
            VisionConfig.published(Fields({**published, **wrong}))
