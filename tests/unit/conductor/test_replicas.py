"""Replicas: where runs go, what is lost with a replica, and what starts again elsewhere."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.support.conductor_world import PAGES, World
from tests.support.deployment import graph_named
from tests.support.placing import CATALOGUE, duet
from walkgraph.components import catalogue
from walkgraph.conductor import replicas
from walkgraph.conductor.events import FromRank, FromService
from walkgraph.conductor.itinerary_cache import CachedItinerary
from walkgraph.conductor.replicas import beginnings
from walkgraph.conductor.replicas.beginnings import STRIDE, Beginnings, beginnings_of
from walkgraph.conductor.replicas.choice import ReplicaChoice
from walkgraph.conductor.runs.records import RunRecord
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.wire import messages as m
from walkgraph.wire.spec import Limits

Places = Mapping[int, CachedItinerary]
STATES, DUET = graph_named("synthetic_states"), duet()


def placed(*groups: Group, ranks: int) -> Placement:
    return Placement(name="r", groups=groups, ranks=tuple(RankDevice(rank=i, device="cpu") for i in range(ranks)))


def whole(replicas: int = 2) -> Placement:
    return placed(Group(nodes=("*",), ranks=tuple(range(replicas)), replicas=replicas), ranks=replicas)


def writing(placement: Placement | None = None, seed: int = 0, **limits: float) -> World:
    """A world whose runs keep pages and read no inputs."""
    plan = assemble(Assignment(STATES, placement or whole()), catalogue())
    made = World(STATES, plan, Limits(**limits), seed)  # type: ignore[arg-type]
    made.settle()
    assert made.state == "ready"
    return made


def reading(replicas: int = 2) -> World:
    """A world whose runs read texts."""
    made = World(DUET, assemble(Assignment(DUET, whole(replicas)), CATALOGUE), Limits(), 0)
    made.settle()
    return made


def read(w: World, run: str, text: str, session: str | None = None) -> None:
    given = {"fact": (m.Small(value=text),)}
    w.handle(FromService(m.Submit(run=RunId(run), task="remember", params={}, inputs=given, session=session)))


def ranks_of(w: World, run: str) -> set[Rank]:
    return set(w.core.runs.table[run].holding)


def half(pages: int = PAGES // 2) -> dict[str, int]:
    return {"prompt": 16 * pages - 10, "times": 10}


def said(w: World, rank: int, run: str) -> None:
    """A rank gives an output of a run."""
    emit = m.Emit(rank=Rank(rank), run=RunId(run), name="token", value=m.Small(value=1), iteration=())
    w.handle(FromRank(Rank(rank), w.workers[Rank(rank)].start, emit))


# ── choice ─────────────────────────────────────────────────────────────────────────────────────


def test_runs_go_where_least_is_to_be_done() -> None:
    w = writing(whole(3))
    w.submit("long", params=half())
    for run in "abcd":
        w.submit(run, params=half(2))
    assert ranks_of(w, "long") == {0}
    assert [ranks_of(w, run) for run in "abcd"] == [{1}, {2}, {1}, {2}]


def test_a_run_goes_where_its_pages_are_free() -> None:
    w = writing()
    for run in "abcd":
        w.submit(run, params=half())
    assert [ranks_of(w, run) for run in "abcd"] == [{0}, {1}, {0}, {1}]
    w.submit("waits", params=half())
    assert w.core.runs.table["waits"].state == "waiting"
    w.handle(FromService(m.Abort(run=RunId("d"))))
    w.hear()
    assert ranks_of(w, "waits") == {1}


def test_a_run_goes_where_its_beginning_was_read() -> None:
    w = reading(3)
    texts = {name: name * 3 * STRIDE for name in "abc"}
    for name, text in texts.items():
        read(w, name, text)
        w.settle()
    first = {name: _rank_of(w, name) for name in texts}
    assert set(first.values()) == {0, 1, 2}, "what is new goes where less was read"
    for number, name in enumerate("cabbac"):
        read(w, f"again{number}", texts[name] + f" and more {number}")
        assert ranks_of(w, f"again{number}") == {first[name]}
        w.settle()


def _rank_of(w: World, run: str) -> int:
    return next(rank for rank, worker in w.workers.items() if run in worker.ended)


def test_a_beginning_that_all_runs_have_does_not_keep_them_on_one_replica() -> None:
    w = reading()
    for number in range(12):
        read(w, f"r{number}", "the same system prompt " * 20 + f"and question {number}")
    counts = [len(worker.inbox) for worker in w.workers.values()]
    assert sum(counts) == 12
    assert min(counts) >= 4


def test_a_session_stays_where_it_began() -> None:
    w = reading()
    read(w, "a", "it rains", session="s")
    (home,) = ranks_of(w, "a")
    w.settle()
    other = 1 - home
    read(w, "busy", "x" * 4000)
    assert ranks_of(w, "busy") == {other}
    w.settle()
    read(w, "b", "x" * 4000, session="s")
    assert ranks_of(w, "b") == {home}, "though the other replica has read it"


def test_groups_with_equally_many_replicas_are_taken_together() -> None:
    copy = Group(nodes=("copy",), ranks=(2, 3), replicas=2)
    w = writing(placed(Group(nodes=("*",), ranks=(0, 1), replicas=2), copy, ranks=4))
    for run in "ab":
        w.submit(run, "part_ways")
    assert [ranks_of(w, run) for run in "ab"] == [{0, 2}, {1, 3}]


@pytest.mark.parametrize("made", [reading, lambda: writing(whole(4))], ids=["reading", "writing"])
def test_the_alternative_is_the_best_of_all(made: Callable[[], World], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the one that a comparison of all by everything finds. Pages run out, and runs wait for them."""
    best, chance, seen = ReplicaChoice._best, random.Random(5), Counter[tuple[bool, int]]()

    def checked(self: ReplicaChoice, run: RunRecord, places: Places, work: Mapping[Rank, int]) -> int:
        left = {index: sum(work.get(rank, 0) for rank in one.expanded.itinerary.ranks) for index, one in places.items()}
        own = sum(run.request.work.values())
        assert {rank: tokens for rank, tokens in work.items() if tokens} == _work_of(w)

        def standing(index: int) -> tuple[object, ...]:
            needed, ranks = self._needed(run, places[index]), places[index].expanded.itinerary.ranks
            return (
                self._pages.fits(needed),
                self._pages.never_fits(needed) is None,
                left[index] <= replicas.choice.BUSIER * min(left.values()) + own,
                sum(self._beginnings.known(rank, self._of(run)) for rank in ranks),
                -left[index],
                -sum(self._beginnings.count(rank) for rank in ranks),
                -index,
            )

        found = best(self, run, places, work)
        assert found == max(places, key=standing)
        seen[self._pages.fits(self._needed(run, places[found])), found] += 1
        return found

    w = made()
    monkeypatch.setattr(ReplicaChoice, "_best", checked)
    for number in range(120):
        if made is reading:
            read(w, f"r{number}", chance.choice("abcd") * chance.randint(1, 6) * STRIDE)
        else:
            w.submit(f"r{number}", params=half(chance.randint(1, PAGES)))
        if chance.random() < 0.1:
            w.settle()
    assert {place for _, place in seen} == set(range(len(w.workers)))
    assert made is reading or {fits for fits, _ in seen} == {True, False}


