"""A rank's loop between real sockets and fakes of core and engine: messages are passed on, commands are performed."""

import os
import threading
import time

import pytest
import torch

from tests.support.worker_loop import (
    ITINERARY,
    R,
    Trio,
    call,
    deliver,
    outside,
    start,
    trio,
    turned,
    until,
)
from tests.unit.transports.test_conformance import ROOM
from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv.allocator import PageFault
from walkgraph.engine.kv.swap import Swapped
from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.telemetry.emit import Off
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.worker import serve
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    CallDone,
    Cancelled,
    Command,
    DropStates,
    MoveState,
    Ref,
    Release,
    Report,
    RunCall,
    Send,
    Started,
)
from walkgraph.worker.loop import WorkerLoop

__all__ = ["outside", "trio"]


def test_the_states_of_a_run_and_its_session_share_pages_by_its_salt(trio: Trio) -> None:
    desk, one, _ = trio
    one.core.answers.append([])
    desk.say(one, m.Start(run=R, itinerary=ITINERARY, params={}, inputs={}, session="talk", salt="one key"))
    one.turn()
    assert one.engine.salts == {R: "one key", "session:talk": "one key"}


def test_start_call_done_and_report(trio: Trio) -> None:
    desk, one, _ = trio
    start(one, desk, [RunCall(call())])
    done = m.RankDone(rank=one.rank, run=R, times=())
    emit = m.Emit(rank=one.rank, run=R, name="x", value=m.Absent(), iteration=())
    one.core.answers.append([Report(emit, torch.tensor([7])), Report(done)])
    one.turn()
    assert one.core.events == [
        Started(R, ITINERARY, {"a": 1}, {"x": 5}, None),
        CallDone(Ref(R, 0, 2, (3,)), {"out": 1}, None, 0.1, 0.2),
    ]
    assert one.engine.admitted == {R: {"a": 1}}
    said = desk.hear()
    assert isinstance(said, m.Emit)
    assert isinstance(said.value, m.InlineTensor)
    assert desk.hear() == done


def test_the_end_of_a_run_tells_how_it_was_played(trio: Trio) -> None:
    desk, one, _ = trio
    for run, seconds in ((R, 0.4), ("other", 9.0), (R, 0.8)):
        one.engine.playbacks.left(run, seconds)
    late = one.engine.playbacks.played(R)
    assert late is not None
    late.underruns, late.late = 2, 0.5
    start(one, desk, [RunCall(call())])
    one.core.answers.append([Report(m.RankDone(rank=one.rank, run=R, times=()))])
    one.turn()
    told = desk.hear()
    assert isinstance(told, m.RankDone)
    assert told.played is not None
    assert told.played.seconds == pytest.approx(1.2)
    assert (told.played.underruns, told.played.late) == (2, 0.5)


def test_what_comes_for_a_suspended_run_waits_until_it_is_back(trio: Trio) -> None:
    desk, one, _ = trio
    desk.say(one, m.Suspend(run=R))
    one.turn()
    assert desk.hear() == m.Suspended(rank=one.rank, run=R, pages_free=3)
    start(one, desk, [])
    one.core.answers.clear()
    one.turn()
    one.engine.add(call())
    one.turn()
    assert one.core.events == []
    desk.say(one, m.Resume(run=R))
    one.turn()
    assert [type(event) for event in one.core.events] == [Started, CallDone], "in the order in which they came"
    desk.say(one, m.Suspend(run=R), m.Cancel(run=R))
    one.core.events.clear()
    until(desk, one, lambda: bool(one.core.events))
    assert one.core.events == [Cancelled(R)]


def test_a_run_that_cannot_come_back_fails(trio: Trio) -> None:
    desk, one, _ = trio
    error = ErrorInfo(code="out_of_memory", message="no room")
    one.engine.swapped.append(Swapped(R, out=False, error=error))
    one.turn()
    assert desk.hear() == m.RankFailed(rank=one.rank, run=R, error=error)


def test_a_ping_is_answered_and_stop_ends_the_loop(trio: Trio) -> None:
    desk, one, _ = trio
    began = time.monotonic()
    desk.say(one, m.Ping(number=8), m.Stop())
    runner = threading.Thread(target=one.loop.run)
    runner.start()
    pong = desk.hear()
    assert isinstance(pong, m.Pong)
    assert pong == m.Pong(rank=one.rank, number=8, at=pong.at)
    assert began < pong.at < time.monotonic()
    runner.join(60)
    assert not runner.is_alive()


