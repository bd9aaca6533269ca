"""Orpheus's task with the real operators and tiny random weights: the loop runs in the engine as a whole, and where
nodes are placed changes no sample."""

import io
import json
from functools import cache
from typing import Any

import numpy as np
import soundfile

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, PLACEMENTS
from walkgraph.graph import codec
from walkgraph.placement.document import Placement, decode

MANY = 60
LAST_BITS = 4
"""Largest difference, of 32768: batched windows add up in another order."""


def on_cpus(name: str) -> Placement:
    document = json.loads(PLACEMENTS[name].read_text())
    for rank in document["ranks"]:
        rank["device"] = "cpu"
    return decode(document)


@cache
def deployment(placement: str) -> LocalDeployment:
    document = json.loads(GRAPHS["orpheus"].read_text())
    document["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
    document["weights"]["snac"]["source"] = "random:snac-tiny:0"
    return LocalDeployment(codec.load(document), on_cpus(placement))


def said(placement: str, text: str, *, run: str = "r", seed: int = 0) -> list[bytes]:
    local = deployment(placement)
    local.submit(run, "speak", {"max_tokens": MANY, "seed": seed}, {"text": [text]})
    local.run()
    assert run not in local.failed
    local.release(run)
    return local.outputs.pop(run)["audio"]


def samples(pieces: list[bytes]) -> np.ndarray[Any, Any]:
    return np.concatenate([soundfile.read(io.BytesIO(piece), dtype="int16")[0].astype(np.int32) for piece in pieces])


def test_sound_leaves_frame_by_frame_and_is_the_same_on_one_rank_or_two() -> None:
    one = said("orpheus_one_gpu", "hello")
    assert len(one) > 2
    assert one == said("orpheus_two_gpus", "hello")
    assert one != said("orpheus_one_gpu", "hello", run="other", seed=1)


def test_runs_together_say_what_each_says_alone() -> None:
    local = deployment("orpheus_one_gpu")
    texts = {"a": "one", "b": "another, longer text", "c": "3"}
    alone = {run: said("orpheus_one_gpu", text, run=f"{run} alone") for run, text in texts.items()}
    for run, text in texts.items():
        local.submit(run, "speak", {"max_tokens": MANY}, {"text": [text]})
    local.run()
    for run, sound in alone.items():
        np.testing.assert_allclose(samples(local.outputs.pop(run)["audio"]), samples(sound), atol=LAST_BITS)
        local.release(run)
