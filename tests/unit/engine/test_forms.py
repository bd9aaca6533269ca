"""Loops whose iterations differ: uses with conditions, equal branches, branches as one batch, blocks over contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.loop_calls import LoopInput, WrittenUse, body_of, rewritten, written
from tests.unit.engine.plans import engine_of, plan_of
from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import CacheShape, Segment, States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.body import SKIPPED, Form, Forms
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.models.synthetic import operators as synthetic

N, D = 3, 4
GRID = Row((N, D), torch.float64)
FEEDS = ("velocity", "velocity_text", "velocity_img")
ROWS: list[int] = []
"""Rows of every call of `Branch.step`."""


class Branch(Operator):
    """Attends latents and the context, which `fill` appends; keys and values are the tokens themselves."""

    def caches(self) -> dict[str, CacheShape]:
        return {"kv": CacheShape(layers=1, kv_heads=1, head_dim=D, dtype=torch.float64)}

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return StepSpec(
            inputs={"latents": GRID},
            outputs={"velocity": GRID},
            params={"time": torch.float32},
            appends={"kv": 0},
            scratch={"kv": N},
            sizes=(1, 2, 4),
            pure=True,
            together=bool(params["together"]),
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        block = batch.paged["kv"].block
        assert block is not None
        x = batch.inputs["latents"] + batch.params["time"][:, None, None]
        ROWS.append(len(x))
        where = batch.paged["kv"].rows
        assert block.positions.tolist() == where.positions[where.rows.long()].tolist()
        flat = x.flatten(0, 1)[:, None]
        block.k[0].index_copy_(0, block.slots, flat)
        block.v[0].index_copy_(0, block.slots, flat)
        return StepOutputs({"velocity": block(0, flat).view(x.shape)})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        for call in calls:
            fill = call.inputs["fill"]
            rows = torch.arange(len(fill))
            attend = states.attend([Segment(call.states["kv"], rows, "block", advance=1)])
            attend(0, fill[:, None], fill[:, None], fill[:, None])
            states.commit(attend)
        return [{} for _ in calls]


class Combine(Operator):
    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        ports = dict.fromkeys(("latents", *FEEDS), GRID)
        return StepSpec(inputs=ports, outputs={"latents": GRID, "norm": Row((), torch.float64)})

    def step(self, batch: StepBatch) -> StepOutputs:
        x = combined(batch.inputs["latents"], *(batch.inputs.get(name) for name in FEEDS))
        return StepOutputs({"latents": x, "norm": x.flatten(1).norm(dim=1)})


def combined(x: Tensor, v: Tensor | None, text: Tensor | None, img: Tensor | None) -> Tensor:
    for scale, one in ((0.1, v), (0.2, text), (-0.3, img)):
        x = x if one is None else x - scale * one
    return x


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(synthetic, "BranchForTest", Branch, raising=False)
    monkeypatch.setattr(synthetic, "CombineForTest", Combine, raising=False)
    ROWS.clear()
    return engine()


def engine() -> Engine:
    nodes: dict[str, tuple[str, dict[str, str]]] = {
        name: ("walkgraph.models.synthetic.operators:BranchForTest", {"kv": state})
        for name, state in (("llm", "main"), ("text", "cfg_text"), ("img", "cfg_img"))
    }
    plan = plan_of({**nodes, "combine": ("walkgraph.models.synthetic.operators:CombineForTest", {})}, kv_bytes=1 << 18)
    return engine_of(plan)


def filled(engine: Engine, run: str, state: str, context: Tensor) -> None:
    node = {"main": "llm", "cfg_text": "text", "cfg_img": "img"}[state]
    call = Call(run, node, "w", 0, 0, (), {"fill": context}, {}, {"kv": StateKey(run, state)}, 0)
    engine.add(call)
    while not engine.idle:
        engine.step()


def context(seed: int, length: int) -> Tensor:
    return torch.randn(length, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def latents(seed: int) -> Tensor:
    return context(seed, N)


def loop(
    run: str,
    x: Tensor,
    times: Sequence[float],
    *,
    text: tuple[bool, ...] | None = None,
    img: tuple[bool, ...] | None = None,
    together: bool = True,
    wanted: tuple[bool, ...] | None = None,
) -> LoopCall:
    def branch(node: str, state: str, active: tuple[bool, ...] | None) -> WrittenUse:
        port = LoopInput("latents", "value", x, carried=(3, "latents"))
        params, varying = {"together": together}, {"time": tuple(times)}
        return WrittenUse(node, (port,), params, varying, {"kv": StateKey(run, state)}, hash(node) % 97, active)

    feeds = tuple(LoopInput(port, "use", use=use, output="velocity") for use, port in enumerate(FEEDS))
    combine = WrittenUse("combine", (LoopInput("latents", "value", x, carried=(3, "latents")), *feeds), {}, {}, {}, 0)
    body = (branch("llm", "main", None), branch("text", "cfg_text", text), branch("img", "cfg_img", img), combine)
    outputs = (
        LoopOutput("norm", 3, "norm", "each"),
        LoopOutput("x", 3, "latents", "last"),
        LoopOutput("v", 1, "velocity", "last"),
    )
    return written(
        run, "w", 0, 0, "denoise", (), body, len(times), None, outputs, grain=1,
        wanted={} if wanted is None else {"norm": wanted},
    )  # fmt: skip


def serve(engine: Engine, *calls: LoopCall) -> tuple[dict[str, list[Any]], dict[str, LoopDone]]:
    ROWS.clear()
    for call in calls:
        engine.add_loop(call)
    each: dict[str, list[Any]] = {}
    done: dict[str, LoopDone] = {}
    while not engine.idle:
        for event in engine.step():
            if isinstance(event, Items):
                each.setdefault(event.call.run, []).extend(event.values["norm"])
            elif isinstance(event, LoopDone):
                assert event.error is None, event.error
                done[event.call.run] = event
    return each, done


def attended(x: Tensor, past: Tensor) -> Tensor:
    keys = torch.cat([past, x])
    return F.scaled_dot_product_attention(x[None], keys[None], keys[None])[0]


def naive(
    x: Tensor, times: Sequence[float], contexts: Sequence[Tensor], masks: Sequence[tuple[bool, ...] | None]
) -> Tensor:
    for k, time in enumerate(times):
        shown = x + torch.tensor(time, dtype=torch.float32)
        vs = [attended(shown, c) if m is None or m[k] else None for c, m in zip(contexts, masks, strict=True)]
        x = combined(x, *vs)
    return x


TIMES = (0.9, 0.7, 0.4, 0.2, 0.1)
GUIDED = (True, True, True, False, False)
NEVER = (False,) * 5


@pytest.mark.parametrize("together", [True, False])
def test_branches_are_called_in_the_iterations_that_want_them_each_over_its_own_context(
    here: Engine, together: bool
) -> None:
    contexts = [context(1, 20), context(2, 5), context(3, 33)]
    for state, tokens in zip(("main", "cfg_text", "cfg_img"), contexts, strict=True):
        filled(here, "a", state, tokens)
    late = (False, True, False, True, False)
    call = loop("a", latents(9), TIMES, text=GUIDED, img=late, together=together)
    each, done = serve(here, call)
    outputs = done["a"].outputs
    assert outputs is not None
    torch.testing.assert_close(outputs["x"], naive(latents(9), TIMES, contexts, [None, GUIDED, late]))
    assert float(each["a"][-1]) == pytest.approx(float(outputs["x"].norm()))
    assert "v" not in outputs, "its last iteration gave none"
    assert ([2, 3, 2, 2, 1] if together else [1] * 10) == ROWS
    kept = here.transfers.export(StateKey("a", "main"))
    assert kept["counters"].tolist() == [[20, 1]], "blocks are not kept"
    here.drop("a")
    here.states.audit()


def test_a_branch_that_is_equal_to_another_is_not_computed_twice(here: Engine) -> None:
    past, other = context(1, 20), context(2, 7)
    filled(here, "a", "main", past)
    filled(here, "a", "cfg_text", other)
    here.transfers.fork(StateKey("a", "main"), StateKey("a", "cfg_img"))
    _, done = serve(here, loop("a", latents(9), TIMES, text=GUIDED))
    outputs = done["a"].outputs
    assert outputs is not None
    torch.testing.assert_close(outputs["x"], naive(latents(9), TIMES, [past, other, past], [None, GUIDED, None]))
    assert ROWS == [2, 2, 2, 1, 1]


def test_runs_in_the_same_form_share_a_batch_and_get_what_they_get_alone(here: Engine) -> None:
    runs = {f"r{i}": (context(i, 4 + 3 * i), context(50 + i, 1 + i), latents(80 + i)) for i in range(5)}
    masks = {run: GUIDED if i % 2 else NEVER for i, run in enumerate(runs)}
    for run, (past, other, _) in runs.items():
        filled(here, run, "main", past)
        filled(here, run, "cfg_text", other)
    calls = [loop(run, x, TIMES, text=masks[run], img=NEVER) for run, (_, _, x) in runs.items()]
    _, done = serve(here, *calls)
    for run, (past, other, x) in runs.items():
        outputs = done[run].outputs
        assert outputs is not None
        wanted = naive(x, TIMES, [past, other, past], [None, masks[run], NEVER])
        torch.testing.assert_close(outputs["x"], wanted)
    assert max(ROWS) > 2, "runs that are to do the same ride together"
    assert done["r1"].batch > 1


def test_a_suspended_loop_goes_on_over_its_context_wherever_that_lies_now(here: Engine) -> None:
    past, other = context(1, 20), context(2, 7)
    filled(here, "a", "main", past)
    filled(here, "a", "cfg_text", other)
    here.add_loop(loop("a", latents(9), TIMES, text=GUIDED, img=NEVER))
    here.step()
    here.swap.suspend("a")
    while not here.idle:
        here.step()
    filled(here, "b", "main", context(5, 40))  # takes the pages that it had
    here.swap.resume("a")
    done: list[LoopDone] = []
    while not here.idle:
        done += [event for event in here.step() if isinstance(event, LoopDone)]
    outputs = done[0].outputs
    assert outputs is not None
    torch.testing.assert_close(outputs["x"], naive(latents(9), TIMES, [past, other, past], [None, GUIDED, NEVER]))


def test_values_that_nobody_wants_are_not_handed_out(here: Engine) -> None:
    filled(here, "a", "main", context(1, 20))
    wanted = (False, True, False, False, True)
    call = loop("a", latents(9), TIMES, text=NEVER, img=NEVER, wanted=wanted)
    each, _ = serve(here, call)
    assert [value is not None for value in each["a"]] == list(wanted)


def test_values_come_in_the_dtype_that_they_leave_in(here: Engine) -> None:
    """A run that has not asked for it is beside, in the tables of the same slots."""
    for run in ("half", "whole"):
        filled(here, run, "main", context(1, 20))
    wanted = (True, False, True, False, True)
    whole = loop("whole", latents(9), TIMES, text=NEVER, img=NEVER)
    half = loop("half", latents(9), TIMES, text=NEVER, img=NEVER, wanted=wanted)
    half.sent_as = {"norm": "float16", "v": "float16"}
    each, done = serve(here, whole, half)
    assert [value is not None for value in each["half"]] == list(wanted)
    for found, right, there in zip(each["half"], each["whole"], wanted, strict=True):
        assert not there or (found.dtype, found) == (torch.float16, right.half())
    assert {value.dtype for value in each["whole"]} == {torch.float64}
    assert torch.equal(done["half"].outputs["x"], done["whole"].outputs["x"])  # type: ignore[index]


def test_a_value_that_others_read_keeps_its_dtype(here: Engine) -> None:
    filled(here, "a", "main", context(1, 20))
    call = loop("a", latents(9), TIMES, text=NEVER, img=NEVER)
    outputs = (*call.spec.outputs, LoopOutput("again", 3, "norm", "collect"))
    both = rewritten(call, outputs=outputs)
    both.sent_as = {"norm": "float16"}
    each, _ = serve(here, both)
    assert {value.dtype for value in each["a"]} == {torch.float64}


@pytest.mark.parametrize(("slices", "ends"), [(3, 5), (2, 2)])
def test_slices_need_reach_only_as_far_as_they_are_read(here: Engine, slices: int, ends: int) -> None:
    past, other = context(1, 20), context(2, 7)
    filled(here, "a", "main", past)
    filled(here, "a", "cfg_text", other)
    shown = torch.stack([latents(20 + k) for k in range(slices)])
    call = loop("a", latents(9), TIMES, text=GUIDED, img=NEVER)
    fed = replace(body_of(call)[1], inputs=(LoopInput("latents", "each", shown),))
    here.add_loop(rewritten(call, body=(body_of(call)[0], fed, *body_of(call)[2:])))
    events: list[Any] = []
    while not here.idle:
        events += here.step()
    (done,) = [event for event in events if isinstance(event, LoopDone)]
    assert done.iterations == ends
    if ends < len(TIMES):
        assert done.error is not None
        assert done.error.message == "`text.latents` has 2 slices, but the loop runs longer"
        return
    x = latents(9)
    for k, time in enumerate(TIMES):
        at = torch.tensor(time, dtype=torch.float32)
        text = attended(shown[k] + at, other) if GUIDED[k] else None
        x = combined(x, attended(x + at, past), text, None)
    assert done.outputs is not None
    torch.testing.assert_close(done.outputs["x"], x)


def test_inputs_without_a_step_are_named_with_their_shapes(here: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Branch, "step_spec", lambda self, inputs, params: None)
    here.add_loop(loop("a", latents(9), TIMES))
    (done,) = [event for event in here.step() if isinstance(event, LoopDone)]
    assert done.error is not None
    assert done.error.message == "`llm` can't be iterated on `latents` [3, 4]; feed it as it declares"


def test_forms_tell_how_many_iterations_are_alike() -> None:
    one, other = Form((0, 1), ()), Form((0, SKIPPED), ())
    forms = Forms([one, one, other, one])
    assert [forms.alike(k, 8) for k in range(5)] == [2, 1, 1, 8, 8]
    assert [forms.counts(0, end)[one] for end in range(5)] == [0, 1, 2, 2, 3]
    assert Forms([one]).counts(3, 10) == {one: 7}