def test_a_readable_file_ends_the_wait_for_messages(trio: Trio) -> None:
    _, one, _ = trio
    wakes = os.eventfd(1)
    try:
        one.links.wait(3600.0, wakes)
        assert wakes not in one.links.poller
    finally:
        os.close(wakes)


def test_the_books_are_checked_once_after_every_spell_of_work(trio: Trio) -> None:
    desk, one, _ = trio
    now = [0.0]
    loop = WorkerLoop(one.rank, one.core, one.engine, one.links, Off(), lambda: now[0])
    audits: list[int] = []
    for now[0], one.core.runs in (0.0, (R,)), (0.5, (R,)), (1.9, ()), (10.0, ()), (10.5, (R,)), (11.5, ()):
        desk.say(one, m.Ping(number=0))
        loop.turn()
        audits.append(len(one.engine.log))
    assert audits == [0, 0, 1, 1, 1, 2]


def test_a_worker_that_can_not_go_on_says_why_and_ends(trio: Trio) -> None:
    desk, one, _ = trio
    one.engine.states.lost_page = True
    times = iter(range(1000))
    loop = WorkerLoop(one.rank, one.core, one.engine, one.links, Off(), lambda: float(next(times)))
    one.core.runs = (R,)
    desk.say(one, m.Ping(number=0))
    loop.turn()
    one.core.runs = ()
    desk.say(one, m.Ping(number=1))
    with pytest.raises(PageFault):
        serve.run(loop, one.rank, one.links)
    pongs = desk.hear(), desk.hear()
    assert [isinstance(one, m.Pong) and one.number for one in pongs] == [0, 1]
    said = desk.hear()
    assert isinstance(said, m.Faulted)
    assert "page 3 is lost" in said.error.message


def test_cancel_drops_and_tells_the_pages(trio: Trio) -> None:
    desk, one, _ = trio
    one.core.answers.append([Release(R)])
    desk.say(one, m.Cancel(run=R))
    one.turn()
    assert one.core.events == [Cancelled(R)]
    assert one.engine.log == [("drop", R)]
    assert desk.hear() == m.Released(rank=one.rank, run=R, pages_free=3, pages_total=4)


def test_states_move_through_the_engine(trio: Trio) -> None:
    desk, one, _ = trio
    a, b = StateKey(R, "a"), StateKey(R, "b")
    one.engine.states.kept[a] = {"kv": torch.ones(2)}
    ref = Ref(R, 0, 0, ())
    moves = [
        MoveState(ref, "fork", source=a, target=b, width=2),
        MoveState(ref, "export", source=a),
        MoveState(ref, "import", target=b, value={"kv": 3}),
        MoveState(ref, "import", target=b, value={}),
        MoveState(ref, "import", target=b, value={"big": 3}),
        DropStates((a, b)),
    ]
    start(one, desk, list(moves))
    one.turn()
    forked, exported, imported, refused, crowded = (e for e in one.core.events if isinstance(e, CallDone))
    assert (forked.outputs, imported.outputs) == ({}, {})
    assert exported.outputs is not None
    assert "kv" in exported.outputs["state"]
    assert refused.error is not None
    assert crowded.error is not None
    assert crowded.error.code == "out_of_memory"
    assert one.engine.states.kept[b] == {"kv": 3}
    assert one.engine.log == [("fork", a, b, 2), ("drop_states", (a, b))]


def test_tensors_arrive_and_their_room_comes_back(trio: Trio) -> None:
    desk, one, two = trio
    big, small = torch.arange(4096), torch.arange(3)
    start(one, desk, [Send(two.rank, deliver(0), big, "shm"), Send(two.rank, deliver(1), small, "shm")])
    one.turn()
    assert one.arena.out == 1
    until(desk, two, lambda: len(two.core.events) == 2)
    assert [e.message.key for e in two.core.events if isinstance(e, Arrived)] == [(0,), (1,)]  # type: ignore[union-attr]
    assert [e.value.shape for e in two.core.events if isinstance(e, Arrived)] == [(4096,), (3,)]
    until(desk, one, lambda: one.arena.out == 0)


