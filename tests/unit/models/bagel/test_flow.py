"""BAGEL's flow step on a tiny random model: it gives the velocities that `forward` gives, and guidance is its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import Tensor

from tests.support.shards import Imagined, in_threads
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.abi.calls import StateKey
from walkgraph.abi.step import PagedRows, PagedSlot, Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.drawn import drawn
from walkgraph.collectives.base import Shard
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.load import load_operators
from walkgraph.ids import Rank
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import FlowLinears, PlainFlowLinears
from walkgraph.models.bagel.flow import FlowStep, flow_spec
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import Backbone
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.rows import EDGES
from walkgraph.starters.shapes.context import Context

CPU = torch.device("cpu")
CONFIG = BAGEL["bagel-tiny"]
GREEDY: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}


def room_of(engine: Engine, states: Sequence[StateKey], cells: int, shards: int = 1) -> DenseContext:
    """Rooms behind the contexts of an engine's states, for one of so many shards."""
    shape, held = Backbone(drawn_model(), CPU, torch.float32).caches()["kv"], []
    pool = Pool(shape, 8 * len(states), CPU)
    for index, key in enumerate(states):
        state = engine.transfers.export(key)
        length, position = state["counters"][0].long().tolist() if state else (0, 0)
        pages = list(range(8 * index + 1, 8 * index + 1 + pages_for(length)))
        if state:
            pool.write(pages, state["kv.0"])
        held.append(ContextSequence(pages, length, position, key))
    tokens = cells + EDGES
    capacity, queries = capacity_for([row.length for row in held], len(states), tokens), -(-cells // shards) + EDGES
    room = DenseContext(pool, len(states), tokens, capacity, queries)
    room.place(held)
    return room


def drawn_model() -> Bagel:
    return drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).pack()


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn_model()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(
        plan_of({"llm": ("walkgraph.models.bagel.operators:Backbone", {"kv": "main"})}, source="random:bagel-tiny:5")
    )


def noise(seed: int, height: int, width: int) -> Tensor:
    return torch.randn(height, width, CONFIG.latent_channels, generator=torch.Generator().manual_seed(seed))


def begin(engine: Engine, run: str) -> StateKey:
    """A context of its own for every run: of texts and pictures, of a text alone, or none."""
    dice = torch.Generator().manual_seed(sum(run.encode()))
    if engine.transfers.export(StateKey(run, "main")):
        return StateKey(run, "main")
    if "pictures" in run:
        clean = torch.randn(2, 3, CONFIG.latent_channels, generator=dice)
        outputs(engine, call("llm", {"clean": clean}, run=run, states={"kv": "main"}, **GREEDY))
        seen = torch.randn(9, CONFIG.llm.width, generator=dice)
        outputs(engine, call("llm", {"image": seen}, run=run, states={"kv": "main"}, **GREEDY))
    if "text" in run:
        ids = torch.randint(0, 256, (3 + len(run),), generator=dice)
        outputs(engine, call("llm", {"ids": ids}, run=run, states={"kv": "main"}, **GREEDY))
    return StateKey(run, "main")


def plain(engine: Engine, run: str, x: Tensor, time: float) -> Tensor:
    return outputs(engine, call("llm", {"latents": x}, run=run, states={"kv": "main"}, time=time))[0]["velocity"]


def batch_of(
    engine: Engine, runs: Sequence[str], latents: Tensor, times: Sequence[float], shards: int = 1
) -> StepBatch:
    room = room_of(engine, [begin(engine, run) for run in runs], latents.shape[1] * latents.shape[2], shards)
    return batch_in(room, latents, times)


def batch_in(room: DenseContext, latents: Tensor, times: Sequence[float]) -> StepBatch:
    nothing = torch.zeros(len(latents), dtype=torch.int64)
    tables = PagedRows(nothing.int(), nothing[:, None].int(), nothing.int(), nothing.int())
    return StepBatch(
        rows=nothing.int(),
        inputs={"latents": latents},
        params={"time": torch.tensor(times)},
        seed=nothing,
        iteration=nothing,
        paged={"kv": PagedSlot((), (), tables, room)},
    )


def stepped(step: FlowStep, batch: StepBatch) -> StepOutputs:
    with torch.inference_mode():
        return step(batch)


