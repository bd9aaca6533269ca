"""Calls of tasks on a rank: what is asked, and how answers become the ends of calls."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from walkgraph.abi.calls import Call
from walkgraph.components import catalogue
from walkgraph.conductor.client import open_files
from walkgraph.engine.calls.chunked_prefill import Forwarded
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.graph.checks.called import WithTasks
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import EARLY_SECONDS, MAP_BYTES, PostSender, WorkerPost, rank_office
from walkgraph.wire.watching import Break, Gate, Tap, Watch
from walkgraph.worker.asked_tasks import AskedTasks
from walkgraph.worker.core import Core
from walkgraph.worker.events import CallDone, Gated, Observe, PieceCame, Ref, Report, RunCall, Started, Watched
from walkgraph.worker.io import values

CALLED: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "called",
    "nodes": {"add": {"component": "synthetic.add"}},
    "walks": {
        "go": {
            "inputs": {"a": "scalar: int"},
            "body": ["add"],
            "edges": [["@in.a", "add.a"], ["add.sum", "@out.sum"], ["add.sum", "@out.other"]],
        }
    },
    "tasks": {
        "add": {
            "inputs": {"a": {"modality": "scalar"}},
            "outputs": ["sum", "other"],
            "params": {"times": {"type": "integer", "default": 3}},
            "steps": [{"walk": "go", "with": {"a": "@task.a"}}],
        }
    },
}
CALLING: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "calling",
    "nodes": {
        "plus": {"component": "called/add", "params": {"times": "=n + @loop.index"}},
        "end": {"component": "synthetic.add"},
    },
    "walks": {
        "go": {
            "body": [{"loop": "l", "times": "n", "body": ["plus"]}, "end"],
            "edges": [["@loop.index", "plus.a"], ["plus.sum", "end.a"], ["end.sum", "@out.sum"]],
        }
    },
    "tasks": {"go": {"outputs": ["sum"], "params": {"n": {"type": "integer"}}, "steps": [{"walk": "go"}]}},
}
RUN = RunId("r")


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def begun(*, hold: bool = False, document: dict[str, Any] = CALLING) -> tuple[Core, list[Any]]:
    """A rank's core with a run of `go`, and the commands of its start."""
    graph = codec.load(document)
    one = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
    plan = assemble(Assignment(graph, one), WithTasks(catalogue(), {"called": CALLED}))
    core = Core(plan, Rank(0))
    params: dict[str, Any] = {"n": 2, "seed": 4}
    itinerary = expand(graph, plan, "go", params, {}, ())
    return core, core.handle(Started(RUN, itinerary, params, {}, hold=hold))


def calls_of(commands: list[Any]) -> list[RunCall]:
    return [command for command in commands if isinstance(command, RunCall)]


def done(command: RunCall, value: int) -> CallDone:
    call = command.call
    return CallDone(Ref(call.run, call.step, call.use, call.iteration), {"sum": value})


def test_a_call_names_its_task_its_own_parameters_and_the_outputs_that_edges_take() -> None:
    core, commands = begun()
    first, *_ = asked = calls_of(commands)
    assert [(one.task, one.outputs, one.call.iteration, one.call.inputs) for one in asked] == [
        ("called/add", ("sum",), (0,), {"a": 0}),
    ]
    assert first.call.params["times"] == 2
    (second,) = calls_of(core.handle(done(first, 5)))
    assert (second.call.iteration, second.call.params["times"]) == ((1,), 3)
    (end,) = calls_of(core.handle(done(second, 7)))
    assert (end.task, end.call.node, end.call.inputs) == ("", "end", {"a": 7})


def test_a_breakpoint_stops_a_run_before_a_call_of_a_task() -> None:
    core, commands = begun(hold=True)
    assert calls_of(commands) == []
    (first,) = calls_of(core.handle(Gated(Gate(run=RUN, mode="open"))))
    core.handle(Watched(Watch(breaks=(Break(id="b", walk="go", use="plus"),))))
    assert calls_of(core.handle(done(first, 1))) == []
    (second,) = calls_of(core.handle(Gated(Gate(run=RUN, mode="one"))))
    assert second.task == "called/add"