def _work_of(w: World) -> dict[Rank, int]:
    found = Counter[Rank]()
    for run in w.core.runs.table:
        if run.admitted:
            found.update(run.request.work)
    return dict(found)


# ── loss ───────────────────────────────────────────────────────────────────────────────────────


def test_only_runs_of_a_lost_replica_end_and_those_without_outputs_start_again() -> None:
    w = writing()
    for run in "abcd":
        w.submit(run)
    assert [ranks_of(w, run) for run in "abcd"] == [{0}, {1}, {0}, {1}]
    for rank, run in ((0, "a"), (1, "b")):
        said(w, rank, run)
    w.kill(Rank(0))
    error = w.finished["a"].error
    assert error is not None
    assert (error.code, error.retryable, error.rank) == ("worker_lost", True, 0)
    assert w.finished.keys() == {"a"}
    assert w.state == "degraded"
    assert [ranks_of(w, run) for run in "bcd"] == [{1}] * 3
    w.submit("new")
    assert ranks_of(w, "new") == {1}, "it doesn't wait for the lost one"
    w.settle()
    w.pass_time(0.6)
    w.settle()
    assert w.state == "ready"
    assert w.outputs["c"] == [*range(len(w.outputs["c"]))], "numbered from 0, once"


def test_a_run_starts_again_once() -> None:
    w = writing(whole(3))
    w.submit("a")
    for expected in ({0}, {1}):
        assert ranks_of(w, "a") == expected
        w.kill(Rank(min(expected)))
    error = w.finished["a"].error
    assert error is not None
    assert error.code == "worker_lost"


