"""BAGEL's step of one token on a tiny random model: it writes what `forward` writes, after texts and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch, StepOutputs
from walkgraph.architectures.drawn import drawn
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.pool import Pool
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.operators import Backbone
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.tokens import token_spec, token_step

CPU = torch.device("cpu")
CONFIG = BAGEL["bagel-tiny"]
GREEDY: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
HOWS: list[dict[str, Any]] = [
    GREEDY,
    {**GREEDY, "temperature": 1.3},
    {"temperature": 0.8, "top_k": 20, "top_p": 1.0},
    {"temperature": 1.5, "top_k": 0, "top_p": 0.7},
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(
        plan_of({"llm": ("walkgraph.models.bagel.operators:Backbone", {"kv": "main"})}, source="random:bagel-tiny:5")
    )


@pytest.fixture(scope="module")
def model() -> Bagel:
    return drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).pack()


def llm(port: str, value: Tensor, run: str, how: Mapping[str, Any], at: int = 0) -> Call:
    return call(
        "llm", {port: value}, run=run, states={"kv": "main"}, iteration=(at,), draws=3 + sum(run.encode()), **how
    )


def begin(engine: Engine, run: str, how: Mapping[str, Any]) -> Tensor:
    """A context of its own for every run, of texts and of pictures of other lengths -> its first token."""
    dice = torch.Generator().manual_seed(sum(run.encode()))
    pictures = len(run) - 3
    for _ in range(pictures):
        cells = torch.randn(2, 1 + len(run), CONFIG.latent_channels, generator=dice)
        outputs(engine, llm("clean", cells, run, how))
        outputs(engine, llm("image", torch.randn(9, CONFIG.llm.width, generator=dice), run, how))
    text = torch.randint(0, 256, (2 + len(run),), generator=dice)
    return outputs(engine, llm("ids", text, run, how))[0]["token"]


class Stepped:
    """The tables that the engine holds for resident runs, filled from `forward`'s states."""

    def __init__(self, engine: Engine, model: Bagel, runs: Sequence[str], hows: Sequence[Mapping[str, Any]]) -> None:
        self.model, self.hows = model, [*hows, GREEDY]
        self.pool = Pool(Backbone(model, CPU, torch.float32).caches()["kv"], 8 * (len(runs) + 1), CPU)
        count = len(runs) + 1
        # The rows lie in the table in another order than in the batch; the last one pads.
        self.rows = torch.tensor([*reversed(range(len(runs))), count - 1], dtype=torch.int32)
        self.pages = torch.arange(1, 8 * count + 1, dtype=torch.int32).view(count, 8)
        self.lengths = torch.zeros(count, dtype=torch.int32)
        self.positions = torch.zeros(count, dtype=torch.int32)
        self.seed = torch.tensor([*(llm("ids", self.rows, run, GREEDY).seed for run in runs), 0])
        for run, row in zip(runs, self.rows.tolist(), strict=False):
            state = engine.transfers.export(StateKey(run, "main"))
            self.lengths[row], self.positions[row] = state["counters"][0].tolist()
            self.pool.write(self.pages[row].tolist(), state["kv.0"])

    def step(self, token: Tensor) -> StepOutputs:
        types = {"temperature": torch.float32, "top_k": torch.int64, "top_p": torch.float32}
        tables = PagedRows(self.rows, self.pages, self.lengths, self.positions)
        batch = StepBatch(
            rows=self.rows,
            inputs={"token": token},
            params={name: torch.tensor([how[name] for how in self.hows], dtype=types[name]) for name in types},
            seed=self.seed,
            iteration=torch.zeros(len(self.rows), dtype=torch.int64),
            paged={"kv": PagedSlot(self.pool.k, self.pool.v, tables)},
        )
        with torch.inference_mode():
            given = token_step(self.model, batch)
        self.lengths[self.rows[:-1].long()] += 1
        self.positions[self.rows[:-1].long()] += 1
        return given


