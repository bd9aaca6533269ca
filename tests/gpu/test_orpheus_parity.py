"""On a GPU, in bfloat16: a few full-width layers of Orpheus, prefilled and stepped, against themselves in float32, and
the captured step against the eager one. `benchmarks/parity_orpheus.py` holds the whole model against `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.parity_orpheus import compared, taught
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch, StepOutputs
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.models.orpheus.config import SpeechTokens
from walkgraph.models.orpheus.operators import Backbone
from walkgraph.models.orpheus.presets import ORPHEUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CONFIG = replace(ORPHEUS["orpheus-3b"].llm, layers=3, vocab=4099)
PREFILL = 37


@pytest.mark.parametrize("rows", [1, 3, 16, 33])
@torch.inference_mode()
def test_steps_are_as_near_to_float32_as_a_prefill_is(rows: int) -> None:
    device = torch.device("cuda")
    model = drawn(lambda: LanguageModel(CONFIG), 0, device=device, dtype=torch.bfloat16).pack()
    exact = drawn(lambda: LanguageModel(CONFIG), 0, device=device, dtype=torch.float32)
    exact.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()}, assign=True)
    ids = torch.randint(0, CONFIG.vocab, (rows, PREFILL + 20), generator=torch.Generator().manual_seed(rows)).to(device)
    attend = PackedAttend((ids.shape[1],), mask=causal_mask(ids.shape[1], device=device))
    positions = torch.arange(ids.shape[1], device=device).repeat(rows)
    wanted = exact(ids.flatten(), positions, attend).view(*ids.shape, -1).cpu()
    found = compared(taught(model, ids, PREFILL), wanted, PREFILL)
    for part in found.values():
        assert part["distance"] < 0.03
        assert part["likeliest"] > 0.85
    assert found["steps"]["distance"] < 1.3 * found["prefill"]["distance"]


def batch_of(backbone: Backbone, rows: int, pad: int) -> StepBatch:
    """`rows` runs of different lengths and samplings, then `pad` times the pad row; every page has random numbers."""
    generator = torch.Generator("cuda").manual_seed(1)
    shape, total, pages = backbone.caches()["kv"], rows + 1, 8
    size = (total * pages * 16, shape.kv_heads, shape.head_dim)
    k, v = (
        [torch.randn(size, generator=generator, device="cuda").to(shape.dtype) for _ in range(shape.layers)]
        for _ in "kv"
    )
    at = torch.cat([torch.randperm(rows), torch.full((pad,), rows)]).int().cuda()
    lengths = torch.randint(0, 100, (total,), generator=torch.Generator().manual_seed(2)).int().cuda()
    table = torch.randperm(total * pages).view(total, pages).int().cuda()
    spec = backbone.step_spec({"token": torch.zeros(1)}, {})
    assert spec is not None
    values = {
        "temperature": [0.0, 0.8, 1.2],
        "top_k": [0, 40, 5],
        "top_p": [1.0, 0.8, 0.5],
        "min_p": [0.0, 0.02, 0.0],
        "repetition_penalty": [1.0, 1.3, 1.1],
        "presence_penalty": [0.0, 0.4, -0.2],
        "frequency_penalty": [0.0, 0.1, 0.3],
    }
    count = rows + pad
    (vocab,) = spec.tensors["seen"].shape
    return StepBatch(
        rows=at,
        inputs={"token": torch.randint(0, vocab, (count, 1), device="cuda", generator=generator)},
        params={
            name: torch.tensor([values[name][i % 3] for i in range(count)], dtype=dtype, device="cuda")
            for name, dtype in spec.params.items()
        },
        seed=torch.arange(count, device="cuda") * 977,
        iteration=torch.zeros(count, dtype=torch.int64, device="cuda"),
        paged={"kv": PagedSlot(k, v, PagedRows(at, table, lengths, lengths.clone()))},
        tensors={"seen": torch.zeros(total, vocab, dtype=torch.int16, device="cuda")},
    )


def captured(step: Callable[[], StepOutputs]) -> tuple[torch.cuda.CUDAGraph, StepOutputs]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given = step()
    return graph, given


@pytest.mark.parametrize(("rows", "pad"), [(1, 0), (5, 3), (16, 0), (30, 2)])
@torch.inference_mode()
def test_a_captured_step_speaks_what_an_eager_one_speaks(rows: int, pad: int) -> None:
    device, dtype = torch.device("cuda"), torch.bfloat16
    model = drawn(lambda: LanguageModel(CONFIG), 0, device=device, dtype=dtype).pack()
    backbone = Backbone(model, SpeechTokens.after_bytes(512), device, dtype)
    batch = batch_of(backbone, rows, pad)
    seen = batch.tensors["seen"]
    eager = {port: value.clone() for port, value in backbone.step(batch).ports.items()}
    counted = seen.clone()
    graph, given = captured(lambda: backbone.step(batch))
    seen.zero_()
    graph.replay()
    for port, value in eager.items():
        assert torch.equal(given.ports[port][:rows], value[:rows]), port
    kept = batch.rows[:rows].long()
    assert torch.equal(seen[kept], counted[kept])
    assert given.finite is not None
    assert given.finite[:rows].all()
    assert alone(backbone, batch, rows - 1) == int(eager["token"][rows - 1])


def alone(backbone: Backbone, batch: StepBatch, row: int) -> int:
    """The result of a row of the batch when it runs in its own batch."""

    def one(value: Tensor) -> Tensor:
        return value[row : row + 1]

    batch.tensors["seen"].zero_()
    slot = batch.paged["kv"]
    single = StepBatch(
        rows=one(batch.rows),
        inputs={"token": one(batch.inputs["token"])},
        params={name: one(value) for name, value in batch.params.items()},
        seed=one(batch.seed),
        iteration=one(batch.iteration),
        paged={"kv": PagedSlot(slot.k, slot.v, slot.rows._replace(rows=one(slot.rows.rows)))},
        tensors=batch.tensors,
    )
    return int(backbone.step(single).ports["token"][0])
