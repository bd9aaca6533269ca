"""Text alone and encoded pictures alone: caches and answers of their own path, against the path for mixed calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.und import UndRows

WIDTH = BAGEL["bagel-tiny"].llm.width
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}


@pytest.fixture
def engine() -> Engine:
    return engine_of(
        plan_of({"llm": ("walkgraph.models.bagel.operators:Backbone", {"kv": "main"})}, source="random:bagel-tiny:5")
    )


def llm(run: str, port: str, value: Tensor) -> Call:
    return call("llm", {port: value}, run=run, states={"kv": "main"}, **GREEDY)


def pictures(*counts: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(counts))
    return [torch.randn(count, WIDTH, generator=generator) for count in counts]


def kept(engine: Engine, run: str) -> tuple[Tensor, Tensor]:
    state = engine.transfers.export(StateKey(run, "main"))
    return state["counters"], state["kv.0"]


@pytest.fixture
def by_itself(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pictures, and rows of text, in each forward that took their own path."""
    found: list[int] = []
    see, read = UndRows.see, UndRows.read

    def seeing(self: UndRows, pictures: Sequence[Tensor], *given: Any) -> None:
        found.append(len(pictures))
        see(self, pictures, *given)

    def reading(self: UndRows, ids: Tensor, *given: Any) -> Tensor:
        found.append(len(ids))
        return read(self, ids, *given)

    monkeypatch.setattr(UndRows, "see", seeing)
    monkeypatch.setattr(UndRows, "read", reading)
    return found


@pytest.mark.parametrize("counts", [(6,), (6, 6, 6), (6, 1, 20)], ids=str)
@pytest.mark.parametrize("context", [0, 19])
def test_pictures_are_kept_as_among_other_calls(
    engine: Engine, by_itself: list[int], counts: tuple[int, ...], context: int
) -> None:
    seen = pictures(*counts)
    for path in ("alone", "mixed"):
        runs = [f"{path}{i}" for i in range(len(seen))]
        if context:
            for i, run in enumerate(runs):
                outputs(engine, llm(run, "ids", torch.arange(i, i + context)))
        by_itself.clear()
        calls = [llm(run, "image", tokens) for run, tokens in zip(runs, seen, strict=True)]
        outputs(engine, *calls, *([llm("text", "ids", torch.arange(3))] if path == "mixed" else []))
        assert by_itself == ([len(seen)] if path == "alone" else [])
    for i, tokens in enumerate(seen):
        counters, own = kept(engine, f"alone{i}")
        assert counters.tolist() == [[context + len(tokens) + 2, context + 1]]
        _, other = kept(engine, f"mixed{i}")
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_a_question_reads_the_pictures_before_it(engine: Engine) -> None:
    """Two pictures in one conversation: the second sees the first."""
    first, second = pictures(5, 9)
    for path in ("alone", "mixed"):
        for tokens in (first, second):
            beside = [llm(f"text {len(tokens)}", "ids", torch.arange(3))] if path == "mixed" else []
            outputs(engine, llm(path, "image", tokens), *beside)
    torch.testing.assert_close(kept(engine, "alone")[1], kept(engine, "mixed")[1], rtol=1e-4, atol=1e-5)


def test_text_is_answered_as_among_other_calls(engine: Engine, by_itself: list[int]) -> None:
    """Prompts of several lengths, a single token among them, behind nothing, text and a picture."""
    prompts = [torch.arange(9), torch.tensor([7]), torch.arange(30) + 3, torch.arange(4)]
    answers: list[list[int]] = []
    for path in ("alone", "mixed"):
        runs = [f"{path}{i}" for i in range(len(prompts))]
        outputs(engine, llm(runs[1], "ids", torch.arange(5)))
        outputs(engine, llm(runs[2], "image", pictures(6)[0]))
        by_itself.clear()
        calls = [llm(run, "ids", ids) for run, ids in zip(runs, prompts, strict=True)]
        given = outputs(engine, *calls, *([llm("picture", "image", pictures(3)[0])] if path == "mixed" else []))
        answers.append([int(one["token"]) for one in given[: len(runs)]])
        assert by_itself == ([sum(map(len, prompts))] if path == "alone" else [])
    assert answers[0] == answers[1]
    for i in range(len(prompts)):
        counters, own = kept(engine, f"alone{i}")
        other_counters, other = kept(engine, f"mixed{i}")
        assert counters.tolist() == other_counters.tolist()
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


def test_only_rows_of_one_mode_that_are_kept_are_placed() -> None:
    shape = CacheShape(layers=1, kv_heads=1, head_dim=8, dtype=torch.float32)
    states = StateTable(KVPools({"kv": Pool(shape, 4, torch.device("cpu"))}), AttentionBackends())
    kept, block = (
        Segment(StateKey("r", "kv"), torch.arange(4), "causal"),
        Segment(StateKey("s", "kv"), torch.arange(4, 8), "block"),
    )
    for segments in ([replace(block, keep=False)], [kept, block]):
        with pytest.raises(PageFault, match="only rows that are kept"):
            states.transaction().attend(segments).placed()
