"""The starter's tasks with the real operators and a tiny random BAGEL: where nodes are placed changes no answer."""

import io
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from walkgraph.graph import codec

PLACEMENTS = ("shapes_one_cpu", "shapes_cfg3_cpu", "shapes_encoders_apart_cpu")
ONE_LEVEL = 1
"""Largest difference, of 255: branches that are batched on one rank and alone on three add up in another order."""


@cache
def deployment(placement: str, **options: Any) -> LocalDeployment:
    document = json.loads(GRAPHS["shapes"].read_text())
    document["weights"]["shapes"]["source"] = "random:bagel-tiny:0"
    document["nodes"]["noise"]["params"]["channels"] = 16
    return LocalDeployment(codec.load(document), placement_of(placement), **options)


def run(placement: str, task: str, params: dict[str, Any], **inputs: Any) -> dict[str, list[Any]]:
    return ran(deployment(placement), task, params, **inputs)


def ran(local: LocalDeployment, task: str, params: dict[str, Any], **inputs: Any) -> dict[str, list[Any]]:
    name = f"{task} {params}"
    local.submit(name, task, params, {key: [value] for key, value in inputs.items()})
    local.run()
    assert name not in local.failed
    return dict(local.outputs[name])


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(png)), dtype=np.int16)


def picture(size: tuple[int, int] = (80, 50)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (200, 30, 30)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("placement", PLACEMENTS[1:])
def test_drawing_is_the_same_on_every_placement(placement: str) -> None:
    params = {"steps": 6, "preview_every": 2, "cfg_img_scale": 1.5}
    alone, spread = (run(p, "text_to_image", params, prompt="a red circle") for p in (PLACEMENTS[0], placement))
    assert [len(alone[name]) for name in ("image", "preview")] == [1, 2]
    for name in ("image", "preview"):
        for a, b in zip(alone[name], spread[name], strict=True):
            assert pixels(a).shape == (64, 64, 3)
            assert np.abs(pixels(a) - pixels(b)).max() <= ONE_LEVEL


@pytest.mark.parametrize("placement", PLACEMENTS[1:])
def test_editing_is_the_same_on_every_placement(placement: str) -> None:
    inputs = {"image": picture(), "instruction": "make it blue"}
    alone, spread = (run(p, "edit", {"steps": 6}, **inputs) for p in (PLACEMENTS[0], placement))
    assert np.abs(pixels(alone["image"][0]) - pixels(spread["image"][0])).max() <= ONE_LEVEL


@pytest.mark.parametrize("placement", PLACEMENTS[1:])
def test_describing_is_the_same_on_every_placement(placement: str) -> None:
    alone, spread = (run(p, "image_to_text", {"max_tokens": 8}, image=picture()) for p in (PLACEMENTS[0], placement))
    assert alone["text"]
    assert alone == spread


def test_guidance_and_the_instruction_change_the_picture() -> None:
    drawn = [
        run(PLACEMENTS[0], "edit", {"steps": 6, **asked}, image=picture(), instruction="make it blue")["image"][0]
        for asked in ({"seed": 1}, {"seed": 2}, {"cfg_text_scale": 1.0}, {"cfg_img_scale": 1.0})
    ]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(
    ("placement", "resident"),
    [("shapes_encoders_apart_cpu", True), ("shapes_encoders_apart_cpu", False), ("shapes_cfg3_cpu", False)],
)
def test_where_nodes_are_changes_no_bit_of_invariant_runs(placement: str, resident: bool) -> None:
    """As long as the loop is called alike: on one rank as a whole, or use by use."""
    inputs = {"image": picture(), "instruction": "make it blue"}
    alone, spread = (
        ran(
            deployment(where, threads=1, resident=resident, batch_invariant=True),
            "edit",
            {"steps": 4, "cfg_img_scale": 1.5, "preview_every": 1},
            **inputs,
        )
        for where in (PLACEMENTS[0], placement)
    )
    assert alone["preview"]
    assert alone == spread
