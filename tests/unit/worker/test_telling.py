"""What a rank tells of its calls; of a loop on the device, how often each node was called and its share of the time."""

from walkgraph.engine.engine import Done, LoopDone
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.networks.base import Call
from walkgraph.networks.loops import LoopCall, LoopUse
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import Buffered, Level
from walkgraph.worker.telling import Teller

NOW = 10.0


def told(done: Done | LoopDone, level: Level = "summary") -> list[e.Activity | e.CallSpan]:
    frames: list[bytes] = []
    emitter = Buffered("d", "rank 0.1", level, lambda frame: not frames.append(frame))
    Teller(Rank(0), emitter, lambda: NOW).served(done, 1)
    emitter.flush(NOW, force=True)
    events = [event for frame in frames for event in e.decode(frame).events]
    return [event for event in events if isinstance(event, e.Activity | e.CallSpan)]


def loop(iterations: int, error: ErrorInfo | None = None) -> LoopDone:
    """Of two nodes, the second of which is called in the first and the third iteration of 8."""
    active = (True, False, True, *(False,) * 5)
    body = (
        LoopUse(node="always", inputs=(), params={}, varying={}, states={}, seed=0),
        LoopUse(node="at_times", inputs=(), params={}, varying={}, states={}, seed=0, active=active),
    )
    call = LoopCall(
        run="r", walk="w", step=0, use=0, loop="l", iteration=(3,), body=body, times=8, until=None, outputs=(),
        ready_at=4.0,
    )  # fmt: skip
    return LoopDone(call, None if error else {}, error, iterations, False, 1.0, 0.5, 2)


def test_a_call_is_one() -> None:
    call = Call(
        run="r", walk="w", node="n", step=0, use=0, iteration=(), inputs={}, params={}, states={}, seed=0, ready_at=4.0
    )
    [one] = told(Done(call, {}, None, 1.0, 0.5, 1))
    assert isinstance(one, e.Activity)
    assert (one.node, one.calls, one.busy, one.queued) == ("n", 1, 5.5, 0.5)


def test_a_loop_is_as_many_calls_as_it_made_and_they_share_its_time() -> None:
    found = {one.node: one for one in told(loop(8)) if isinstance(one, e.Activity)}
    assert {name: one.calls for name, one in found.items()} == {"always": 8, "at_times": 2}
    assert sum(one.busy for one in found.values()) == 5.5
    assert found["always"].busy == 4 * found["at_times"].busy
    assert found["always"].iteration == (3, 7)


def test_a_loop_that_ended_early_counts_what_was_called() -> None:
    assert [(one.node, one.calls) for one in told(loop(2)) if isinstance(one, e.Activity)] == [
        ("always", 2),
        ("at_times", 1),
    ]


def test_a_loop_that_failed_before_it_began_is_told_all_the_same() -> None:
    error = ErrorInfo(code="node_error", message="no")
    spans = [one for one in told(loop(0, error), "full") if isinstance(one, e.CallSpan)]
    assert [(span.node, span.failed, span.iteration) for span in spans] == [
        ("always", True, (3, 0)),
        ("at_times", True, (3, 0)),
    ]


def test_a_loop_that_begins_is_told_without_calls() -> None:
    frames: list[bytes] = []
    emitter = Buffered("d", "rank 0.1", "summary", lambda frame: not frames.append(frame))
    Teller(Rank(0), emitter, lambda: NOW).began(loop(8).call)
    emitter.flush(NOW)
    found = [one for one in e.decode(frames[0]).events if isinstance(one, e.Activity)]
    assert [(one.node, one.calls, one.iteration) for one in found] == [("always", 0, (3, 0)), ("at_times", 0, (3, 0))]