@pytest.mark.parametrize("runs", [["text"], ["pictures, text", "none"], ["none", "text", "pictures"]])
@pytest.mark.parametrize("cells", [(3, 5), (8, 8), (1, 1)])
def test_velocities_are_those_of_forward(engine: Engine, model: Bagel, runs: list[str], cells: tuple[int, int]) -> None:
    names = [f"{run} {index} {cells}" for index, run in enumerate(runs)]
    latents, times = torch.stack([noise(i, *cells) for i in range(len(runs))]), [0.3, 1.0, 0.71][: len(runs)]
    found = stepped(FlowStep(model), batch_of(engine, names, latents, times))
    assert found.finite is None
    for name, x, time, mine in zip(names, latents, times, found.ports["velocity"], strict=True):
        torch.testing.assert_close(mine, plain(engine, name, x, time), rtol=1e-4, atol=1e-5)


def test_edges_go_through_all_layers_but_the_last() -> None:
    """Four layers, so that what edges attend in a layer is read in a later one, against contiguous caches."""
    config = replace(CONFIG, llm=replace(CONFIG.llm, layers=4))
    deep = drawn(lambda: Bagel(config), 6, device=CPU, dtype=torch.float32).pack()
    x, ids = torch.stack([noise(3, 2, 3), noise(4, 2, 3)]), torch.randint(0, 256, (2, 7))
    with torch.inference_mode():
        context, _ = Context.empty(deep, 2).text(ids, torch.ones(2, 7, dtype=torch.bool))
        wanted = context.velocity(x.flatten(1, 2), torch.tensor([0.8, 0.2]), (2, 3)).view(x.shape)
        pool = Pool(Backbone(deep, CPU, torch.float32).caches()["kv"], 2, CPU)
        for row in range(2):
            kept = torch.stack([torch.stack([layer[part][row] for layer in context.past]) for part in range(2)])
            pool.write([row + 1], kept)
        room = DenseContext(pool, 2, 8, capacity_for([7, 7], 2, 8))
        room.place([ContextSequence([row + 1], 7, 7, row) for row in range(2)])
        found = FlowStep(deep)(batch_in(room, x, [0.8, 0.2])).ports["velocity"]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_views_of_one_run_are_rows_of_one_batch(engine: Engine, model: Bagel) -> None:
    """The same latents behind other contexts: what `together` makes of the branches of guidance."""
    x, names = noise(9, 4, 2), ["view, text", "view, none", "view, pictures, text"]
    found = stepped(FlowStep(model), batch_of(engine, names, torch.stack([x] * 3), [0.5] * 3)).ports["velocity"]
    alone = [stepped(FlowStep(model), batch_of(engine, [n], x[None], [0.5])).ports["velocity"][0] for n in names]
    for name, mine, other in zip(names, found, alone, strict=True):
        torch.testing.assert_close(mine, plain(engine, name, x, 0.5), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def test_the_operator_chooses_its_step_by_the_port(engine: Engine, model: Bagel) -> None:
    backbone = Backbone(model, CPU, torch.float32)
    spec = backbone.step_spec({"latents": noise(0, 3, 5)}, {})
    assert spec is not None
    row = Row((3, 5, CONFIG.latent_channels), torch.float32)
    assert (spec.inputs, spec.outputs) == ({"latents": row}, {"velocity": row})
    assert (spec.appends, spec.advances, spec.scratch) == ({"kv": 0}, {}, {"kv": 17})
    assert spec.pure
    assert spec.together
    batch = batch_of(engine, ["chosen, text"], noise(1, 3, 5)[None], [0.4])
    with torch.inference_mode():
        found = backbone.step(batch).ports["velocity"]
    torch.testing.assert_close(found, stepped(FlowStep(model), batch).ports["velocity"])
    token = backbone.step_spec({"token": torch.tensor([1])}, {})
    assert token is not None
    assert token.appends == {"kv": 1}
    assert [tuple(one["latents"].shape) for one in backbone.step_examples() if "latents" in one] == [(8, 8, 16)]
    assert all(backbone.step_spec(one, {}) is not None for one in backbone.step_examples())


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"ids": torch.tensor([1])},
        {"latents": torch.zeros(9, 2, 16)},
        {"latents": torch.zeros(2, 2, 3)},
        {"latents": torch.zeros(0, 2, 16)},
        {"latents": torch.zeros(2, 2, 16), "token": torch.tensor([1])},
    ],
)
def test_what_is_no_flow_step_is_left_to_others(model: Bagel, inputs: dict[str, Any]) -> None:
    assert flow_spec(model, inputs) is None


def test_large_pictures_are_captured_in_small_batches() -> None:
    class Big:
        config = BAGEL["bagel-7b-mot"]

    def sizes(side: int) -> tuple[int, ...] | None:
        spec: StepSpec | None = flow_spec(Big(), {"latents": torch.empty(side, side, 64)})  # type: ignore[arg-type]
        assert spec is not None
        return spec.sizes

    assert [sizes(side) for side in (16, 32, 64)] == [(1, 2, 4, 8, 16), (1, 2, 4, 8), (1, 2, 4)]


