"""Rows of runs that wait for a person."""

from pathlib import Path

import pytest

from walkgraph.errors import NotFound
from walkgraph.ids import RunId
from walkgraph.store import queries, waiting
from walkgraph.store.session import Store
from walkgraph.store.tables import Run, WaitingRun


def row(expires_at: float, place: bytes = b"p") -> WaitingRun:
    fields = {"run": "r", "deployment": "d", "task": "t", "graph": "g", "created_at": 1.0, "nbytes": 2, "log": b"l"}
    return WaitingRun(**fields, expires_at=expires_at, place=place)


def test_the_end_of_an_approval_leaves_the_next_one(tmp_path: Path) -> None:
    """A run may wait again before the row of its former approval is removed."""
    store = Store.open(f"sqlite:///{tmp_path / 'w.db'}")
    store.write_now(waiting.keep_waiting, row(10.5))
    store.write_now(waiting.keep_waiting, row(20.25, b"next"))
    store.write_now(waiting.end_waiting, {RunId("r"): 10.5})
    assert store.read_now(waiting.place_of, "r") == b"next"
    assert [found.expires_at for found in store.read_now(waiting.list_waiting)] == [20.25]
    store.write_now(waiting.end_waiting, {RunId("r"): 20.25})
    with pytest.raises(NotFound):
        store.read_now(waiting.place_of, "r")
    store.close()


def test_runs_that_wait_are_not_lost_with_a_service(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'w.db'}")
    rows = [Run(id=name, deployment="d", task="t", state="waiting", created_at=1.0) for name in ("r", "gone")]
    store.write_now(queries.save_runs, rows)
    store.write_now(waiting.keep_waiting, row(10.5))
    assert store.write_now(queries.end_lost_runs, "{}") == 1
    assert store.read_now(queries.get_run, "r").state == "waiting"
    assert store.read_now(queries.get_run, "gone").state == "failed"
    store.close()
