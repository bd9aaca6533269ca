"""The conductor's core in simulated time: every accepted run ends once, pages are accounted for, workers come back."""

import pytest
from msgspec.structs import replace

from tests.support.conductor_world import PAGES, POOL, World
from tests.support.deployment import plan_named
from walkgraph.conductor.events import Command, FromRank, FromService, Tick, ToService
from walkgraph.graph.document import SessionPolicy
from walkgraph.ids import Rank, RunId
from walkgraph.placement.selection import Selection
from walkgraph.telemetry.events import RunPhase
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits
from walkgraph.wire.watching import Break

GRAPH, PLAN = plan_named("synthetic_states")
ONE_GRAPH, ONE_PLAN = plan_named("synthetic_states", ranks=1)


def world(seed: int = 0, one: bool = False, **limits: float) -> World:
    made = World(ONE_GRAPH if one else GRAPH, ONE_PLAN if one else PLAN, Limits(**limits), seed)  # type: ignore[arg-type]
    made.settle()
    assert made.state == "ready"
    return made


def half(tokens: int = PAGES * 16 // 2) -> dict[str, int]:
    """Parameters of `write` that take `tokens` in `main`."""
    return {"prompt": tokens - 10, "times": 10}


# ── random worlds ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_every_run_ends_once_and_nothing_is_held(seed: int) -> None:
    w = world(seed, queue=6, restarts=50, backoff_first=0.1)
    chance, number = w.chance, 0
    for _ in range(400):
        what = chance.random()
        if what < 0.12:
            number += 1
            tokens = chance.choice([20, 100, 300, PAGES * 16])
            fields = {"deadline": chance.choice([None, 0.5, 5.0]), "priority": chance.randrange(3)}
            fields["hold"] = chance.random() < 0.1
            if chance.random() < 0.3:
                w.submit(f"r{number}", "remember", session=chance.choice("ab"), params={"room": tokens}, **fields)
            else:
                w.submit(f"r{number}", params=half(tokens), **fields)
        elif what < 0.17 and number:
            run = RunId(f"r{chance.randrange(number) + 1}")
            w.handle(FromService(m.Abort(run=run, reason=chance.choice(["cancelled", "disconnected"]))))
        elif what < 0.19 and w.workers:
            chance.choice([w.kill, w.part])(chance.choice(list(w.workers)))
        elif what < 0.20 and w.workers:
            w.workers[chance.choice(list(w.workers))].stopped = True
        elif what < 0.30:
            w.pass_time(chance.choice([0.01, 0.3, 2.0]))
        elif what < 0.32:
            some = [Break(id="b", walk="w", use="u")]
            w.handle(FromService(m.Watch(breaks=tuple(some[: chance.randrange(2)]))))
            asked(w, end=chance.choice([None, "a", "b"]))
        elif what < 0.42 and number:
            w.steer_any(f"r{chance.randrange(number) + 1}")
        elif w.workers:
            w.act(chance.choice(list(w.workers)))
    w.hear()
    w.check_paused()
    w.handle(FromService(m.Watch()))
    w.hear()
    for run in list(w.paused):
        w.steer(run, "resume")
    w.settle()
    assert set(w.finished) == w.accepted
    assert all(indices == list(range(len(indices))) for run, indices in w.outputs.items() if len(indices) < 2)
    w.pass_time(700)  # sessions are over
    w.settle()
    w.pass_time(20)
    w.settle()
    assert all(pages == 0 for pages in w.core.pages.promised.values())
    assert len(w.core.runs.sessions) == 0
    assert not any(worker.runs for worker in w.workers.values())
    assert w.statuses[-1].running == w.statuses[-1].waiting == 0
    assert not w.core.ranks.failure


# ── admission ──────────────────────────────────────────────────────────────────────────────────


def starts(w: World, rank: int = 0) -> list[str]:
    return [message.run for message in w.workers[Rank(rank)].inbox if isinstance(message, m.Start)]


def test_runs_start_while_their_worst_case_fits() -> None:
    w = world(one=True)
    for name in ("a", "b", "c"):
        w.submit(name, params=half())
    assert starts(w) == ["a", "b"]
    assert (w.statuses[-1].running, w.statuses[-1].waiting) == (2, 1)
    w.workers[Rank(0)].runs.clear()
    w.handle(FromService(m.Abort(run=RunId("a"))))
    assert starts(w) == ["a", "b"], "the pages of `a` are not free before its rank says so"
    w.settle()
    assert set(w.finished) == {"a", "b", "c"}


def test_ranks_learn_whom_a_run_shares_pages_with() -> None:
    w = world(one=True)
    for name, salt in (("a", "one key"), ("b", "")):
        w.submit(name, params=half(), salt=salt)
    inbox = w.workers[Rank(0)].inbox
    assert [message.salt for message in inbox if isinstance(message, m.Start)] == ["one key", ""]


def test_higher_priority_goes_first_then_order_of_arrival() -> None:
    w = world(one=True)
    w.submit("first", params=half(PAGES * 16))
    for name, priority in (("low", 0), ("high", 5), ("low2", 0), ("high2", 5)):
        w.submit(name, params=half(PAGES * 16), priority=priority)
    order = []
    for _ in range(5):
        order += [run for run in starts(w) if run not in order]
        w.handle(FromService(m.Abort(run=RunId(order[-1]))))
        w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, released(order[-1])))
    assert order == ["first", "high", "high2", "low", "low2"]