def test_a_full_arena_queues_in_order_and_goes_on_when_freed(trio: Trio) -> None:
    desk, one, two = trio
    third = torch.zeros(20_000, dtype=torch.uint8)  # the arena of `two` holds three
    sends: list[Command] = [Send(one.rank, deliver(i), third + i, "shm") for i in range(9)]
    start(two, desk, [*sends, Send(one.rank, deliver(9), 1)])
    two.turn()
    assert two.arena.out == 3
    until(desk, one, lambda: turned(desk, two) and len(one.core.events) == 10)
    keys = [e.message.key[0] for e in one.core.events if isinstance(e, Arrived)]  # type: ignore[union-attr]
    assert keys == list(range(10))
    assert [int(e.value[0]) for e in one.core.events[:9] if isinstance(e, Arrived)] == list(range(9))


def test_full_arenas_that_send_to_each_other_both_go_on(trio: Trio) -> None:
    desk, one, two = trio
    for worker, other, room in ((one, two, ROOM), (two, one, 1 << 16)):
        third = torch.zeros(room * 3 // 10, dtype=torch.uint8)
        start(worker, desk, [Send(other.rank, deliver(i), third, "shm") for i in range(9)])
        worker.turn()
        assert worker.arena.out == 3
    until(desk, two, lambda: turned(desk, one) and all(len(worker.core.events) == 10 for worker in (one, two)))
    until(desk, two, lambda: turned(desk, one) and not one.arena.out and not two.arena.out)


def test_what_waits_for_a_run_that_ends_is_dropped(trio: Trio) -> None:
    desk, _, two = trio
    third = torch.zeros(20_000, dtype=torch.uint8)
    start(two, desk, [Send(Rank(0), deliver(i), third, "shm") for i in range(9)])
    two.turn()
    two.core.answers.append([Release(R)])
    desk.say(two, m.Cancel(run=R))
    two.turn()
    assert isinstance(desk.hear(), m.Released)
    assert two.arena.out == 3, "what is under way is freed by the peer"
    assert not any(len(outbox) for outbox in two.links._out.values())


def test_a_value_that_cannot_travel_fails_its_run_alone(trio: Trio) -> None:
    desk, _, two = trio
    start(two, desk, [Send(Rank(0), deliver(), torch.zeros(1 << 17, dtype=torch.uint8), "shm"), RunCall(call())])
    two.turn()
    said = desk.hear()
    assert isinstance(said, m.RankFailed)
    assert said.error.code == "out_of_memory"
    assert "arena_bytes" in said.error.message
    assert any(isinstance(event, CallDone) for event in two.core.events)


def test_a_forged_ticket_fails_its_run_alone(trio: Trio) -> None:
    desk, one, two = trio
    ticket = m.Ticket(
        dtype="uint8", shape=(64,), id=77, owner=two.rank, transport="shm", offset=128, nbytes=64
    )  # fmt: skip
    forged = m.Deliver(run=R, step=0, edge=0, key=(), value=ticket)
    start(two, desk, [Send(one.rank, forged, ABSENT)])
    two.turn()
    one.turn()
    said = desk.hear()
    assert isinstance(said, m.RankFailed)
    assert said.rank == one.rank
    assert not one.core.events


def test_bad_inputs_of_a_start_fail_its_run(trio: Trio) -> None:
    desk, one, _ = trio
    lie = m.InlineTensor(dtype="int64", shape=(3,), data=b"1")
    desk.say(one, m.Start(run=R, itinerary=ITINERARY, params={}, inputs={"x": lie}))
    one.turn()
    said = desk.hear()
    assert isinstance(said, m.RankFailed)
    assert isinstance(said.error, ErrorInfo)


def test_frames_that_are_no_messages_are_counted(trio: Trio, outside: sockets.Context) -> None:
    desk, one, _ = trio
    sender = sockets.push(outside, one.address)
    for frames in ([b"x" * 8, b"garbage"], [b"alone"], [b"x" * 8, codec.encode(m.Freed(ticket=1)), b"more"]):
        sender.send_multipart(frames)
    desk.socket.send_multipart([b"0.1", b"\x80\x04garbage"])
    until(desk, one, lambda: one.links.rejected == 4)
    sender.close()
    assert not one.core.events
