"""The wall clock is set back: what comes now is kept, and what was stored before gives way to it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.store.test_store import run
from tests.unit.store.test_traces import names, row
from walkgraph.store import queries, traces
from walkgraph.store.session import Store

pytestmark = pytest.mark.safety("R19")
YEARS = 20 * 365 * 86_400.0


@pytest.fixture
def store(tmp_path: Path):
    found = Store.open(f"sqlite:///{tmp_path / 'w.db'}")
    yield found
    found.close()


def test_runs_of_now_are_kept(store: Store) -> None:
    now = time.time()
    store.write_now(queries.save_runs, [run(f"future{i}", now + YEARS + i) for i in range(3)])
    store.write_now(queries.save_runs, [run(f"now{i}", now - 10 + i) for i in range(2)])
    store.write_now(queries.prune_runs, 4)
    kept = {found.id for found in store.read_now(queries.list_runs, None, None, 9, 2.0**53)}
    assert {"now0", "now1"} <= kept
    store.write_now(queries.save_runs, [run("now2", now - 5), run("now3", now - 4)])
    store.write_now(queries.prune_runs, 4)
    kept = {found.id for found in store.read_now(queries.list_runs, None, None, 9, 2.0**53)}
    assert kept >= {f"now{i}" for i in range(4)}


@pytest.mark.parametrize("back", [600.0, YEARS], ids=["minutes", "years"])
def test_traces_of_now_are_kept(store: Store, back: float) -> None:
    now = time.time()
    for number in range(3):
        store.write_now(traces.save_traces, [row(f"future{number}", now + back + number)], 3)
    for number in range(3):
        store.write_now(traces.save_traces, [row(f"now{number}", now - 10 + number)], 3)
        assert f"now{number}" in names(store), "it is there once it is saved"
    assert sorted(names(store)) == ["now0", "now1", "now2"]


def test_what_lies_in_the_future_goes_first_where_all_traces_are_too_many(store: Store) -> None:
    now = time.time()
    rows = [row("future", now + YEARS, deployment="e", nbytes=100), row("now", now - 5, nbytes=100)]
    store.write_now(traces.save_traces, rows, 9, 1000, 150)
    assert (names(store), names(store, "e")) == (["now"], [])
