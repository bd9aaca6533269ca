"""Captured steps concurrent with loop steps, on a device that is simulated by marks that the test reaches."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import call, plan_of
from tests.unit.engine.test_threads import SECONDS, Gated
from tests.unit.engine.test_threads import one as gated_call
from tests.unit.models.snac.test_operators import PUBLISHED, RAMP, stream, windows
from walkgraph.abi.calls import Call, Outputs, Scalar, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.engine.calls.call_scheduler import SOON_SECONDS
from walkgraph.engine.calls.call_times import CallTimes
from walkgraph.engine.calls.captured_step import CapturedSteps, Served
from walkgraph.engine.calls.chunked_prefill import Begun, Done
from walkgraph.engine.calls.readback import ReadBack
from walkgraph.engine.calls.runner import Result, Runner
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.device.outside import Firsthand
from walkgraph.engine.device_wait import LOOK_SECONDS, WATCH_SECONDS
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import Swapped
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items, LoopCall, LoopOutput
from walkgraph.ids import Rank

CPU = torch.device("cpu")
LONG = 1e9
"""Seconds."""


class Mark:
    def __init__(self) -> None:
        self.reached, self.waited, self.led = False, 0, 0

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reached, self.waited = True, self.waited + 1

    def wait(self) -> None:
        self.led += 1


class Hearing:
    """Messages that come while the engine waits."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.comes: Callable[[], bool] = lambda: False

    def __call__(self, seconds: float, wakes: int | None) -> bool:
        if seconds == WATCH_SECONDS:
            assert wakes is not None
            return bool(select.select([wakes], [], [], SECONDS)[0])
        assert 0 < seconds <= LOOK_SECONDS
        self.asked.append(seconds)
        return self.comes()


class Marked(CapturedSteps):
    """Batches that are over when their mark is reached."""

    def __init__(self) -> None:
        super().__init__(Capturer(CPU))
        self.batches: list[tuple[int, Mark]] = []

    def serve(self, operator: Operator, calls: Sequence[Call], reads: Callable[[Call], ReadBack]) -> Served:
        served = super().serve(operator, calls, reads)
        if not served.sound:
            return served
        self.batches.append((len(calls), Mark()))
        return served._replace(mark=self.batches[-1][1])


class Beside(Engine):
    def __init__(self, **nodes: Operator) -> None:
        """`nodes`: more of them, with their operators."""
        self.marked, self.hearing = Marked(), Hearing()
        networks: dict[str, tuple[str, dict[str, str]]] = {
            "voc": ("walkgraph.models.snac.operators:Decoder", {}),
            "noop": ("walkgraph.models.synthetic.operators:Noop", {}),
        }
        super().__init__(plan_of(networks, source="random:snac-tiny:4"), Rank(0), outside=Firsthand(hears=self.hearing))
        self.calls._captured = lambda device: self.marked
        self._parts = replace(self._parts, captured=self.calls._captured)
        self.load()
        # Those of the warm-up depend on the machine.
        self.calls.times = CallTimes(self.calls._nodes)
        loaded = self.calls._nodes
        assert isinstance(loaded, dict)
        for name, operator in nodes.items():
            loaded[name] = loaded["noop"]._replace(operator=operator, index=len(loaded))

    def follow(self, node: str) -> None:
        """Its outputs are read on the device alone."""
        self.calls.follows = lambda call: call.node == node


@pytest.fixture
def engine() -> Beside:
    return Beside()


def window(run: str) -> Call:
    """Inside a stream."""
    one = windows(stream(63), PUBLISHED)[2]
    one.run = run
    return one


def loop(times: int) -> LoopCall:
    token = LoopInput("token", "value", torch.zeros(1, dtype=torch.int64), carried=(0, "token"))
    use = WrittenUse("noop", (token,), {"stop_at": 1 << 40}, {}, {}, 0)
    outputs = (LoopOutput("token", 0, "token", "each"),)
    return written("counter", "count", 0, 0, "tokens", (), (use,), times, (0, "stop"), outputs, grain=1)


