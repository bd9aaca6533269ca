"""On a GPU, where a run's numbers may not depend on its batch: logits of a step to the last bit, and whole runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from msgspec.structs import replace as with_fields
from torch import Tensor

from tests.gpu.test_loops import PARAMS, codes
from tests.gpu.test_orpheus_parity import batch_of
from tests.unit.engine.plans import plan_of
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.engine.engine import Engine
from walkgraph.ids import Rank
from walkgraph.layers.invariance import batch_invariant
from walkgraph.models.orpheus.config import SpeechTokens
from walkgraph.models.orpheus.operators import Backbone
from walkgraph.models.orpheus.presets import ORPHEUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
ROWS = 64


@pytest.mark.parametrize(("vocab", "dtype"), [(156_940, torch.bfloat16), (4099, torch.float32)])
@torch.inference_mode()
def test_a_row_s_logits_are_the_same_alone_and_among_others(vocab: int, dtype: torch.dtype) -> None:
    device = torch.device("cuda")
    config = replace(ORPHEUS["orpheus-3b"].llm, layers=3, vocab=vocab)
    model = drawn(lambda: LanguageModel(config), 0, device=device, dtype=dtype).pack()
    backbone = Backbone(model, SpeechTokens.after_bytes(512), device, dtype)
    batch = batch_of(backbone, ROWS, 0)
    slot, token = batch.paged["kv"], batch.inputs["token"].flatten()

    def logits(first: int, last: int) -> Tensor:
        own = [tensor.clone() for tensor in slot.k], [tensor.clone() for tensor in slot.v]
        rows = PagedRows(slot.rows.rows[first:last], slot.rows.pages, slot.rows.lengths, slot.rows.positions)
        return model.step(token[first:last], PagedSlot(*own, rows))

    with batch_invariant():
        together = logits(0, ROWS)
        for first, last in ((0, 1), (17, 18), (63, 64), (0, 3), (40, 43), (5, 21), (30, 63)):
            assert torch.equal(logits(first, last), together[first:last]), (first, last)


def engine(monkeypatch: pytest.MonkeyPatch, *, capture: bool) -> Engine:
    whole = ORPHEUS["orpheus-3b"]
    monkeypatch.setitem(ORPHEUS, "orpheus-two-layers", replace(whole, llm=replace(whole.llm, layers=2)))
    nodes = {"llm": ("walkgraph.models.orpheus.operators:Backbone", {"kv": "main", "seen": "seen"})}
    plan = plan_of(nodes, kv_bytes=1 << 28, source="random:orpheus-two-layers:3", params={"llm": PARAMS})
    device = with_fields(plan.ranks[0], device="cuda:0")
    here = Engine(with_fields(plan, ranks=(device,)), Rank(0), capture=capture, batch_invariant=True)
    here.load()
    return here


def test_whole_runs_say_the_same_alone_and_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = engine(monkeypatch, capture=True)
    runs = {f"run{i}": 3 + 29 * i for i in range(20)}
    times = dict.fromkeys(runs, 60)
    together = codes(here, runs, times)
    for run in ("run0", "run7", "run19"):
        assert codes(here, {run: runs[run]}, times)[run] == together[run]
    few = dict(list(runs.items())[5:8])
    assert codes(here, few, times) == {run: together[run] for run in few}


def test_captured_and_eager_steps_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, times = {"a": 5, "b": 130, "c": 300}, {"a": 20, "b": 20, "c": 20}
    captured = codes(engine(monkeypatch, capture=True), runs, times)
    assert codes(engine(monkeypatch, capture=False), runs, times) == captured
