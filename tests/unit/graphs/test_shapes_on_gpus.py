"""The starter's drawing with branches on GPUs of their own, as far as these can be on a CPU: the same picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.threaded import Threaded, on_gpus
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from tests.unit.graphs.test_shapes_on_ranks import ONE_LEVEL, picture, pixels, run
from walkgraph.graph import codec


@pytest.fixture(scope="module")
def apart() -> Iterator[Threaded]:
    document = json.loads(GRAPHS["shapes"].read_text())
    document["weights"]["shapes"]["source"] = "random:bagel-tiny:0"
    document["nodes"]["noise"]["params"]["channels"] = 16
    made = Threaded(codec.load(json.dumps(document)), on_gpus(placement_of("shapes_cfg3_cpu")))
    yield made
    made.end()


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "text": ("text_to_image", {"steps": 6, "preview_every": 2}, {"prompt": "a red circle"}),
    "both": ("text_to_image", {"steps": 6, "cfg_img_scale": 1.5}, {"prompt": "a blue square"}),
    "none": ("text_to_image", {"steps": 4, "cfg_text_scale": 1.0}, {"prompt": "a red circle"}),
    "edit": ("edit", {"steps": 6}, {"image": picture(), "instruction": "make it blue"}),
    "early": ("text_to_image", {"steps": 9, "cfg_interval_low": 0.7}, {"prompt": "two"}),
}


def test_pictures_are_those_of_one_rank_all_at_once(apart: Threaded) -> None:
    loop = next(w for w in apart.plan.walks if w.name == "image_gen_cfg").loops[0]
    assert loop.why.startswith("`denoise` runs on the devices"), loop.why
    for name, (task, params, inputs) in CASES.items():
        apart.submit(name, task, params, {key: [value] for key, value in inputs.items()})
    apart.run()
    assert not apart.failed
    for name, (task, params, inputs) in CASES.items():
        alone = run("shapes_one_cpu", task, params, **inputs)
        found = apart.outputs[name]
        assert [len(found[key]) for key in alone] == [len(values) for values in alone.values()]
        for key in ("image", "preview"):
            for a, b in zip(alone.get(key, ()), found.get(key, ()), strict=True):
                assert np.abs(pixels(a) - pixels(b)).max() <= ONE_LEVEL


def test_what_runs_held_is_free_after_them(apart: Threaded) -> None:
    task, params, inputs = CASES["both"]
    apart.submit("last", task, params, {key: [value] for key, value in inputs.items()})
    apart.run()
    for node in apart.nodes.values():
        for name in (*CASES, "last"):
            node.do(lambda node=node, name=name: node.engine.drop(name))
        node.do(node.engine.states.audit)
    apart.run()
    assert [node.parts for node in apart.nodes.values()] == [[], [], []]