def released(run: str, rank: int = 0) -> m.Released:
    return m.Released(rank=Rank(rank), run=RunId(run), pages_free=1, pages_total=1)


def test_one_that_waits_for_pages_is_not_starved_by_smaller_ones() -> None:
    w = world(one=True)
    w.submit("running", params=half())
    w.submit("large", params=half(PAGES * 16))
    w.submit("small", params=half(32))
    assert starts(w) == ["running"]


def test_what_can_never_fit_is_refused_and_says_what_to_do() -> None:
    w = world(one=True)
    w.submit("huge", params=half(PAGES * 16 + 1))
    error = w.finished["huge"].error
    assert error
    assert error.code == "refused"
    assert "41 cache pages" in error.message
    assert "memory" in error.message


def test_the_queue_is_bounded() -> None:
    w = world(one=True, queue=2)
    w.submit("a", params=half(PAGES * 16))
    for name in ("b", "c", "d"):
        w.submit(name, params=half(PAGES * 16))
    assert w.rejected["d"].error.code == "overloaded"
    assert w.rejected["d"].error.retryable


def test_bad_requests_are_rejected_with_a_pointer() -> None:
    w = world(one=True)
    w.submit("a", params={"prmpt": 3})
    w.submit("b", "wriite")
    assert (w.rejected["a"].pointer, w.rejected["a"].error.code) == ("/params/prmpt", "invalid_input")
    assert "did you mean" in w.rejected["b"].error.message or "`write`" in w.rejected["b"].error.message


def test_deadlines_hold_while_waiting_and_while_running() -> None:
    w = world(one=True)
    w.submit("running", params=half(PAGES * 16), deadline=5.0)
    w.submit("waiting", params=half(PAGES * 16), deadline=2.0)
    w.pass_time(2.1)
    assert w.finished["waiting"].error.code == "deadline_exceeded"  # type: ignore[union-attr]
    assert "running" not in w.finished
    w.pass_time(3.0)
    assert w.core.due() > w.now
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, released("running")))
    assert w.finished["running"].error.code == "deadline_exceeded"  # type: ignore[union-attr]


# ── sessions ───────────────────────────────────────────────────────────────────────────────────


def test_a_session_takes_one_run_at_a_time_and_keeps_its_pages() -> None:
    w = world(one=True)
    for name in ("a", "b"):
        w.submit(name, "remember", session="s", params={"room": 160})
    w.submit("other", "remember", session="t", params={"room": 160})
    assert starts(w) == ["a", "other"]
    w.settle()
    assert set(w.finished) == {"a", "b", "other"}
    assert w.core.pages.promised.total() == 20
    w.pass_time(601)
    assert w.workers[Rank(0)].inbox[-1] == m.Cancel(run=RunId("session:t"))
    w.settle()
    while w.workers[Rank(0)].inbox or w.workers[Rank(0)].outbox:
        w.act(Rank(0))
    assert w.core.pages.promised.total() == 0


