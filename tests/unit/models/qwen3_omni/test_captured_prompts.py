"""Conversations of thinker and talker through captured forwards, against plain ones of the same calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import thinking
from tests.support.forwards import Forwards, Replays
from tests.support.thinking import appended, pieces
from tests.unit.engine.plans import call
from walkgraph.abi.calls import Call, Outputs
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.models.qwen3_omni.talker.operators import Talker
from walkgraph.models.qwen3_omni.thinker.operators import Thinker
from walkgraph.models.qwen3_omni.thinker.rows import BetweenAll, BetweenLayers, packed_rows

torch.set_num_threads(1)
SAID = torch.tensor([256, 259, 10, *b"hello", 257, 10])


class Both:
    """Every call by a plain forward, and by one that is captured; what they answer and keep must agree."""

    def __init__(self, kind: type[Operator], state: str) -> None:
        self.replays = Replays()
        self.plain, self.fast = (Forwards(self._loaded(kind, capture), state=state) for capture in (None, self.replays))

    def __call__(self, *calls: Call) -> list[Outputs]:
        """Calls are served once in each way, so that neither changes what the other reads."""
        given, wanted = (each(*calls) for each in (self.fast, self.plain))
        for one, mine, other in zip(calls, given, wanted, strict=True):
            assert mine.keys() == other.keys()
            for port, value in mine.items():
                torch.testing.assert_close(value, other[port], rtol=1e-4, atol=1e-4)
            (counters, found), (wanted_counters, kept) = self.fast.kept(one.run), self.plain.kept(one.run)
            assert counters == wanted_counters
            torch.testing.assert_close(found, kept, rtol=1e-4, atol=1e-5)
        return given

    @staticmethod
    def _loaded(kind: type[Operator], capture: Replays | None) -> Operator:
        on: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32, "folder": None}
        return kind.load(
            LoadContext(
                **on, shared={}, options={}, random=("qwen3-omni-tiny", 3), family="qwen3_omni", capture=capture
            )
        )


@pytest.mark.parametrize("talk", thinking.TALKS)
def test_a_talk_is_read_as_by_plain_forwards(talk: str) -> None:
    both, media = Both(Thinker, "main"), 0
    for inputs in pieces(talk):
        (given,) = both(appended(inputs, talk))
        media += "hidden" in given
    assert both.replays.sizes
    assert media == sum("ids" not in inputs for inputs in pieces(talk))


def test_talks_are_read_together() -> None:
    both = Both(Thinker, "main")
    left = {talk: pieces(talk) for talk in thinking.TALKS}
    while any(left.values()):
        both(*(appended(mine.pop(0), talk) for talk, mine in left.items() if mine))
    assert max(both.replays.sizes) > min(both.replays.sizes)


def heard(run: str, ids: Tensor, **inputs: Tensor) -> Call:
    how = {"speaker": "ethan", "temperature": 0.0, "frames_per_token": 0, "min_frames": 0}
    return call(
        "talker",
        {"ids": ids, **inputs},
        run=run,
        states={"kv": "kv", "heard": "heard", "seen": "seen"},
        **{**how, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0},
    )


def test_spoken_prompts_are_read_as_by_plain_forwards() -> None:
    both = Both(Talker, "kv")
    positions = torch.arange(len(SAID)).float()[:, None].expand(-1, 3).clone()
    positions[3:6] += torch.tensor([0.0, 0.5, 1.0])
    both(heard("plain", SAID), heard("placed", SAID, positions=positions))
    both(heard("again", SAID[:4]))
    assert both.replays.sizes == [64, 16]


def test_rows_are_packed_beside_what_is_added_to_them() -> None:
    generator = torch.Generator().manual_seed(0)
    x, features = torch.randn(5, 4, generator=generator), torch.randn(2, 3, 4, generator=generator)
    visual, media = torch.tensor([1, 2, 4]), torch.tensor([0, 1, 2, 4])
    plain = BetweenLayers(media, visual, features, 3)
    packed = BetweenAll(packed_rows(x, visual, features, 2), 4, 3)
    one, other = x.clone(), packed.first.clone()
    for layer in range(4):
        plain(layer, one)
        packed(layer, other)
        assert torch.equal(one, other)
    assert plain.kept is not None
    assert packed.kept is not None
    assert torch.equal(packed.kept[media], plain.kept)
    assert not packed_rows(x, visual[:0], None, 2)[:, 4:].any()
