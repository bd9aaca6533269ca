"""On a GPU: pictures and text to kept keys, by the kernels of full-size heads, against the same on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call
from walkgraph.abi.calls import StateKey
from walkgraph.abi.operator import Capture
from walkgraph.architectures.drawn import drawn
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.transfer import StateTransfer
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import TEXT_SIZES as SIZES
from walkgraph.models.bagel.operators import Backbone, Vit
from walkgraph.models.bagel.presets import BAGEL

pytest.importorskip("flashinfer")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

TINY = BAGEL["bagel-tiny"]
CONFIG = replace(
    TINY,
    llm=replace(TINY.llm, width=512, hidden=1024, layers=3, heads=6, kv_heads=2, head_dim=128),
    vit=replace(TINY.vit, width=144, hidden=300, layers=3, heads=2),
)
CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Here:
    """The encoder and the backbone on a device, with the states of any runs."""

    def __init__(self, device: torch.device, dtype: torch.dtype, capture: Capture | None = None) -> None:
        made = drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).to(device, dtype).pack()
        self.device, self.backbone = device, Backbone(made, device, dtype, capture)
        self.vit = Vit(made)  # pyright: ignore[reportAbstractUsage] - it has no step, and tells so
        self.states = StateTable(KVPools({"kv": Pool(self.backbone.caches()["kv"], 400, device)}), AttentionBackends())

    def encoded(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        calls = [call("vit", {"pixels": picture.to(self.device)}) for picture in pictures]
        return [one["embeddings"] for one in self.vit.forward(calls, self.states.transaction())]

    def fed(self, port: str, values: dict[str, Tensor]) -> list[Tensor]:
        """One forward over a value for each run; its tokens, for text."""
        calls = [
            call("llm", {port: v.to(self.device)}, run=run, states={"kv": "kv"}, temperature=0.0, top_k=0, top_p=1.0)
            for run, v in values.items()
        ]
        transaction = self.states.transaction()
        given = self.backbone.forward(calls, transaction)
        transaction.settle()
        return [one["token"] for one in given if "token" in one]

    def fork(self, source: str, target: str) -> None:
        self.states.fork(StateKey(source, "kv"), StateKey(target, "kv"))

    def kept(self, run: str) -> Tensor:
        return StateTransfer(self.states).export(StateKey(run, "kv"))["kv.0"].float().cpu()


def pictures(*sizes: tuple[int, int]) -> list[Tensor]:
    dice = torch.Generator().manual_seed(len(sizes))
    return [torch.rand(3, 8 * height, 8 * width, generator=dice) * 2 - 1 for height, width in sizes]


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.float().cpu() - wanted).norm() / wanted.norm())


@torch.inference_mode()
@pytest.mark.parametrize("sizes", [[(16, 16)], [(12, 16)] * 3, [(16, 16), (2, 3), (11, 13)]], ids=str)
def test_pictures_are_kept_as_on_a_cpu(sizes: list[tuple[int, int]]) -> None:
    plain, fast = Here(CPU, torch.float32), Here(GPU, torch.bfloat16)
    seen = plain.encoded(pictures(*sizes))
    for found, wanted in zip(fast.encoded(pictures(*sizes)), seen, strict=True):
        assert off(found, wanted) < 0.02
    runs = {f"run{i}": tokens for i, tokens in enumerate(seen)}
    for here in (plain, fast):
        # Some have a context, and all see a second picture after the first.
        here.fed("ids", {run: torch.arange(20 + i) for i, run in enumerate(runs) if i % 2 == 0})
        for _ in range(2):
            here.fed("image", runs)
        # Few rows, whose keys are read by pages, and many.
        for count in (30, 600):
            assert len(here.fed("ids", {run: torch.arange(count + i) % 250 for i, run in enumerate(runs)})) == len(runs)
    for run in runs:
        assert off(fast.kept(run), plain.kept(run)) < 0.02


@torch.inference_mode()
def test_texts_behind_contexts_are_read_by_captured_forwards() -> None:
    """One text alone, views of one text, and several behind nothing, text and pictures; then longer ones."""
    capturer, dice = Capturer(GPU), torch.Generator().manual_seed(3)
    plain, fast = Here(CPU, torch.float32), Here(GPU, torch.bfloat16, capturer)
    seen = plain.encoded(pictures((16, 16)))[0]
    rounds = [[("a", 2)], [("a", 16), ("b", 1)], [("view", 24)], [("a", 24)], [("a", 30), ("view", 30)]]
    rounds += [[("new", 61), ("b", 3)], [("a", 24), ("b", 24), ("new", 24), ("view", 24)], [("b", 129)], [("b", 5)]]
    for number, lengths in enumerate(rounds):
        texts = {run: torch.randint(0, 250, (count,), generator=dice) for run, count in lengths}
        for here in (plain, fast):
            if number == 2:
                here.fed("image", {"a": seen})
                here.fork("a", "view")
            assert len(here.fed("ids", texts)) == len(texts)
            here.states.audit()
        for run in ("a", "b", "view", "new"):
            if StateKey(run, "kv") in plain.states.paged:
                assert off(fast.kept(run), plain.kept(run)) < 0.02, (number, run)
    assert not capturer.failed
    assert capturer.count == len(SIZES)


@torch.inference_mode()
def test_a_long_context_is_read_as_by_a_plain_forward() -> None:
    """Many splits of many blocks, in pages out of order."""
    kept, capturer, text = [], Capturer(GPU), torch.arange(24) + 5
    for capture in (None, capturer):
        here = Here(GPU, torch.bfloat16, capture)
        dice = torch.Generator().manual_seed(4)
        for _ in range(20):
            for run in ("a", "b"):
                here.fed("ids", {run: torch.randint(0, 250, (129,), generator=dice)})
        here.fed("ids", {"a": text})
        here.fed("ids", {"a": text, "b": text})
        kept.append([here.kept(run) for run in ("a", "b")])
    assert not capturer.failed
    for found, wanted in zip(*reversed(kept), strict=True):
        assert found.shape[2] > 2600
        assert off(found[:, :, -48:], wanted[:, :, -48:]) < 0.02