def test_a_session_keeps_no_more_than_its_bytes() -> None:
    task = ONE_GRAPH.tasks["remember"]
    policy = SessionPolicy(max_bytes=10 * POOL.page_bytes)
    tasks = {**ONE_GRAPH.tasks, "remember": task.model_copy(update={"session": policy})}
    w = World(ONE_GRAPH.model_copy(update={"tasks": tasks}), ONE_PLAN, Limits(), 0)
    w.settle()
    w.submit("fits", "remember", session="s", params={"room": 160})
    w.settle()
    w.submit("less", "remember", session="s", params={"room": 20})
    w.submit("more", "remember", session="s", params={"room": 161})
    w.submit("alone", "remember", params={"room": 161})
    w.settle()
    assert [w.finished[run].error for run in ("fits", "less", "alone")] == [None] * 3
    error = w.finished["more"].error
    assert error is not None
    assert error.code == "refused"
    assert "max_bytes" in error.message


def test_a_lost_worker_takes_its_sessions_along() -> None:
    w = world(one=True)
    w.submit("a", "remember", session="s", params={"room": 160})
    w.settle()
    assert len(w.core.runs.sessions) == 1
    w.kill(Rank(0))
    assert len(w.core.runs.sessions) == 0
    assert w.core.pages.promised.total() == 0


def test_a_session_s_next_run_passes_those_that_wait_for_its_pages() -> None:
    w = world(one=True)
    w.submit("a", "remember", session="s", params={"room": 160})
    w.settle()
    w.submit("large", params=half(PAGES * 16))
    w.submit("b", "remember", session="s", params={"room": 160})
    assert starts(w) == ["b"] and asked(w, end="s").known  # noqa: PT018
    w.settle()
    assert [w.finished[run].error for run in ("a", "b", "large")] == [None] * 3


def asked(w: World, end: str | None = None) -> m.SessionsTold:
    w.handle(FromService(m.AskSessions(number=3, end=end)))
    found = w.sessions[-1]
    assert found.number == 3
    return found


def test_sessions_are_told_with_what_they_keep() -> None:
    w = world(one=True)
    assert asked(w).sessions == ()
    w.submit("a", "remember", session="s", params={"room": 160})
    w.submit("b", "remember", session="s", params={"room": 160})
    (told,) = asked(w).sessions
    assert (told.name, told.run, told.waiting, told.bytes) == ("s", "a", 1, 10 * POOL.page_bytes)
    assert (told.idle, told.ttl, told.ending) == (0.0, 600.0, False)
    w.settle()
    w.pass_time(20)
    (told,) = asked(w).sessions
    assert (told.run, told.waiting, told.bytes) == (None, 0, 10 * POOL.page_bytes)
    assert told.idle >= 20


def test_a_session_ends_when_nothing_of_it_runs_and_what_waits_begins_it_anew() -> None:
    w = world(one=True)
    assert not asked(w, end="s").known
    w.submit("a", "remember", session="s", params={"room": 160})
    w.submit("b", "remember", session="s", params={"room": 16})
    told = asked(w, end="s")
    assert told.known
    assert (told.sessions[0].run, told.sessions[0].ending) == ("a", True)
    w.settle()
    assert [w.finished[run].error for run in "ab"] == [None, None]
    (kept,) = asked(w).sessions
    assert (kept.bytes, kept.ending) == (POOL.page_bytes, False), "of `b` alone"
    assert asked(w, end="s").known
    w.pass_time(0.01)
    w.settle()
    assert asked(w).sessions == ()
    assert w.core.pages.promised.total() == 0
    assert not any(worker.runs for worker in w.workers.values())


# ── the end ────────────────────────────────────────────────────────────────────────────────────


