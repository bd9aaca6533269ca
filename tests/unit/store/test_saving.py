"""Rows are saved by one statement: those of a key that was there are replaced as a whole, in their order."""

from pathlib import Path

from walkgraph.store import queries
from walkgraph.store.saving import save
from walkgraph.store.session import Store
from walkgraph.store.tables import Run


def run(state: str, **fields: object) -> Run:
    return Run(id="a", deployment="d", task="t", state=state, created_at=1.0, **fields)


def test_a_row_is_replaced_with_all_that_it_had_and_the_last_of_several_stays(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'walkgraph.db'}")
    store.write_now(save, Run, [run("running", error="{}", seed=2**53 - 1)])
    assert store.read_now(queries.get_run, "a").seed == 2**53 - 1
    store.write_now(save, Run, [run("running"), run("done", seconds=0.5)])
    found = store.read_now(queries.get_run, "a")
    assert (found.state, found.seconds, found.error, found.seed) == ("done", 0.5, None, None)
    store.write_now(save, Run, [{**run("failed").model_dump(), "task": "u"}])
    assert (store.read_now(queries.get_run, "a").state, store.read_now(queries.get_run, "a").task) == ("failed", "u")
    store.write_now(save, Run, [])
    store.close()


def test_what_was_saved_stays_the_callers(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'walkgraph.db'}")
    mine = run("running")
    store.write_now(save, Run, [mine])
    mine.state = "failed"
    assert store.read_now(queries.get_run, "a").state == "running"
    store.close()