def test_a_loop_goes_on_while_a_window_is_under_way(engine: Beside) -> None:
    engine.add(window("a"))
    engine.add_loop(loop(30))
    items = 0
    while True:
        events = engine.step()
        assert not any(isinstance(one, Done) for one in events)
        items += sum(one.count for one in events if isinstance(one, Items))
        if any(isinstance(one, LoopDone) for one in events):
            break
    [(_, mark)] = engine.marked.batches
    assert (items, mark.waited, engine.idle) == (30, 0, False)
    [done] = engine.step()
    assert isinstance(done, Done)
    assert (done.call.run, mark.waited, engine.idle) == ("a", 1, True), "with nothing else to do it is waited for"


def test_what_stays_on_the_device_may_be_followed_at_once_and_only_its_own_run_comes_behind_it(engine: Beside) -> None:
    engine.follow("voc")
    engine.add(window("a"))
    [begun] = engine.step()
    [(_, mark)] = engine.marked.batches
    assert isinstance(begun, Begun)
    assert (begun.call.run, mark.reached, mark.led) == ("a", False, 0)
    engine.add(window("b"))
    assert mark.led == 0
    engine.add(window("a"))
    assert mark.led == 1
    other = loop(1)
    other.run = "a"
    engine.add_loop(other)
    assert mark.led == 2
    mark.reached = True
    done = next(one for one in engine.step() if isinstance(one, Done))
    assert done.call is begun.call
    assert done.outputs is begun.outputs
    engine.add(window("a"))
    assert mark.led == 2, "it is over"


def test_what_comes_while_two_batches_are_under_way_is_the_next_one(engine: Beside) -> None:
    engine.add_loop(loop(1000))
    sizes: list[int] = []
    for number in range(6):
        engine.add(window(str(number)))
        engine.step()
    assert [size for size, _ in engine.marked.batches] == [1, 1]
    engine.marked.batches[0][1].reached = True
    engine.step()
    engine.step()
    sizes = [size for size, _ in engine.marked.batches]
    assert sizes == [1, 1, 4]
    assert all(mark.waited == 0 for _, mark in engine.marked.batches)


def test_a_message_ends_the_wait_for_a_device_that_surely_works(engine: Beside) -> None:
    engine.add(window("a"))
    engine.step()
    [(_, mark)] = engine.marked.batches
    assert (engine.hearing.asked, mark.waited) == ([], 1), "nobody knows how long it takes"
    engine.calls.times = CallTimes(engine.calls._nodes)
    engine.calls.times.note("voc", 1, 1, LONG)
    engine.add(window("b"))
    engine.hearing.comes = lambda: len(engine.hearing.asked) == 3
    assert engine.step() == []
    mark = engine.marked.batches[1][1]
    assert (len(engine.hearing.asked), mark.waited, engine.resting) == (3, 0, False)

    def ends() -> bool:
        mark.reached = True
        return False

    engine.hearing.comes = ends
    [done] = engine.step()
    assert isinstance(done, Done)
    assert (done.call.run, len(engine.hearing.asked)) == ("b", 4)


def test_a_batch_waits_for_what_threads_will_soon_have_made_for_it() -> None:
    gated, gates = Gated(), [threading.Event() for _ in range(3)]
    engine = Beside(gated=gated)
    gated.gates.update(enumerate(gates))

    def sizes() -> list[int]:
        engine.step()
        return [size for size, _ in engine.marked.batches]

    def ended() -> None:
        assert engine.wakes is not None
        assert select.select([engine.wakes], [], [], SECONDS)[0]

    engine.calls.times.note("gated", 1, 1, SOON_SECONDS / 2)
    engine.add(gated_call(0, run="a"))
    engine.step()
    engine.add(window("a"))
    assert (sizes(), engine.resting, engine.idle) == ([], True, False)
    engine.add(window("b"))
    assert not engine.resting
    assert sizes() == [2], "nothing more comes of `b`"
    engine.add(window("a"))
    assert sizes() == [2]
    gates[0].set()
    ended()
    assert any(isinstance(event, Done) and event.call.node == "gated" for event in engine.step())
    assert sizes() == [2, 1]
    engine.calls.times = CallTimes(engine.calls._nodes)
    engine.calls.times.note("gated", 1, 1, LONG)
    engine.add(gated_call(1, run="c"))
    engine.step()
    engine.add(window("c"))
    assert sizes() == [2, 1, 1], "a long call isn't waited for"
    gates[1].set()
    ended()


