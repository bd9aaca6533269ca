"""The report of a rank that can't be loaded, its threads, and the end of an engine."""

import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch

from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.worker import serve


class Desk:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send(self, frame: Any) -> None:
        self.heard.append(msgspec.msgpack.decode(frame, type=m.FromWorker))


class Here:
    """Engine of a rank whose memory ends while a loop is made ready."""

    def __init__(self, raised: Exception) -> None:
        self.raised = raised

    def loops(self) -> list[None]:
        return [None]

    def load(self, progress: Callable[[str, float], None]) -> None:
        progress("weights", 1.0)

    def prepare(self, call: None, progress: Callable[[str, float], None]) -> None:
        raise self.raised


def loaded(raised: Exception, caches: int = 1) -> tuple[bool, list[Any]]:
    """`caches`: GiB of the rank's 10 that they take."""
    desk, here, nodes = Desk(), Here(raised), (10 - caches) << 30
    going: Any = serve._load
    rank = SimpleNamespace(rank=0, kv_bytes=caches << 30, budget=(("weights a", nodes), ("kv main", caches << 30)))
    order: Any = SimpleNamespace(number=0, plan=SimpleNamespace(ranks=[rank]))
    return going(here, here.loops(), order, Rank(0), desk), desk.heard


@pytest.mark.parametrize("raised", [MemoryError(), torch.OutOfMemoryError("no room")])
def test_a_rank_that_runs_out_of_memory_while_it_captures_says_so(raised: Exception) -> None:
    ready, heard = loaded(raised)
    assert not ready
    assert [type(message) for message in heard] == [m.Progress, m.LoadFailed]
    assert heard[-1].error.code == "out_of_memory"
    assert "place fewer" in heard[-1].error.message


def test_a_rank_whose_caches_leave_no_room_says_to_give_it_less_memory() -> None:
    _, heard = loaded(MemoryError(), caches=9)
    message = heard[-1].error.message
    assert "caches, which take 9.0 GiB of its 10.0 GiB; give its groups less `memory`" in message


def test_what_is_wrong_with_the_code_is_raised() -> None:
    with pytest.raises(KeyError):
        loaded(KeyError("x"))


class Cyclic:
    """Part of a former engine."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("changing", [True, False])
def test_a_former_engine_is_collected_whether_or_not_it_was_made_to_stay(
    monkeypatch: pytest.MonkeyPatch, *, changing: bool
) -> None:
    thawed: list[bool] = []
    monkeypatch.setattr(gc, "unfreeze", lambda real=gc.unfreeze: (thawed.append(True), real()))
    engine: Cyclic | None = Cyclic()
    gone = weakref.ref(engine)
    process: Any = SimpleNamespace(spec=SimpleNamespace(changing=changing))
    try:
        if not changing:
            gc.freeze()
        engine = None
        serve._Process._forget_engine(process, again=False)
        assert gone() is None
        assert thawed == ([] if changing else [True]), "to search what was imported takes a second"
    finally:
        gc.unfreeze()


LOAD = m.Load(plan=cast("Any", None), peers={})


class Told:
    """A process that is told to load, whose plans end as listed: (loaded, the order that ended it)."""

    def __init__(self, *ends: tuple[bool, m.Load | None]) -> None:
        self.forgot: list[bool] = []
        self.did: list[str] = []
        self._ends = list(ends)
        self.links = SimpleNamespace(
            from_conductor=SimpleNamespace(wait=lambda: None, messages=lambda: [LOAD]),
        )

    def _serve(self, order: m.Load, *, again: bool) -> tuple[bool, m.Load | None, Any]:
        return *self._ends.pop(0), SimpleNamespace(close=lambda: self.did.append("close"))

    def _forget_engine(self, *, again: bool) -> None:
        self.forgot.append(again)
        self.did.append("forget")


@pytest.mark.parametrize(
    ("ends", "forgot"),
    [
        ([(True, None)], []),
        ([(False, None)], []),
        ([(True, LOAD), (True, None)], [False]),
        ([(True, LOAD), (False, None), (True, None)], [False, True]),
        ([(True, LOAD), (False, None), (False, None)], [False, True]),
    ],
)
def test_an_engine_is_forgotten_for_the_next_one_alone(ends: list[Any], forgot: list[bool]) -> None:
    process: Any = Told(*ends)
    serve._Process.serve(process)
    assert process.forgot == forgot
    assert process.did == ["forget", "close"] * len(forgot), "its graphs hold the collectives of the group"
    assert not process._ends


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_threads_of_invariant_ranks_are_as_many_however_many_ranks_there_are(device: str) -> None:
    assert {serve.threads_of(device, 16, ranks, 8, batch_invariant=True) for ranks in (1, 2, 3, 64)} == {1}
    assert all(serve.threads_of(device, 16, ranks, None, batch_invariant=False) >= 1 for ranks in (1, 2, 64))


def test_a_rank_has_its_share_of_the_cores_and_no_more_threads_than_the_user_wants() -> None:
    wanted = {("cpu", 1, None): 16, ("cpu", 2, None): 8, ("cpu", 2, 3): 3, ("cpu", 8, 3): 2, ("cpu", 64, 3): 1}
    wanted |= {("cuda:0", 1, None): 4, ("cuda:0", 1, 3): 3, ("cuda:0", 1, 9): 4}
    found = {key: serve.threads_of(key[0], 16, *key[1:], batch_invariant=False) for key in wanted}
    assert found == wanted
