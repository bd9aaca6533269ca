"""Entering loops: given shapes, states that are wide or begin anew, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import nested as support
from tests.support.loop_calls import LoopInput, WrittenUse, body_of, rewritten, written
from tests.support.nested import F64, drawn, feed, held, unrolled
from tests.unit.engine import test_resident as walks
from tests.unit.engine.plans import engine_of, graphs_of
from tests.unit.engine.test_nested import check, entered, run_all
from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.abi.step import StepSpec
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.graphs import sizes_of, slots_of
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Anew, LoopCall, LoopOutput
from walkgraph.models.synthetic import operators as synthetic

SHAPE: dict[str, Any] = {"times": 3, "n": 2, "w": 3, "tokens": 7, "advance": 3}
ALIKE: dict[str, Any] = {"looks": [[True] * 2] * 9, "notes": [[True] * 2] * 9, **SHAPE}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "WalkForTest", walks.Walk, raising=False)
    for name, operator in support.OPERATORS.items():
        monkeypatch.setattr(synthetic, name, operator, raising=False)


@pytest.fixture
def here() -> Engine:
    return engine_of(support.plan(kv_bytes=1 << 20))


def failed(engine: Engine, call: LoopCall) -> tuple[str, str]:
    """Code and message."""
    _, done = run_all(engine, [call])
    error = done[call.run].error
    assert error is not None
    engine.drop(call.run)
    engine.states.audit()
    return error.code, error.message


def fill(engine: Engine, key: StateKey, *lengths: int) -> None:
    kv = {f"kv.{i}": torch.zeros(2, 1, n, 1, 1, dtype=F64) for i, n in enumerate(lengths)}
    engine.transfers.import_state(key, {"counters": torch.tensor([[n, n] for n in lengths]), **kv})


def grown(run: str, width: int, times: int = 3, tokens: int = 9) -> LoopCall:
    """Each iteration appends to `samples`, which stays, and has `width` sequences where it holds nothing yet."""
    x = LoopInput("x", "value", torch.arange(width, dtype=F64), carried=(0, "y"))
    use = WrittenUse("inner", (x,), {"tokens": tokens, "advance": 2}, {}, {"kv": StateKey(run, "samples")}, 0)
    outputs = (LoopOutput("end", 0, "y", "last"),)
    widths = {StateKey(run, "samples"): width}
    return written(run, "w", 0, 0, "l", (), (use,), times, None, outputs, widths=widths)


@pytest.mark.parametrize("length", [0, 5, 16])
def test_a_wide_state_grows_in_all_its_sequences(here: Engine, length: int) -> None:
    key = StateKey("a", "samples")
    state = [[0.0] * length for _ in range(3)], length
    if length:
        fill(here, key, *[length] * 3)
    _, done = run_all(here, [grown("a", 3), grown("b", 1)])
    x = [0.0, 1.0, 2.0]
    for i in range(3):
        x, state = support.kept(state, x, 9, 2, i)
    outputs = done["a"].outputs
    assert outputs is not None
    assert outputs["end"].tolist() == x
    assert held(here, "a", "samples") == state
    assert done["b"].error is None
    assert len(here.loops.groups) == 2, "slots of other widths lie in other tables"
    here.states.audit()


def test_sequences_of_different_lengths_are_refused(here: Engine) -> None:
    fill(here, StateKey("a", "samples"), 5, 6)
    code, message = failed(here, grown("a", 2))
    assert code == "node_error"
    assert message.startswith("the sequences of `samples` have different lengths")


def test_a_wide_loop_ends_where_its_sequences_together_are_full() -> None:
    here = engine_of(support.plan(capacity="n"))
    here.limits.admit("a", {"n": 40})
    fill(here, StateKey("a", "samples"), 2, 2)
    here.add_loop(grown("a", 2))
    done = [event for event in iterate(here) if isinstance(event, LoopDone)]
    assert done[0].iterations == 2
    assert done[0].error is not None
    assert "holds at most 20 tokens" in done[0].error.message


def iterate(engine: Engine) -> list[Any]:
    events: list[Any] = []
    while not engine.idle:
        events += engine.step()
    return events


def test_what_begins_anew_needs_room_for_one_iteration_alone() -> None:
    runs = {"a": drawn(1, **(ALIKE | {"times": 9}), context=[1.0] * 5, main=[])}
    here = engine_of(support.plan(capacity="n"))
    # 9 iterations append 7 tokens to `main`, each 4 * 7 to three sequences of `samples`.
    here.limits.admit("a", {"n": 3 * (5 + 28)})
    check(here, runs, *run_all(here, entered(here, runs)))
    here.limits.admit("a", {"n": 3 * (5 + 28) - 1})
    assert failed(here, *entered(here, runs))[0] == "invalid_input"


def test_pages_that_are_lacking_are_told_and_none_is_lost() -> None:
    here = engine_of(support.plan(kv_bytes=1 << 13))
    call = unrolled("a", drawn(1, **(ALIKE | {"w": 12, "tokens": 17}), context=[], main=[]))
    assert failed(here, call)[0] == "out_of_memory"
    assert here.pools.pages()[0] == here.pools.pages()[1]


def test_a_loop_that_finds_no_room_for_one_state_holds_none_for_another() -> None:
    """A session's states stay after its run."""
    here = engine_of(support.plan(kv_bytes=1 << 13))
    first, second = (StateKey("session:s", name) for name in ("main", "samples"))
    free, total = here.pools.pages()
    assert free == total
    fill(here, first, 3)
    x = LoopInput("x", "value", torch.zeros(1, dtype=F64))
    body = [
        WrittenUse("keep", (x,), {"tokens": 16, "advance": 1}, {}, {"kv": first}, 0),
        WrittenUse("inner", (x,), {"tokens": 16 * total, "advance": 1}, {}, {"kv": second}, 0),
    ]
    call = written("a", "w", 0, 0, "l", (), tuple(body), 2, None, (LoopOutput("end", 1, "y", "last"),))
    _, done = run_all(here, [call])
    assert done["a"].error is not None
    assert done["a"].error.code == "out_of_memory"
    assert here.pools.pages() == (free - 1, total)
    here.states.audit()