def test_pieces_of_an_output_leave_before_the_call_has_ended_and_not_again_at_its_end() -> None:
    document = copy.deepcopy(CALLING)
    document["walks"]["go"]["edges"].append({"from": "plus.other", "to": "@out.other", "each": True})
    document["tasks"]["go"]["outputs"].append("other")
    core, commands = begun(document=document)
    (first,) = calls_of(commands)
    assert (first.outputs, first.pieces) == (("sum",), ("other",))
    ref = done(first, 5).ref
    assert told(core.handle(PieceCame(ref, "other", 1)) + core.handle(PieceCame(ref, "other", 2))) == [
        ("other", 1, (0,)),
        ("other", 2, (0,)),
    ]
    (second,) = calls_of(commands := core.handle(CallDone(ref, {"sum": 5, "other": 9})))
    assert told(commands) == []
    assert told(core.handle(PieceCame(done(second, 7).ref, "other", 3))) == [("other", 3, (1,))]
    (end,) = calls_of(commands := core.handle(done(second, 7)))
    assert told(commands) == []
    assert told(core.handle(PieceCame(done(second, 7).ref, "other", 4))) == [], "after its end"
    assert [one[0] for one in told(core.handle(CallDone(done(end, 0).ref, {"sum": 7})))] == ["sum"]


def told(commands: list[Any]) -> list[tuple[str, Any, tuple[int, ...]]]:
    """The pieces that go to the client."""
    reports = [one for one in commands if isinstance(one, Report) and isinstance(one.message, m.Emit)]
    return [(one.message.name, one.value, one.message.iteration) for one in reports]  # type: ignore[union-attr]


def test_taps_see_the_values_on_the_edges_of_a_call() -> None:
    core, commands = begun()
    core.handle(Watched(Watch(taps=(Tap(id="t", walk="go", source="plus.sum", interval=0.0),))))
    (first,) = calls_of(commands)
    seen = [command for command in core.handle(done(first, 5)) if isinstance(command, Observe)]
    assert [(one.source, one.value, one.iteration, one.modality) for one in seen] == [("plus.sum", 5, (0,), "scalar")]


class Desk:
    """A rank's calls, and what they lead to."""

    def __init__(self, post: WorkerPost | None = None) -> None:
        self.sent: list[tuple[m.CallTask, Mapping[str, Any]]] = []
        self.ended: list[tuple[Forwarded, t.TaskCalled]] = []
        self.clock = Clock()
        self.calls = AskedTasks(Rank(3), self._send, self.took, self.clock, post)

    def _send(self, call: m.CallTask, given: Mapping[str, Any]) -> None:
        self.sent.append((call, given))

    def took(self, work: Forwarded, event: t.TaskCalled) -> None:
        self.ended.append((work, event))

    def ask(self, iteration: int = 0, run: str = "r") -> m.CallTask:
        call = Call(
            run=run,
            node="plus",
            walk="go",
            step=1,
            use=2,
            iteration=(iteration,),
            inputs={"a": torch.tensor(5)},
            params={"times": 2, "seed": 9},
            states={},
            seed=77,
            name="plus",
            ready_at=self.clock(),
        )
        self.calls.ask(RunCall(call, "called/add", ("sum",)))
        return self.sent[-1][0]


def answer(call: m.CallTask, **more: Any) -> m.TaskAnswer:
    place = {"run": call.run, "rank": call.rank, "step": call.step, "use": call.use, "iteration": call.iteration}
    return m.TaskAnswer(**place, **more)  # type: ignore[arg-type]


def test_an_answer_ends_the_call_with_its_time_in_the_trace() -> None:
    desk = Desk()
    call = desk.ask()
    assert desk.sent[0][1] == {"a": torch.tensor(5)}
    assert (call.rank, call.task, call.params, call.outputs) == (3, "called/add", {"times": 2}, ("sum",))
    desk.clock.now += 2.0
    made = desk.calls.answered(answer(call, outputs={"sum": values.pack(torch.tensor([4]))}, queued=0.5, called="c"))
    assert made is not None
    assert made.outputs is not None
    assert (made.ref, made.outputs["sum"].tolist()) == (Ref("r", 1, 2, (0,)), [4])
    assert (made.queued, made.busy) == (0.5, 1.5)
    ((block, event),) = desk.ended
    assert (block.ready, block.failed, block.timing.started, block.timing.finished) == ([10.0], (), 10.5, 12.0)
    assert (event.task, event.called, event.use, event.iteration) == ("called/add", "c", "plus", (0,))
    assert (event.asked, event.at, event.failed) == (10.0, 12.0, False)
    assert desk.calls.answered(answer(call)) is None, "once"
    assert len(desk.calls) == 0