def test_a_run_writes_the_same_by_step_as_by_forward(engine: Engine, model: Bagel) -> None:
    runs, steps = [f"run{'x' * i}" for i in range(len(HOWS))], 30
    first = torch.stack([begin(engine, run, how) for run, how in zip(runs, HOWS, strict=True)])
    stepped, token = Stepped(engine, model, runs, HOWS), torch.cat([first, torch.zeros_like(first[:1])])
    assert sorted((stepped.lengths - stepped.positions)[:-1].tolist())[::3] == [
        0,
        75,
    ]  # three pictures of 15 + 10 tokens too many
    written: list[Tensor] = []
    for at in range(steps):
        given, wanted = stepped.step(token), []
        for row, (run, how) in enumerate(zip(runs, HOWS, strict=True)):
            wanted += outputs(engine, llm("token", token[row], run, how, at))
        for row, one in enumerate(wanted):
            assert given.ports["token"][row].tolist() == one["token"].tolist(), (at, row)
            assert bool(given.ports["stop"][row]) == one["stop"]
        assert given.finite is not None
        assert given.finite.all()
        token = given.ports["token"]
        written.append(token[:-1, 0])
    assert len({tuple(row.tolist()) for row in torch.stack(written, 1)}) == len(runs)
    for run, row in zip(runs, stepped.rows.tolist(), strict=False):
        state, length = engine.transfers.export(StateKey(run, "main")), int(stepped.lengths[row])
        assert state["counters"][0].tolist() == [length, int(stepped.positions[row])]
        kept = stepped.pool.read(stepped.pages[row].tolist(), length)
        torch.testing.assert_close(kept, state["kv.0"], rtol=1e-4, atol=1e-5)
        engine.drop(run)


def test_the_end_of_a_text_stops(engine: Engine, model: Bagel) -> None:
    """A head that always says `eos`, and one that says NaN."""
    changed = drawn(lambda: Bagel(CONFIG), 5, device=CPU, dtype=torch.float32).pack()
    head, run = changed.language_model.lm_head, "stop"
    first = begin(engine, run, GREEDY)
    token = torch.stack([first, first])
    scale = changed.language_model.model.norm.weight
    scale.data.zero_()[0] = 1e9
    head.weight.data.zero_()
    head.weight.data[[CONFIG.tokens.eos, 3], 0] = torch.tensor([1.0, -1.0])
    given = Stepped(engine, changed, [run], [GREEDY]).step(token)
    assert given.ports["token"][0].item() in (CONFIG.tokens.eos, 3)
    assert bool(given.ports["stop"][0]) == (given.ports["token"][0].item() == CONFIG.tokens.eos)
    head.weight.data[[CONFIG.tokens.eos, 3], 0] *= -1
    other = Stepped(engine, changed, [run], [GREEDY]).step(token)
    assert {bool(one.ports["stop"][0]) for one in (given, other)} == {True, False}
    head.weight.data.fill_(torch.nan)
    broken = Stepped(engine, changed, [run], [GREEDY]).step(token)
    assert broken.finite is not None
    assert not broken.finite[0]
    assert broken.ports["token"][0].item() == 0
    engine.drop(run)


@pytest.mark.parametrize("token", [-1, CONFIG.llm.vocab])
def test_a_token_outside_of_the_vocabulary_is_told(engine: Engine, model: Bagel, token: int) -> None:
    first = begin(engine, "bad", GREEDY)
    given = Stepped(engine, model, ["bad"], [GREEDY]).step(torch.stack([torch.tensor([token]), first]))
    assert given.finite is not None
    assert given.finite.tolist() == [False, True]
    engine.drop("bad")


def test_only_a_token_alone_is_stepped(model: Bagel) -> None:
    token = torch.tensor([1])
    spec = token_spec(model, {"token": token, "ids": None}, GREEDY)
    assert spec is not None
    assert (dict(spec.appends), dict(spec.advances), set(spec.params)) == ({"kv": 1}, {"kv": 1}, set(GREEDY))
    assert token_spec(model, {"token": token, "ids": token}, GREEDY) is None
    assert token_spec(model, {"latents": torch.zeros(2, 2, 16)}, GREEDY) is None