def test_a_window_that_keeps_nothing_is_done_at_once(engine: Beside) -> None:
    engine.add(window("a"))
    quiet = windows(stream(42), RAMP)[1]
    engine.add(quiet)
    [done] = engine.step()
    assert isinstance(done, Done)
    assert done.call is quiet
    assert [(size, mark.waited) for size, mark in engine.marked.batches] == [(1, 0)]


def test_a_run_is_not_suspended_before_its_window_is_over(engine: Beside) -> None:
    engine.add(window("a"))
    engine.add_loop(loop(1000))
    engine.step()
    engine.swap.suspend("a")
    assert not any(isinstance(one, Swapped) for _ in range(5) for one in engine.step())
    engine.marked.batches[0][1].reached = True
    events = [one for _ in range(5) for one in engine.step() if isinstance(one, (Done, Swapped))]
    assert [type(one) for one in events] == [Done, Swapped]


def test_what_waits_for_its_turn_can_be_taken_back(engine: Beside) -> None:
    engine.add(window("a"))
    assert [one.run for one in engine.cancel("a")] == ["a"]
    assert engine.idle


class Inverse(Operator):
    """1 / x, and how often it was served by `forward`."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.breaks, self.forwards = breaks, 0

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return call.inputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return StepSpec(
            inputs={"x": Row((2,), torch.float32)},
            outputs={"y": Row((2,), torch.float32), "sign": Row((), torch.int64)},
            params={"by": torch.float32},
            sizes=(1, 4),
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        if self.breaks:
            raise RuntimeError("no")
        made = batch.params["by"][:, None] / batch.inputs["x"]
        return StepOutputs({"y": made, "sign": made[:, 0].sign().long()})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        self.forwards += 1
        y = [call.params["by"] / call.inputs["x"] for call in calls]
        return [{"y": one, "sign": one[0].sign().long()} for one in y]


def inverses(operator: Operator, xs: Sequence[float]) -> list[Result]:
    runner = Runner(StateTable(KVPools({}), AttentionBackends()), 3)
    calls = [call("n", {"x": torch.tensor([x, 1.0])}, run=str(x), by=2.0) for x in xs]
    launched = runner.launch_beside(CapturedSteps(Capturer(CPU)), operator, CPU, calls)
    launched.wait()
    return launched.results()


def test_each_gets_its_own_and_who_divides_by_zero_fails_alone() -> None:
    results = inverses(Inverse(), [1.0, -2.0, 0.0, 4.0, 5.0, -8.0])
    assert [one.error and one.error.code for one in results] == [None, None, "numeric_error", None, None, None]
    assert results[2].error
    assert results[2].error.port == "y"
    found = [one.outputs for one in results if one.outputs is not None]
    assert [one["y"].tolist() for one in found] == [
        [2.0, 2.0],
        [-1.0, 2.0],
        [0.5, 2.0],
        [0.4000000059604645, 2.0],
        [-0.25, 2.0],
    ]
    assert [int(one["sign"]) for one in found] == [1, -1, 1, 1, -1]


def test_where_a_step_breaks_forward_serves() -> None:
    operator = Inverse(breaks=True)
    results = inverses(operator, [1.0, 2.0])
    assert [one.outputs and one.outputs["y"][0].item() for one in results] == [2.0, 1.0]
    assert operator.forwards == 1


def test_what_a_later_batch_writes_changes_no_earlier_one() -> None:
    singles, operator = CapturedSteps(Capturer(CPU)), Inverse()
    one, two = (call("n", {"x": torch.full((2,), x)}, by=1.0) for x in (2.0, 4.0))
    first = singles.serve(operator, [one], lambda call: {"y": None})
    second = singles.serve(operator, [two], lambda call: {})
    assert [served.outputs[0]["y"].tolist() for served in (first, second)] == [[0.5, 0.5], [0.25, 0.25]]


def test_each_call_of_a_batch_comes_back_in_the_dtype_that_it_leaves_in() -> None:
    operator, dtypes = Inverse(), {"a": None, "b": "float16", "c": "bfloat16", "d": "float16"}
    calls = [call("n", {"x": torch.full((2,), 3.0)}, by=1.0) for _ in dtypes]
    asked = {id(one): dtype for one, dtype in zip(calls, dtypes.values(), strict=True)}
    served = CapturedSteps(Capturer(CPU)).serve(operator, calls, lambda one: {"y": asked[id(one)], "sign": "float16"})
    for found, dtype in zip(served.outputs, dtypes.values(), strict=True):
        wanted = torch.full((2,), 1 / 3)
        assert torch.equal(found["y"], wanted if dtype is None else wanted.to(getattr(torch, dtype)))
        assert not found["sign"].is_floating_point()


class Summed(Operator):
    """The sum of a run's numbers so far, in a tensor state."""

    def __init__(self) -> None:
        self.steps, self.breaks_at = 0, 0

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return call.inputs

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        row = Row((2,), torch.float32)
        return StepSpec(inputs={"x": row}, outputs={"y": row}, tensors={"sum": row}, sizes=(1, 2))

    def step(self, batch: StepBatch) -> StepOutputs:
        self.steps += 1
        if self.steps == self.breaks_at:
            raise RuntimeError("no")
        rows = batch.rows.long()
        made = batch.tensors["sum"].index_select(0, rows) + batch.inputs["x"]
        batch.tensors["sum"].index_copy_(0, rows, made)
        return StepOutputs({"y": made})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        made: list[Tensor] = []
        for one in calls:
            before = states.tensor(one.states["sum"])
            made.append(one.inputs["x"] if before is None else before + one.inputs["x"])
            states.put(one.states["sum"], made[-1])
        return [{"y": one} for one in made]