def test_a_failed_task_fails_the_call() -> None:
    desk = Desk()
    error = ErrorInfo(code="node_error", message="the task `called/add` failed: told to fail")
    made = desk.calls.answered(answer(desk.ask(), error=error))
    assert made is not None
    assert (made.outputs, made.error) == (None, error)
    assert (desk.ended[0][0].failed, desk.ended[0][1].failed) == ((0,), True)


def test_a_piece_is_passed_on_and_one_that_cannot_be_read_ends_the_call() -> None:
    desk = Desk()
    call = desk.ask()
    place = {"run": call.run, "rank": call.rank, "step": call.step, "use": call.use, "iteration": call.iteration}
    piece = m.TaskPiece(**place, output="sum", value=m.Small(value=3))  # type: ignore[arg-type]
    assert desk.calls.piece(piece) == PieceCame(Ref("r", 1, 2, (0,)), "sum", 3)
    broken = m.InlineTensor(dtype="int64", shape=(4,), data=b"12")
    ended = desk.calls.piece(msgspec.structs.replace(piece, value=broken))
    assert isinstance(ended, CallDone)
    assert ended.error is not None
    assert desk.calls.piece(piece) is None, "nothing comes after the end"
    assert desk.calls.answered(answer(call)) is None


def test_outputs_that_cannot_be_read_fail_the_call() -> None:
    desk = Desk()
    broken = m.InlineTensor(dtype="int64", shape=(4,), data=b"12")
    made = desk.calls.answered(answer(desk.ask(), outputs={"sum": broken}))
    assert made is not None
    assert made.error is not None
    assert (made.error.node, made.error.use, made.error.iteration) == ("plus", "plus", (0,))


def test_calls_of_a_run_that_has_ended_are_forgotten() -> None:
    desk = Desk()
    mine, other = desk.ask(), desk.ask(run="other")
    desk.calls.forget("r")
    assert desk.calls.answered(answer(mine)) is None
    assert desk.calls.answered(answer(other)) is not None


@pytest.mark.parametrize("again", [False, True])
def test_the_seed_of_a_call_follows_from_the_run_and_differs_in_each_iteration(again: bool) -> None:
    desk, other = Desk(), Desk()
    seeds = [desk.ask(i).seed for i in range(3)]
    assert len(set(seeds)) == 3
    assert [other.ask(i).seed for i in range(3)] == seeds


def test_posted_values_of_an_answer_are_those_of_one_that_has_them_inside(tmp_path: Path) -> None:
    post, sender = WorkerPost(tmp_path, Rank(3), 1), PostSender(tmp_path / rank_office(Rank(3)), "service")
    desk, naive = Desk(post), Desk()
    given = torch.arange(MAP_BYTES // 8)
    inside = answer(desk.ask(), outputs={"sum": values.pack([given, "x"])})
    naive.ask()
    posted: Any = sender.answer(inside)
    assert values.tickets_in(posted.outputs["sum"]) == []
    made, wanted = desk.calls.answered(posted), naive.calls.answered(inside)
    assert made is not None
    assert wanted is not None
    assert made.outputs is not None
    assert wanted.outputs is not None
    found = made.outputs["sum"][0]
    assert torch.equal(found, wanted.outputs["sum"][0])
    assert made.outputs["sum"][1] == "x"
    found[0] = 7
    assert found[1:].equal(given[1:])
    call = desk.ask(1)
    lost = answer(call, outputs={"sum": m.Posted(sender="service", number=9, nbytes=1)})
    ended = desk.calls.answered(lost)
    assert ended is not None
    assert ended.error is not None
    assert (ended.error.code, ended.error.use) == ("worker_lost", "plus")
    sender.close()
    post.close()


def test_the_files_of_a_run_that_is_over_are_given_up_also_where_they_come_late(tmp_path: Path) -> None:
    now = 0.0
    post = WorkerPost(tmp_path, Rank(3), 1, clock=lambda: now)
    sender = PostSender(tmp_path / rank_office(Rank(3)), "service")
    desk = Desk(post)
    desk.ask(run="other")
    desk.ask()
    post.office.forget("r")
    before = open_files()
    for run in ("r", "other"):
        assert sender.post(RunId(run), b"x") is not None
    post.forget("r")
    assert open_files() == before + 3, "the file of the other run, and both ends of the connection"
    assert sender.post(RUN, b"late") is not None
    post.forget("never asked")
    assert open_files() == before + 3
    now = EARLY_SECONDS / 2
    post.forget("other")
    assert open_files() == before + 3, "what came late may be the first of a run"
    desk.ask(run="next")
    now = 2 * EARLY_SECONDS
    post.forget("next")
    assert open_files() == before + 2
    sender.close()
    post.close()
