from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import call
from walkgraph.abi.calls import FINITE, Call, CallFailed, Outputs, StateKey
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.engine.calls.runner import Result, Runner
from walkgraph.engine.failures import MOST_GIVEN, Failures
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools
from walkgraph.engine.kv.states import StateTable

CPU = torch.device("cpu")


class Each(Operator):
    """Serves calls by a function of their `value`, and counts its forwards."""

    def __init__(self, serve: Callable[[Any], Any]) -> None:
        self.serve = serve
        self.batches: list[int] = []

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        self.batches.append(len(calls))
        return [{"out": self.serve(one.inputs["value"])} for one in calls]


def served(runner: Runner, operator: Operator, device: torch.device, calls: Sequence[Call]) -> list[Result]:
    """A result per call, in order, waited for."""
    launched = runner.launch(operator, device, calls)
    launched.wait()
    return launched.results()


def run(operator: Operator, *values: Any) -> list[tuple[Any, str | None]]:
    """(output, error code) of each."""
    runner = Runner(StateTable(KVPools({}), AttentionBackends()), 3)
    results = served(runner, operator, CPU, [call("node", {"value": v}, run=str(i)) for i, v in enumerate(values)])
    return [(r.outputs and r.outputs["out"], r.error and r.error.code) for r in results]


@pytest.mark.parametrize("guilty", [{0}, {6}, {2, 3}, {0, 1, 2, 3, 4, 5, 6}])
def test_the_guilty_are_found_by_halving(guilty: set[int]) -> None:
    def serve(value: int) -> int:
        if value in guilty:
            raise CallFailed("no")
        return value

    operator = Each(serve)
    got = run(operator, *range(7))
    assert got == [(None, "node_error") if v in guilty else (v, None) for v in range(7)]
    if len(guilty) == 1:
        assert len(operator.batches) <= 7


@pytest.mark.safety("R13")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_none_is_found_among_many(bad: float) -> None:
    def serve(place: int) -> torch.Tensor:
        out = torch.zeros(1000)
        if place >= 0:
            out[place] = bad
        return out

    assert [code for _, code in run(Each(serve), -1, 999, -1, 0)] == [None, "numeric_error", None, "numeric_error"]
    assert run(Each(lambda v: v), 1.0, bad, 2, "text") == [
        (1.0, None),
        (None, "numeric_error"),
        (2, None),
        ("text", None),
    ]


def test_large_finite_numbers_pass() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        huge = torch.full((100,), torch.finfo(dtype).max, dtype=dtype)
        [(out, code)] = run(Each(lambda value: value), huge)
        assert code is None
        assert out is huge


@pytest.mark.safety("R13")
def test_infinities_that_cancel_are_still_found() -> None:
    value = torch.tensor([float("inf"), float("-inf")])
    assert run(Each(lambda v: v), value) == [(None, "numeric_error")]


@pytest.mark.safety("S10")
@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (MemoryError(), "out_of_memory"),
        (torch.OutOfMemoryError("CUDA out of memory at 0x7f00"), "out_of_memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (RuntimeError("secret 0x7f00"), "node_error"),
        (KeyError("secret"), "node_error"),
        (CallFailed("the client reads this", "value", code="invalid_input"), "invalid_input"),
    ],
)
def test_exceptions_become_typed_errors_without_their_text(raised: Exception, code: str) -> None:
    def serve(value: int) -> int:
        raise raised

    runner = Runner(StateTable(KVPools({}), AttentionBackends()), 3)
    [result] = served(runner, Each(serve), CPU, [call("node", {"value": 1}, iteration=(2,))])
    assert result.error is not None
    assert (result.error.code, result.error.node, result.error.walk) == (code, "node", "walk")
    assert (result.error.iteration, result.error.rank) == ((2,), 3)
    assert result.error.retryable == (code == "out_of_memory")
    assert ("the client reads this" in result.error.message) == isinstance(raised, CallFailed)
    assert not {"0x7f00", "secret", "enforce"} & set(result.error.message.replace("`", " ").split())


def test_a_wrong_number_of_outputs_serves_nobody_else_s() -> None:
    class Short(Operator):
        def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
            return [{"out": 1}] * (len(calls) - 1 if len(calls) == 2 else 1)

    assert run(Short(), 1, 2) == [(1, None), (1, None)]


