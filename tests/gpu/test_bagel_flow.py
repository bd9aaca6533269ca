"""On a GPU: BAGEL's flow step as a CUDA graph, with edges parallel to the latents or not, and on two GPUs that share
the latents, against the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.shards import in_processes
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch
from walkgraph.architectures.drawn import drawn
from walkgraph.collectives.base import Shard
from walkgraph.collectives.joining import join
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.models.bagel.flow import FlowStep, Part
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import Backbone
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.rows import EDGES

pytest.importorskip("flashinfer")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

TINY = BAGEL["bagel-tiny"]
CONFIG = replace(
    TINY, llm=replace(TINY.llm, width=512, hidden=1024, layers=4, heads=6, kv_heads=2, head_dim=128), latent_side=24
)
CONTEXTS = [0, 37, 130]
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def model(device: torch.device, dtype: torch.dtype) -> Bagel:
    return drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).to(device, dtype).pack()


def batch(
    here: Bagel,
    contexts: list[int],
    device: torch.device,
    dtype: torch.dtype,
    side: int = 20,
    queries: int | None = None,
) -> StepBatch:
    """Rows behind random contexts of these lengths, the same on every device."""
    shape, dice = Backbone(here, device, dtype).caches()["kv"], torch.Generator().manual_seed(3)
    pool, held = Pool(shape, sum(pages_for(n) for n in contexts) + 1, device), list[ContextSequence]()
    for index, length in enumerate(contexts):
        first = 1 + sum(len(one.pages) for one in held)
        held.append(ContextSequence(list(range(first, first + pages_for(length))), length, 3 * index, index))
        size = 2, shape.layers, length, shape.kv_heads, shape.head_dim
        if length:
            pool.write(held[-1].pages, torch.randn(size, generator=dice))
    rows, tokens = len(contexts), side * side + EDGES
    room = DenseContext(pool, rows, tokens, capacity_for(contexts, rows, tokens), queries)
    room.place(held)
    nothing = torch.zeros(rows, dtype=torch.int64, device=device)
    tables = PagedRows(nothing.int(), nothing[:, None].int(), nothing.int(), nothing.int())
    latents = torch.randn(rows, side, side, CONFIG.latent_channels, generator=dice)
    return StepBatch(
        rows=nothing.int(),
        inputs={"latents": latents.to(device)},
        params={"time": torch.linspace(0.3, 1, rows).to(device)},
        seed=nothing,
        iteration=nothing,
        paged={"kv": PagedSlot((), (), tables, room)},
    )


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found.cpu() - wanted).norm() / wanted.norm())


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 3])
def test_a_captured_step_gives_the_velocities_of_a_cpu(rows: int) -> None:
    contexts = CONTEXTS[-rows:]
    plain = model(CPU, torch.float32)
    wanted = FlowStep(plain)(batch(plain, contexts, CPU, torch.float32)).ports["velocity"]
    here = model(GPU, torch.bfloat16)
    given, capture = batch(here, contexts, GPU, torch.bfloat16), Capturer(GPU)
    found: dict[str, Tensor] = {}
    for name, step in {
        "in order": FlowStep(here, overlap=False),
        "beside": FlowStep(here, overlap=True),
        "before": FlowStep(here, overlap=True, priority=-1),
    }.items():
        made: list[Tensor] = []

        def work(step: FlowStep = step, made: list[Tensor] = made) -> None:
            made[:] = [step(given).ports["velocity"]]

        replay = capture(work, name)
        for latents in (torch.zeros_like(given.inputs["latents"]), given.inputs["latents"].clone()):
            given.inputs["latents"].copy_(latents)
            replay()
        assert made[0].dtype == torch.float32
        found[name] = made[0].clone()
    assert not capture.failed
    assert off(found["in order"], wanted) < 0.02
    assert torch.equal(found["in order"], found["beside"])
    assert torch.equal(found["in order"], found["before"])


@torch.inference_mode()
def test_rows_together_are_rows_alone() -> None:
    here = model(GPU, torch.bfloat16)
    given, step = batch(here, CONTEXTS, GPU, torch.bfloat16), FlowStep(here)
    together = step(given).ports["velocity"]
    for index, length in enumerate(CONTEXTS):
        # The same numbers behind the same context: a row of the pool's beginning, so drawn for it alone.
        one = batch(here, CONTEXTS[: index + 1], GPU, torch.bfloat16)
        one.inputs["latents"].copy_(given.inputs["latents"][: index + 1])
        one.params["time"].copy_(given.params["time"][: index + 1])
        alone = step(one).ports["velocity"][index]
        assert off(alone, together[index].cpu()) < 0.01, length


def shared_step(index: int, count: int, at: str, side: int) -> list[np.ndarray]:
    torch.cuda.set_device(index)
    shard = join(Path(at), index, count, torch.device("cuda", index))
    # Graphs with its collectives are gone when it is closed.
    found = launched_and_replayed(shard, torch.device("cuda", index), side)
    shard.close()
    return found


@torch.inference_mode()
def launched_and_replayed(shard: Shard, device: torch.device, side: int) -> list[np.ndarray]:
    """The velocities that one shard of a group has, from one launch and from two replays of another."""
    here, capture, made = model(device, torch.bfloat16), Capturer(device), list[Tensor]()
    queries = Part.of(side * side, shard).count + EDGES
    given, step = batch(here, CONTEXTS, device, torch.bfloat16, side, queries), FlowStep(here, shard)

    def work() -> None:
        made[:] = [step(given).ports["velocity"]]

    work()
    found = [made[0].cpu().numpy()]
    replay = capture(work, "a shared step")
    for _ in range(2):
        replay()
        found.append(made[0].cpu().numpy())
    assert not capture.failed
    return found


@torch.inference_mode()
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("side", [20, 19])
def test_two_gpus_share_a_step(side: int, tmp_path: Path) -> None:
    """With a side of 19, the second GPU has one latent less."""
    plain = model(CPU, torch.float32)
    wanted = FlowStep(plain)(batch(plain, CONTEXTS, CPU, torch.float32, side)).ports["velocity"]
    one, other = in_processes(2, shared_step, str(tmp_path / "group"), side)
    for velocity in (*one, *other):
        assert off(torch.from_numpy(velocity), wanted) < 0.02
        assert velocity.tobytes() == one[0].tobytes(), "equal bits on both, launched or replayed"