def test_a_run_waits_for_the_ranks_that_still_hold_it_before_it_starts_again() -> None:
    copy = Group(nodes=("copy",), ranks=(2, 3), replicas=2)
    w = writing(placed(Group(nodes=("*",), ranks=(0, 1), replicas=2), copy, ranks=4))
    w.submit("a", "part_ways")
    w.kill(Rank(0))
    assert w.core.runs.table["a"].state == "restarting"
    w.hear()
    assert ranks_of(w, "a") == {1, 3}
    w.settle()
    assert w.core.pages.promised.total() == 0


@pytest.mark.parametrize("end", ["cancelled", "deadline_exceeded"])
def test_a_run_can_end_while_it_is_to_start_again(end: str) -> None:
    copy = Group(nodes=("copy",), ranks=(2, 3), replicas=2)
    w = writing(placed(Group(nodes=("*",), ranks=(0, 1), replicas=2), copy, ranks=4))
    w.submit("a", "part_ways", deadline=1.0)
    w.kill(Rank(0))
    w.handle(FromService(m.Abort(run=RunId("a")))) if end == "cancelled" else w.pass_time(1.0)
    w.hear()
    error = w.finished["a"].error
    assert error is not None
    assert error.code == end
    assert w.core.pages.promised.total() == 0


def test_a_run_does_not_start_again_where_a_rank_has_ended_it() -> None:
    shared = placed(Group(nodes=("*",), ranks=(0,)), Group(nodes=("copy",), ranks=(1, 2), replicas=2), ranks=3)
    w = writing(shared)
    w.submit("a", "part_ways")
    assert ranks_of(w, "a") == {0, 1}
    w.kill(Rank(1))
    error = w.finished["a"].error
    assert error is not None
    assert error.code == "worker_lost", "rank 0 would drop its second start"
    w.submit("b", "part_ways")
    assert ranks_of(w, "b") == {0, 2}


def test_a_session_is_lost_with_its_replica_and_begins_anew() -> None:
    w = reading()
    read(w, "a", "it rains", session="s")
    (home,) = ranks_of(w, "a")
    w.kill(home)
    error = w.finished["a"].error
    assert error is not None
    assert error.code == "worker_lost", "its states are gone: it doesn't start again"
    read(w, "b", "it rains", session="s")
    assert ranks_of(w, "b") == {1 - home}