def test_an_unpacked_model_and_a_batch_without_blocks_are_refused(engine: Engine, model: Bagel) -> None:
    with pytest.raises(RuntimeError, match="pack"):
        FlowStep(drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32))
    batch = batch_of(engine, ["refused, text"], noise(1, 2, 2)[None], [0.4])
    slot = batch.paged["kv"]._replace(block=None)
    with pytest.raises(RuntimeError, match="block"):
        FlowStep(model)(StepBatch(**{**vars(batch), "paged": {"kv": slot}}))


Calls = list[tuple[str, tuple[int, ...]]]


class Told:
    """Plain linears that tell their calls, with the shape of what they are handed."""

    def __init__(self, told: Calls, layer: DecoderLayer, suffix: str) -> None:
        self.plain: FlowLinears = PlainFlowLinears(layer, suffix)
        self._told = told

    def qkv(self, x: Tensor) -> Tensor:
        self._told.append(("qkv", tuple(x.shape)))
        return self.plain.qkv(x)

    def o(self, heads: Tensor, x: Tensor) -> None:
        self._told.append(("o", tuple(heads.shape)))
        self.plain.o(heads, x)

    def mlp(self, x: Tensor) -> None:
        self._told.append(("mlp", tuple(x.shape)))
        self.plain.mlp(x)


def test_the_linears_are_one_choice_of_several(engine: Engine, model: Bagel) -> None:
    """A layer's products go through what they are handed, once each; heads come block by block."""
    told: Calls = []
    batch = batch_of(engine, ["a, text", "b, none"], torch.stack([noise(1, 3, 2), noise(2, 3, 2)]), [0.4, 0.6])
    found = stepped(FlowStep(model, linears=partial(Told, told)), batch).ports["velocity"]
    assert torch.equal(found, stepped(FlowStep(model), batch).ports["velocity"])
    assert told == [("qkv", (12, 32)), ("o", (2, 6, 32)), ("mlp", (12, 32))] * CONFIG.llm.layers


# ── shards of a sequence-parallel group ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("runs", [["text"], ["pictures, text", "none", "text"]])
@pytest.mark.parametrize(("cells", "count", "each"), [((4, 6), 2, 12), ((3, 5), 2, 8), ((3, 5), 4, 4), ((1, 2), 3, 1)])
def test_shards_compute_their_part_of_the_latents(
    engine: Engine, model: Bagel, tmp_path: Path, runs: list[str], cells: tuple[int, int], count: int, each: int
) -> None:
    names = [f"shards, {run} {index} {cells}" for index, run in enumerate(runs)]
    latents, times = torch.stack([noise(i, *cells) for i in range(len(runs))]), [0.3, 1.0, 0.71][: len(runs)]
    wanted = stepped(FlowStep(model), batch_of(engine, names, latents, times)).ports["velocity"]
    batches = [batch_of(engine, names, latents, times, count) for _ in range(count)]

    def work(shard: Shard) -> tuple[Tensor, Calls]:
        told: Calls = []
        step = FlowStep(model, shard, linears=partial(Told, told))
        return stepped(step, batches[shard.index]).ports["velocity"], told

    rows = each * len(runs)
    for velocity, told in in_threads(tmp_path / "group", count, work):
        torch.testing.assert_close(velocity, wanted, rtol=1e-5, atol=1e-6)
        assert told == [("qkv", (rows, 32)), ("o", (len(runs), each, 32)), ("mlp", (rows, 32))] * CONFIG.llm.layers


@pytest.mark.parametrize(("divides", "count", "queries"), [(True, 2, 10), (True, 3, 8), (False, 2, 18)])
def test_a_rank_of_a_group_asks_for_its_latents_and_all_edges(divides: bool, count: int, queries: int) -> None:
    """16 latents and two edges; a group that divides weights has them all."""
    plan = plan_of({"llm": ("walkgraph.models.bagel.operators:Backbone", {})}, source="random:bagel-tiny:5")
    here = structs.replace(plan.ranks[0], shards=tuple(map(Rank, range(count))), sequence_parallel=divides)
    loaded = load_operators(plan, here, (), lambda what, done: None, shard=Imagined(count=count))
    spec = loaded["llm"].operator.step_spec({"latents": torch.zeros(4, 4, 16)}, {})
    assert spec is not None
    assert (spec.scratch, spec.queries) == ({"kv": 18}, {"kv": queries})