def test_a_forward_may_tell_by_itself_that_its_numbers_are_none() -> None:
    class Whole(Operator):
        def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
            return [{"out": one.inputs["value"], FINITE: torch.tensor(one.inputs["value"] >= 0)} for one in calls]

    assert run(Whole(), 3, -1, 0) == [(3, None), (None, "numeric_error"), (0, None)]
    runner = Runner(StateTable(KVPools({}), AttentionBackends()), 3)
    [result] = served(runner, Whole(), CPU, [call("node", {"value": 1})])
    assert result.outputs is not None
    assert result.outputs.keys() == {"out"}


def test_an_error_says_what_the_call_was_given_and_nothing_of_its_content() -> None:
    def serve(value: Any) -> Any:
        raise KeyError("secret")

    key = StateKey("r", "kv")
    states = StateTable(KVPools({}), AttentionBackends())
    states.set(key, torch.zeros(2, 3))
    runner = Runner(states, 3)
    many = {f"p{number}": 1.5 for number in range(MOST_GIVEN)}
    given = {"value": torch.zeros(1, 256), "text": "secret", "raw": b"secret", "parts": ["a", "b"], "n": 3, **many}
    one = call("node", given)
    one.states, one.name = {"kv": key}, "again"
    [result] = served(runner, Each(serve), CPU, [one])
    assert result.error is not None
    assert (result.error.use, len(result.error.given)) == ("again", MOST_GIVEN)
    assert list(result.error.given.items())[:6] == [
        ("value", "float32 [1, 256]"),
        ("text", "text of 6 characters"),
        ("raw", "6 bytes"),
        ("parts", "list of 2"),
        ("n", "int"),
        ("p0", "float"),
    ]
    few = call("node", {"value": float("nan")})
    few.states = {"kv": key, "none": StateKey("r", "other")}
    [result] = served(runner, Each(lambda value: value), CPU, [few])
    assert result.error is not None
    assert result.error.given == {"value": "float", "kv": "float32 [2, 3]", "none": "nothing"}


def test_an_error_of_a_loop_names_all_that_may_be_at_fault() -> None:
    inputs = (LoopInput("x", "value", torch.zeros(4)), LoopInput("i", "index"), LoopInput("xs", "each", [1, 2]))
    body = (
        WrittenUse("net", inputs, {}, {}, {}, 0, name="first"),
        WrittenUse("net", (LoopInput("y", "use", None, 0, "x"),), {}, {}, {}, 0, name="second"),
        WrittenUse("head", (), {}, {}, {}, 0, name="head"),
    )
    loop = written(
        run="r", walk="w", step=0, use=0, loop="l", iteration=(7,), body=body, times=9, until=None, outputs=()
    )
    failures = Failures(StateTable(KVPools({}), AttentionBackends()), 3)
    error = failures.unsound(loop, 4, spans=False)
    assert (
        error.message == "`net` or `head` gave NaN or infinite numbers at iteration 4; check its inputs and parameters"
    )
    assert (error.node, error.use, error.walk, error.iteration, error.rank) == ("net", "first", "w", (7, 4), 3)
    assert error.given == {"first.x": "float32 [4]", "first.xs": "list of 2"}
    assert "another rank" in failures.unsound(loop, 4, spans=True).message
    assert failures.of(loop, KeyError()).iteration == (7,)


class Beside:
    """Copies of a device whose work goes on while the host does: complete at the mark."""

    asynchronous = True

    def __init__(self) -> None:
        self.begun: list[torch.Tensor] = []

    def all_to_host(self, values: list[tuple[Any, str | None]]) -> list[Any]:
        return [self.to_host(value) for value, _ in values]

    def to_host(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        self.begun.append(torch.zeros_like(value))
        return self.begun[-1]

    def mark(self) -> None:
        return None


class Pure(Each):
    pure = True


@pytest.mark.parametrize("operator", [Pure, Each])
def test_outputs_that_are_to_be_kept_are_copied_from_a_device_beside_its_work(operator: type[Each]) -> None:
    runner, copies = Runner(StateTable(KVPools({}), AttentionBackends()), 0), Beside()
    runner._copies = lambda device: copies  # type: ignore[assignment, return-value]
    keeping, other = (call("node", {"value": 3}, run=name) for name in ("keeping", "other"))
    keeping.content = b"its content"
    made = runner.launch(operator(lambda value: torch.full((2,), float(value))), CPU, [keeping, other])
    assert [one["out"].tolist() for one in made.outputs if one] == [[3.0, 3.0]] * 2
    assert other.copies is None
    if operator is Pure:
        assert keeping.copies is not None
        assert any(keeping.copies["out"] is one for one in copies.begun)
    else:
        assert keeping.copies is None
