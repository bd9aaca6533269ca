"""Kept traces: the newest of each deployment, and no more than fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm.exc import DetachedInstanceError

from walkgraph.errors import NotFound
from walkgraph.store import traces
from walkgraph.store.session import Store, StoreBusy
from walkgraph.store.tables import RunTrace


@pytest.fixture
def store(tmp_path: Path):
    found = Store.open(f"sqlite:///{tmp_path / 'w.db'}")
    yield found
    found.close()


def row(run: str, at: float, *, deployment: str = "d", nbytes: int = 3, task: str = "t") -> RunTrace:
    return RunTrace(
        run=run,
        deployment=deployment,
        task=task,
        state="done",
        level="full",
        created_at=at,
        seconds=1.0,
        blocks=2,
        nbytes=nbytes,
        recorded=run == "r",
        trace=run.encode(),
        recording=b"values" if run == "r" else None,
    )


def names(store: Store, deployment: str = "d", task: str | None = None, limit: int = 100) -> list[str]:
    return [found.run for found in store.read_now(traces.list_traces, deployment, task, limit)]


def test_traces_are_listed_newest_first_without_their_bytes(store: Store) -> None:
    rows = [row("a", 1.0), row("b", 3.0, task="u"), row("r", 2.0), row("x", 9.0, deployment="e")]
    store.write_now(traces.save_traces, rows, 10)
    assert names(store) == ["b", "r", "a"]
    assert names(store, task="t") == ["r", "a"]
    assert names(store, limit=1) == ["b"]
    assert names(store, "e") == ["x"]
    found = store.read_now(traces.list_traces, "d", None, 10)[0]
    with pytest.raises(DetachedInstanceError):
        _ = found.trace


def test_a_trace_and_its_recording_come_back(store: Store) -> None:
    store.write_now(traces.save_traces, [row("a", 1.0), row("r", 2.0)], 10)
    assert store.read_now(traces.get_trace, "r") == b"r"
    assert store.read_now(traces.get_recording, "r") == b"values"
    assert store.read_now(traces.get_recording, "a") is None
    assert store.read_now(traces.get_recording, "none") is None
    with pytest.raises(NotFound):
        store.read_now(traces.get_trace, "none")


def test_the_newest_are_kept_of_each_deployment(store: Store) -> None:
    store.write_now(traces.save_traces, [row("other", 0.0, deployment="e")], 2)
    for at, name in enumerate("abcd"):
        store.write_now(traces.save_traces, [row(name, float(at))], 2)
    assert names(store) == ["d", "c"]
    assert names(store, "e") == ["other"]


def test_no_more_are_kept_than_fit_but_always_the_newest(store: Store) -> None:
    rows = [row(name, float(at), nbytes=40) for at, name in enumerate("abcd")]
    store.write_now(traces.save_traces, rows, 10, 100)
    assert names(store) == ["d", "c"]
    store.write_now(traces.save_traces, [row("huge", 9.0, nbytes=500)], 10, 100)
    assert names(store) == ["huge"]


def test_traces_of_deployments_that_are_gone_do_not_fill_the_disk(store: Store) -> None:
    for at, deployment in enumerate("abcd"):
        rows = [row(f"{deployment}{i}", 10.0 * at + i, deployment=deployment, nbytes=40) for i in range(2)]
        store.write_now(traces.save_traces, rows, 10, 100, 250)
    assert [names(store, deployment) for deployment in "abcd"] == [[], ["b1", "b0"], ["c1", "c0"], ["d1", "d0"]]


def test_a_database_that_is_held_by_somebody_else_is_said_to_be(store: Store) -> None:
    def held(_session: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database is locked"))

    with pytest.raises(StoreBusy, match="try again"):
        store.write_now(held)


def test_a_trace_is_replaced_by_a_later_one_of_its_run(store: Store) -> None:
    store.write_now(traces.save_traces, [row("a", 1.0)], 10)
    store.write_now(traces.save_traces, [row("a", 1.0, task="u")], 10)
    assert names(store, task="u") == ["a"]
