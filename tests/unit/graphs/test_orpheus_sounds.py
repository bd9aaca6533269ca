"""Tiny Orpheus, from a text to WAV pieces: the sound of the codes, each frame once."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import soundfile
import torch

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from walkgraph.graph import codec
from walkgraph.resources import bundled

FRAME = 2048


def deployed(chunks: dict[str, Any]) -> LocalDeployment:
    document = json.loads(bundled("graphs")["orpheus"].read_text())
    document["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
    document["weights"]["snac"]["source"] = "random:snac-tiny:0"
    document["streams"][0]["chunks"] = {"policy": "sliding", "window": 28, "stride": 7, **chunks}
    return LocalDeployment(codec.load(document), on_cpus("orpheus_one_gpu"), threads=1)


@pytest.mark.parametrize("chunks", [{}, {"first": 14}], ids=["published", "ramp"])
def test_a_text_is_read_aloud_piece_by_piece(chunks: dict[str, Any]) -> None:
    local = deployed(chunks)
    for run, most in (("a", 65), ("b", 48)):
        local.submit(run, "speak", {"seed": 3, "temperature": 1.0, "max_tokens": most}, {"text": ["hello"]})
    local.run()
    assert local.failed == {}
    for run, most in (("a", 65), ("b", 48)):
        pieces = [soundfile.read(io.BytesIO(data)) for data in local.outputs[run]["audio"]]
        assert {rate for _, rate in pieces} == {24000}
        lengths = [len(sound) for sound, _ in pieces]
        assert len(lengths) > 2
        assert all(length and length % FRAME == 0 for length in lengths), "no piece is empty"
        assert sum(lengths) <= most // 7 * FRAME
        assert torch.tensor(pieces[0][0]).std() > 0.01
        assert lengths[0] == (1 if chunks else 2) * FRAME


@pytest.mark.parametrize("most", [35, 42, 49])
def test_a_speech_that_ends_on_a_border_sounds_its_last_frames_once(most: int) -> None:
    """Its codes fill the last window: those that no window has settled sound in the closing one, as always."""
    local = deployed({"first": 14})
    local.submit("a", "speak", {"seed": 3, "temperature": 1.0, "max_tokens": most}, {"text": ["hello"]})
    local.run()
    assert local.failed == {}
    [done] = [done for done in local.ends["a"] if done.loops]
    codes = done.loops[0].iterations + 1
    lengths = [len(soundfile.read(io.BytesIO(data))[0]) for data in local.outputs["a"]["audio"]]
    assert codes % 7 == 0, "else it tests nothing"
    assert lengths == [FRAME] * (codes // 7 - 2) + [2 * FRAME]