def test_tensors_and_caches_begin_anew_from_nothing() -> None:
    here = walks.engine()
    keys = StateKey("a", "main"), StateKey("a", "count")
    call = walks.loop("a", 1.0, 5, anew=dict.fromkeys(keys, Anew(None)))
    each, _ = walks.serve(here, call)
    wanted = [1.0]
    for _ in range(5):
        wanted.append(wanted[-1] * 2 + 1)
    assert each["a"] == wanted[1:]
    assert here.transfers.export(keys[0])["counters"].tolist() == [[1, 1]]
    assert here.transfers.export(keys[0])["kv.0"].flatten().tolist()[0] == wanted[-1]
    assert here.transfers.export(keys[1])["tensor"].tolist() == [1.0]


def test_a_tensor_begins_anew_as_a_copy_also_after_the_run_was_away() -> None:
    here = walks.engine()
    source, count = StateKey("a", "before"), StateKey("a", "count")
    here.states.set(source, torch.tensor([4.0], dtype=F64))
    here.add_loop(walks.loop("a", 1.0, 5, anew={count: Anew(source)}))
    events = [*here.step(), *here.step()]
    here.swap.suspend("a")
    events += iterate(here)
    here.swap.resume("a")
    events += iterate(here)
    (done,) = [event for event in events if isinstance(event, LoopDone)]
    value = 1.0
    for _ in range(5):
        value = value * 2 + 1 + 4
    assert done.outputs is not None
    assert done.outputs["last"].tolist() == [value]
    assert here.transfers.export(count)["tensor"].tolist() == [5.0]
    assert here.transfers.export(source)["tensor"].tolist() == [4.0]


# ── shapes ──


def test_a_step_is_told_the_shapes_of_what_changes_with_the_iteration(
    here: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, dict[str, tuple[Any, ...]]] = {}
    for name in ("Propose", "Paged", "Fold"):
        kind = getattr(support, name)

        def spec(
            self: Any, inputs: Mapping[str, Any], params: Mapping[str, Scalar], made: Any = kind.step_spec
        ) -> StepSpec | None:
            shown = {port: (tuple(v.shape), v.dtype, v.device.type) for port, v in inputs.items()}
            told.setdefault(type(self).__name__, shown)
            return made(self, inputs, params)

        monkeypatch.setattr(kind, "step_spec", spec)
    runs = {"a": drawn(1, **ALIKE)}
    check(here, runs, *run_all(here, entered(here, runs)))
    assert told == {
        "Propose": {"x": ((1,), F64, "cpu"), "s": ((1,), F64, "meta")},
        "Read": {"x": ((3,), F64, "meta")},
        "Keep": dict.fromkeys(("x", "part", "more"), ((3,), F64, "meta")),
        "Fold": {"every": ((2, 3), F64, "meta")},
    }