def added(runner: Runner, captured: CapturedSteps, operator: Operator, **numbers: float) -> list[float]:
    calls = [call("n", {"x": torch.full((2,), x)}, run=run, states={"sum": "s"}) for run, x in numbers.items()]
    launched = runner.launch_beside(captured, operator, CPU, calls)
    return [float((one.outputs or {})["y"][1]) for one in launched.results()]


def test_a_step_beside_keeps_tensor_states_of_each_run_and_forward_goes_on_from_them() -> None:
    states, operator = StateTable(KVPools({}), AttentionBackends()), Summed()
    runner, captured = Runner(states, 0), CapturedSteps(Capturer(CPU), states=states)
    assert added(runner, captured, operator, a=1, b=2, c=3) == [1, 2, 3]
    first = states.tensors[StateKey("a", "s")]
    assert added(runner, captured, operator, c=10, a=20) == [13, 21]
    assert first.tolist() == [1, 1], "a fork may still hold what was there"
    launched = runner.launch(operator, CPU, [call("n", {"x": torch.ones(2)}, run="a", states={"sum": "s"})])
    assert [one.outputs["y"].tolist() for one in launched.results() if one.outputs] == [[22, 22]]
    assert added(runner, captured, operator, a=100, b=100, d=100) == [122, 102, 100]
    assert {key.run: value.tolist()[0] for key, value in states.tensors.items()} == {
        "a": 122,
        "b": 102,
        "c": 13,
        "d": 100,
    }


def test_if_a_part_of_a_batch_breaks_forward_serves_all_of_it_from_the_states_before() -> None:
    states, operator = StateTable(KVPools({}), AttentionBackends()), Summed()
    runner, captured = Runner(states, 0), CapturedSteps(Capturer(CPU), states=states)
    assert added(runner, captured, operator, a=1, b=2, c=3) == [1, 2, 3]
    operator.breaks_at = operator.steps + 2
    assert added(runner, captured, operator, a=1, b=1, c=1) == [2, 3, 4]


def test_steps_with_tensor_states_are_prepared_where_the_states_are_known() -> None:
    operator, inputs = Summed(), {"x": torch.zeros(2)}
    one = call("n", inputs, states={"sum": "s"})
    for states, ready in (None, False), (StateTable(KVPools({}), AttentionBackends()), True):
        captured = CapturedSteps(Capturer(CPU), states=states)
        captured.prepare(operator, inputs, {})
        assert (captured.key(operator, one) is not None) == ready
