"""Prompts of language models through captured forwards, against plain ones of the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.forwards import Forwards, Replays
from tests.unit.engine.plans import call
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.prompts.paged_prompts import MOST, SIZES
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.models.llm.operators import Backbone

HOW: Mapping[str, Any] = {
    "temperature": 0.7,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
VOCAB = 250


class Both:
    """Every call by a plain forward, and by one that is captured; what they answer and keep must agree."""

    def __init__(self, preset: str) -> None:
        self.replays = Replays()
        self.plain, self.fast = (Forwards(self._backbone(preset, capture), 500) for capture in (None, self.replays))

    def fed(self, values: Mapping[str, Tensor]) -> None:
        calls = [
            [
                call("llm", {"ids": ids}, run=run, states={"kv": "kv", "seen": "seen"}, draws=7, logits=True, **HOW)
                for run, ids in values.items()
            ]
            for _ in range(2)
        ]
        given, wanted = self.fast(*calls[0]), self.plain(*calls[1])
        for run, one, other in zip(values, given, wanted, strict=True):
            torch.testing.assert_close(one["logits"], other["logits"], rtol=1e-4, atol=1e-4)
            assert int(one["token"]) == int(other["token"])
            (counters, found), (wanted_counters, kept) = self.fast.kept(run), self.plain.kept(run)
            assert counters == wanted_counters
            torch.testing.assert_close(found, kept, rtol=1e-4, atol=1e-5)

    @staticmethod
    def _backbone(preset: str, capture: Replays | None) -> Backbone:
        cpu = torch.device("cpu")
        return Backbone.load(
            LoadContext(
                device=cpu,
                dtype=torch.float32,
                folder=None,
                shared={},
                options={},
                random=(preset, 3),
                family="llm",
                capture=capture,
            )
        )


@pytest.fixture(params=["qwen3-tiny", "qwen3-moe-tiny"])
def both(request: pytest.FixtureRequest) -> Both:
    return Both(request.param)


def text(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(1000 * count + seed))


def test_prompts_at_the_start_and_behind_contexts_are_read_together(both: Both) -> None:
    both.fed({"a": text(5), "b": text(40)})
    both.fed({"a": text(30, 1), "new": text(1), "b": text(2, 1)})
    both.fed({"b": text(3, 2)})
    both.fed({str(at): text(1 + at % 3, 10 + at) for at in range(MOST)})
    assert both.replays.sizes == [64, 64, 8, 64]


def test_what_remains_behind_a_cached_prefix_is_read_by_a_small_graph(both: Both) -> None:
    long = text(3 * PAGE + 4)
    both.fed({"a": long})
    both.fed({"b": torch.cat([long[: 3 * PAGE], text(9, 1)])})
    assert both.replays.sizes == [64, 16]


def test_what_is_long_or_many_is_left_to_a_plain_forward(both: Both) -> None:
    both.fed({str(at): text(SIZES[-1] // MOST + 1, at) for at in range(MOST)})
    both.fed({"long": text(2050)})
    both.fed({f"short {at}": text(1, at) for at in range(MOST + 1)})
    assert both.replays.sizes == []