def test_a_loop_is_made_ready_from_examples_of_what_an_iteration_reads(
    here: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = ({"x": torch.zeros(1, dtype=F64), "s": torch.zeros(1, dtype=F64)},)
    for kind in (support.Propose, support.Paged):
        monkeypatch.setattr(kind, "step_examples", lambda self: examples)
    one = drawn(1, **ALIKE)
    call = unrolled("a", one)
    blank = [replace(use, inputs=tuple(replace(i, value=None) for i in use.inputs)) for use in body_of(call)]
    here.prepare(rewritten(call, run="warm-up", body=tuple(blank)))
    assert len(here.loops.groups) == 1
    check(here, {"a": one}, *run_all(here, entered(here, {"a": one})))
    assert len(here.loops.groups) == 1


def test_rows_of_wide_states_are_few_enough_for_their_tables(here: Engine) -> None:
    for width in (1, 3, 40):
        run_all(here, entered(here, {f"r{width}": drawn(1, **(ALIKE | {"w": width, "tokens": 1}))}))
    programs = [graphs.program for graphs in graphs_of(here)]
    sizes = [graphs.sizes for graphs in graphs_of(here)]
    assert [size[-1] for size in sizes] == [64, 16, 1]
    pools = {f"state {i}": here.states.pools.of(StateKey("r", "main")) for i in range(2)}
    body = replace(programs[2].body, widths={"state 0": 1 << 18})
    assert slots_of(body, pools, 64) < 8
    assert slots_of(programs[0].body, pools, 64) == 64
    assert sizes_of(body, 64) == (1,)


# ── refused ──


def use_of(call: LoopCall, at: int, **changes: Any) -> LoopCall:
    body = list(body_of(call))
    body[at] = replace(body[at], **changes)
    return rewritten(call, body=tuple(body))


def test_a_part_past_the_end_of_a_value_is_refused(here: Engine) -> None:
    call = unrolled("a", drawn(1, **ALIKE))
    ports = tuple(replace(i, part=2) if i.part == 1 else i for i in body_of(call)[5].inputs)
    assert failed(here, use_of(call, 5, inputs=ports)) == (
        "invalid_input",
        "`inner.part` has 2 slices, but the loop runs longer",
    )


def test_a_stack_of_what_is_left_out_at_times_is_refused(here: Engine) -> None:
    call = unrolled("a", drawn(1, **ALIKE))
    looks = next(at for at, use in enumerate(body_of(call)) if use.node == "look" and use.inner == (1,))
    folds = next(at for at, use in enumerate(body_of(call)) if use.node == "fold")
    stack = replace(body_of(call)[folds].inputs[0], stacked=((looks - 3, "y"), (looks, "y")))
    call = use_of(call, folds, inputs=(stack,))
    call = use_of(call, looks, active=(True, False, True))
    assert failed(here, call)[1] == "`fold.every` would have values in some iterations only"


def test_a_stack_of_several_shapes_is_refused(here: Engine) -> None:
    call = unrolled("a", drawn(1, **ALIKE))
    folds = next(at for at, use in enumerate(body_of(call)) if use.node == "fold")
    stack = LoopInput("every", "stack", stacked=((0, "first"), (folds - 1, "y")))
    assert failed(here, use_of(call, folds, inputs=(stack,)))[1].endswith("stack values of different shapes")


def test_a_carried_port_without_a_first_value_is_refused(here: Engine) -> None:
    call = unrolled("a", drawn(1, **ALIKE))
    port = replace(feed("x", (1, "y")), carried=(2, "y"))
    call = use_of(call, 2, inputs=(port, *body_of(call)[2].inputs[1:]))
    call = use_of(call, 1, active=(False, True, True))
    assert failed(here, call)[1] == "`inner.x` has no value in the first iteration of a device loop"


class Block(support.Read):
    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        spec = super().step_spec(inputs, params)
        return spec and replace(spec, scratch={"kv": 3})


def test_blocks_behind_what_is_wide_or_grows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NestedRead", Block)
    here = engine_of(support.plan())
    wide = "`look` attends a block behind one sequence, but its state has several"
    assert failed(here, unrolled("a", drawn(1, **ALIKE)))[1] == wide
    grows = "`look` attends a block behind a state that the same loop appends to"
    assert failed(here, unrolled("b", drawn(1, **(ALIKE | {"w": 1}))))[1] == grows


def test_tables_of_a_group_over_several_states_stand_where_each_has_come_to(here: Engine) -> None:
    """Two reads of one batch, of states of which one was appended to before."""
    keys = StateKey("a", "main"), StateKey("a", "context")
    for key, length in zip(keys, (3, 20), strict=True):
        kv = torch.arange(length, dtype=F64).expand(2, 1, length)[..., None, None]
        here.transfers.import_state(key, {"counters": torch.tensor([[length, length]]), "kv.0": kv})
    x = LoopInput("x", "value", torch.tensor([1.0], dtype=F64))
    body = (
        WrittenUse("keep", (x,), {"tokens": 2, "advance": 1}, {}, {"kv": keys[0]}, 0),
        WrittenUse("look", (x,), {}, {}, {"kv": keys[0]}, 0),
        WrittenUse("look", (x,), {}, {}, {"kv": keys[1]}, 0),
    )
    outputs = tuple(LoopOutput(f"u{i}", i, "y", "last") for i in range(3))
    _, done = run_all(here, [written("a", "w", 0, 0, "l", (), body, 2, None, outputs)])
    (graphs,) = graphs_of(here)
    groups = graphs.program.body.groups(graphs.program.body.whole)
    assert groups == [(0,), (1, 2)]
    main, context = ([list(map(float, range(3)))], 3), ([list(map(float, range(20)))], 20)
    for i in range(2):
        kept, main = support.kept(main, [1.0], 2, 1, i)
    found = done["a"].outputs
    assert found is not None
    assert found["u0"].tolist() == kept
    assert found["u1"].tolist() == support.kept(main, [1.0], 0, 0, 0)[0]
    assert found["u2"].tolist() == support.kept(context, [1.0], 0, 0, 0)[0]
