"""The starter's loops do on the device what they do call by call: the same pictures, previews and texts."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from tests.unit.graphs.test_shapes_on_ranks import ONE_LEVEL, picture, pixels
from walkgraph.graph import codec

PLACEMENTS = ("shapes_one_cpu", "shapes_encoders_apart_cpu")


@cache
def deployment(placement: str, resident: bool) -> LocalDeployment:
    document = json.loads(GRAPHS["shapes"].read_text())
    document["weights"]["shapes"]["source"] = "random:bagel-tiny:0"
    document["nodes"]["noise"]["params"]["channels"] = 16
    return LocalDeployment(codec.load(document), placement_of(placement), threads=1, resident=resident)


ASKED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("text_to_image", {"steps": 7, "preview_every": 2, "cfg_interval_low": 0.6}, {"prompt": "a red circle"}),
    ("text_to_image", {"steps": 4, "cfg_text_scale": 1.0, "preview_every": 3}, {"prompt": "a red circle"}),
    ("edit", {"steps": 5, "cfg_img_scale": 1.5}, {"image": picture(), "instruction": "now blue"}),
    ("image_to_text", {"max_tokens": 9}, {"image": picture()}),
]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_loops_on_the_device_answer_as_stepped_ones(placement: str) -> None:
    answers: list[list[dict[str, list[Any]]]] = []
    for resident in (True, False):
        local = deployment(placement, resident)
        for number, (task, params, inputs) in enumerate(ASKED):
            local.submit(str(number), task, params, {name: [value] for name, value in inputs.items()})
        local.run()
        assert not local.failed
        answers.append([dict(local.outputs[str(number)]) for number in range(len(ASKED))])
    assert [len(one.get("preview", ())) for one in answers[0]] == [3, 1, 0, 0]
    for (task, *_), fast, slow in zip(ASKED, *answers, strict=True):
        assert {name: len(values) for name, values in fast.items()} == {n: len(v) for n, v in slow.items()}, task
        assert fast.get("text") == slow.get("text")
        for name in ("image", "preview"):
            for one, other in zip(fast.get(name, ()), slow.get(name, ()), strict=True):
                assert np.abs(pixels(one) - pixels(other)).max() <= ONE_LEVEL, task


def test_who_asks_about_a_picture_touches_nothing_that_draws() -> None:
    local = deployment("shapes_one_cpu", True)
    local.submit("asks", "image_to_text", {"max_tokens": 3}, {"image": [picture()]})
    local.run()
    used = {one.node for one in local.times["asks"] if one.calls}
    drawing = {"vae_encoder", "vae_decoder", "noise", "combine_cfg", "llm_cfg_text", "llm_cfg_img", "picture_out"}
    assert "vit_encoder" in used
    assert not used & drawing