def test_draining_takes_nothing_new_and_finishes_the_rest() -> None:
    w = world(one=True)
    w.submit("a", params=half(PAGES * 16))
    w.submit("b", params=half(PAGES * 16))
    w.handle(FromService(m.Drain()))
    w.submit("c")
    assert w.rejected["c"].error.code == "shutting_down"
    w.settle()
    assert set(w.finished) == {"a", "b"}
    assert (w.state, w.statuses[-1].running) == ("draining", 0)


@pytest.mark.parametrize("hang", [False, True])
def test_stopping_ends_runs_and_workers(hang: bool) -> None:
    w = world()
    w.submit("a", "part_ways")
    w.submit("b", params=half(PAGES * 16))
    w.submit("c", params=half(PAGES * 16))
    w.workers[Rank(1)].stopped = hang
    w.handle(FromService(m.Stop()))
    assert w.core.due() <= w.now + 2
    for _ in range(200):
        for rank in list(w.workers):
            if rank in w.workers:
                w.act(rank)
    if hang:
        assert not w.exited
        w.pass_time(2.0)
    assert w.exited
    assert {f.error.code for f in w.finished.values() if f.error} == {"shutting_down"}
    assert set(w.finished) == w.accepted == {"a", "b", "c"}
    assert w.state == "stopped"


def test_phases_are_told_in_order() -> None:
    w = world(one=True)
    w.submit("a")
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, emit("a")))
    w.handle(FromRank(Rank(0), w.workers[Rank(0)].start, emit("a")))
    w.settle()
    phases = [event.phase for event in w.told if isinstance(event, RunPhase)]
    assert phases == ["queued", "started", "first_output", "finished"]


def emit(run: str, name: str = "token") -> m.Emit:
    return m.Emit(rank=Rank(0), run=RunId(run), name=name, value=m.Small(value=1), iteration=())


def test_outputs_are_numbered_and_say_what_they_are() -> None:
    w = world(one=True)
    w.submit("a")
    event = FromRank(Rank(0), w.workers[Rank(0)].start, replace(emit("a"), modality="tokens"))
    told = [
        command.message for _ in range(2) for command in w.core.handle(event, w.now) if isinstance(command, ToService)
    ]
    assert [(o.index, o.modality) for o in told if isinstance(o, m.Output)] == [(0, "tokens"), (1, "tokens")]


def test_of_the_last_values_of_steps_the_last_is_sent_before_the_end() -> None:
    w = world(one=True)
    w.submit("a", selected={"token": Selection(last=True)})
    start = w.workers[Rank(0)].start
    assert w.core.runs.table["a"].state == "running"
    for number in range(3):
        value = m.Small(value=number)
        assert not sent(w.core.handle(FromRank(Rank(0), start, replace(emit("a"), value=value)), w.now))
    done = FromRank(Rank(0), start, m.RankDone(rank=Rank(0), run=RunId("a"), times=()))
    output, finished = sent(w.core.handle(done, w.now))
    assert isinstance(output, m.Output)
    assert (output.index, output.value) == (0, m.Small(value=2))
    assert isinstance(finished, m.Finished)


def test_a_run_that_fails_sends_no_last_value() -> None:
    w = world(one=True)
    w.submit("a", selected={"token": Selection(last=True)})
    start = w.workers[Rank(0)].start
    w.handle(FromRank(Rank(0), start, emit("a")))
    w.handle(FromService(m.Abort(run=RunId("a"))))
    w.settle()
    assert not w.outputs


def sent(commands: list[Command]) -> list[m.FromConductor]:
    messages = [command.message for command in commands if isinstance(command, ToService)]
    return [message for message in messages if not isinstance(message, m.Status)]


def test_outputs_that_nobody_wants_or_that_come_late_are_dropped() -> None:
    w = world(one=True)
    w.submit("a")
    start = w.workers[Rank(0)].start
    w.handle(FromRank(Rank(0), start, emit("a", "other")))
    w.handle(FromRank(Rank(0), start, emit("unknown")))
    w.handle(FromService(m.Abort(run=RunId("a"))))
    w.handle(FromRank(Rank(0), start, emit("a")))
    assert not w.outputs
    w.handle(Tick())