def test_a_replica_that_never_comes_back_leaves_the_deployment_degraded() -> None:
    w = writing(restarts=2, backoff_first=0.1)
    for _ in range(3):
        w.kill(Rank(0))
        while Rank(0) not in w.workers and w.core.ranks.status()[0].state != "failed":
            w.pass_time(0.1)
    assert w.core.ranks.status()[0].state == "failed"
    assert w.state == "degraded"
    w.submit("a")
    assert ranks_of(w, "a") == {1}
    w.settle()
    assert w.finished["a"]
    for _ in range(3):
        w.kill(Rank(1))
        while Rank(1) not in w.workers and w.core.ranks.status()[1].state != "failed":
            w.pass_time(0.1)
    assert w.state == "failed"


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_every_run_ends_once_and_nothing_is_held(seed: int) -> None:
    copy = Group(nodes=("copy",), ranks=(2, 3), replicas=2)
    apart = placed(Group(nodes=("*",), ranks=(0, 1), replicas=2), copy, ranks=4)
    w = writing(apart if seed % 2 else whole(3), seed, restarts=50, backoff_first=0.1)
    number = 0
    for _ in range(300):
        what = w.chance.random()
        if what < 0.15:
            number += 1
            w.submit(f"r{number}", w.chance.choice(["write", "part_ways", "remember"]), session=w.chance.choice("ab"))
        elif what < 0.2 and number:
            w.handle(FromService(m.Abort(run=RunId(f"r{w.chance.randrange(number) + 1}"))))
        elif what < 0.25 and w.workers:
            w.kill(w.chance.choice(list(w.workers)))
        elif what < 0.3:
            w.pass_time(0.3)
        elif w.workers:
            w.act(w.chance.choice(list(w.workers)))
    w.settle()
    assert set(w.finished) == w.accepted
    w.pass_time(100_000.0)
    w.settle()
    assert w.core.pages.promised.total() == 0


# ── beginnings ─────────────────────────────────────────────────────────────────────────────────


def asked(*turns: tuple[str, str], salt: str = "") -> m.Submit:
    made = tuple(m.Turn(role=role, parts=(_text(text),)) for role, text in turns)  # type: ignore[arg-type]
    given = {"messages": (m.Conversation(turns=made),)}
    return m.Submit(run=RunId("r"), task="chat", params={}, inputs=given, salt=salt)


def _text(text: str) -> m.Part:
    return m.Part(modality="text", value=m.Small(value=text))


def test_a_conversation_begins_like_the_one_that_it_goes_on_from() -> None:
    first = asked(("user", "hello"))
    second = asked(("user", "hello"), ("assistant", "good day"), ("user", "how are you?"))
    known = Beginnings()
    known.remember(Rank(0), beginnings_of(first))
    assert known.known(Rank(0), beginnings_of(second)) == len("hello")
    assert known.known(Rank(1), beginnings_of(second)) == 0
    assert known.known(Rank(0), beginnings_of(asked(("user", "hello"), salt="other"))) == 0
    assert known.known(Rank(0), beginnings_of(asked(("system", "hello")))) == 0


def test_a_long_text_begins_like_another_up_to_where_they_differ() -> None:
    text = "x" * (10 * STRIDE)
    known = Beginnings()
    known.remember(Rank(0), beginnings_of(asked(("user", text))))
    changed = text[: 4 * STRIDE + 9] + "y" + text[4 * STRIDE + 10 :]
    assert known.known(Rank(0), beginnings_of(asked(("user", changed)))) == 4 * STRIDE
    assert known.known(Rank(0), beginnings_of(asked(("user", text)))) == len(text)


def test_media_are_told_apart_by_their_bytes() -> None:
    def shown(data: bytes) -> m.Submit:
        part = m.Part(modality="image", value=m.Blob(data=data))
        return m.Submit(run=RunId("r"), task="see", params={}, inputs={}, parts=(part, _text("what is it?")))

    known = Beginnings()
    known.remember(Rank(0), beginnings_of(shown(b"a" * 999_999)))
    assert known.known(Rank(0), beginnings_of(shown(b"a" * 999_999))) == beginnings.MEDIA + len("what is it?")
    assert known.known(Rank(0), beginnings_of(shown(b"a" * 999_998))) == 0


def test_what_was_read_long_ago_is_forgotten() -> None:
    known = Beginnings(most=2)
    for word in ("one", "two", "one", "three"):
        known.remember(Rank(0), beginnings_of(asked(("user", word))))
    assert known.count(Rank(0)) <= 2
    assert known.known(Rank(0), beginnings_of(asked(("user", "three")))) > 0
    assert known.known(Rank(0), beginnings_of(asked(("user", "two")))) == 0
    known.forget(Rank(0))
    assert known.known(Rank(0), beginnings_of(asked(("user", "three")))) == 0
