"""On a GPU: BAGEL's step of one token by its kernels, at full width, against the same step on a CPU in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.language.decoding import step_logits
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.models.bagel.config import BAGEL_7B_MOT
from walkgraph.models.bagel.mot import MoTForCausalLM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
LLM = replace(BAGEL_7B_MOT.llm, layers=1, vocab=2048)
HELD = 24
"""Pages of a row."""


@pytest.fixture(scope="module")
def models() -> dict[str, MoTForCausalLM]:
    """Models with one set of weights: only the und set is ever read."""

    def made() -> MoTForCausalLM:
        return MoTForCausalLM(LLM.shape, LLM.layers, LLM.vocab, LLM.rope_theta).requires_grad_(False)

    with torch.device("cuda"):
        torch.manual_seed(0)
        here = made().bfloat16()
    for name, value in here.named_parameters():
        if value.dim() == 1:
            value.normal_(1.0 if "norm" in name else 0.0, 0.2)
    with torch.device("meta"):
        there = made()
    there.load_state_dict({name: value.float().cpu() for name, value in here.state_dict().items()}, assign=True)
    for model in (here, there):
        for layer in model.model.layers:
            layer.pack()  # pyright: ignore[reportCallIssue]
    return {"cuda": here, "cpu": there}


def slot_of(lengths: list[int], device: str, dtype: torch.dtype) -> PagedSlot:
    """Random contexts, the same on every device, and positions that lie behind the lengths, as after pictures."""
    rows, dice = len(lengths), torch.Generator().manual_seed(7)
    shape = (rows * HELD * PAGE, LLM.kv_heads, LLM.head_dim)
    k, v = (torch.randn(shape, generator=dice).to(torch.bfloat16).to(device, dtype) for _ in "kv")
    table = torch.randperm(rows * HELD, generator=dice).int().view(rows, HELD).to(device)
    counted = torch.tensor(lengths, dtype=torch.int32, device=device)
    order = torch.arange(rows, dtype=torch.int32, device=device).flip(0)
    return PagedSlot([k], [v], PagedRows(order, table, counted, counted // 3))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 16, 31, 64])
def test_logits_are_those_of_a_cpu(models: dict[str, MoTForCausalLM], rows: int) -> None:
    lengths = [(37 * row) % (HELD * PAGE - 1) for row in range(rows)]
    token = torch.randint(0, LLM.vocab, (rows,), generator=torch.Generator().manual_seed(rows))
    found = []
    for device, model in models.items():
        slot = slot_of(lengths, device, model.lm_head.weight.dtype)
        with torch.inference_mode():
            logits = step_logits(model.model, model.lm_head.weight, token.to(device), slot)
        found.append([one.float().cpu() for one in (logits, slot.k[0], slot.v[0])])
    for got, wanted in zip(*found, strict=True):
        assert ((got - wanted).norm() / wanted.norm()).item() < 0.02
