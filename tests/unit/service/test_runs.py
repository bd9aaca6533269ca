"""Which runs are listed while the store is written behind."""

from typing import Any, cast

from walkgraph.ids import RunId
from walkgraph.service.runs import LiveRun, Runs, row_of
from walkgraph.wire import messages as m


def live(runs: Runs, id_: str, deployment: str, created_at: float) -> LiveRun:
    submit = m.Submit(run=RunId(id_), task="t", params={}, inputs={}, **EMPTY)
    run = LiveRun(submit, deployment, send=lambda message: None)
    run.created_at = created_at
    runs.add(run)
    return run


EMPTY: dict[str, Any] = {}


def test_a_run_is_listed_before_the_store_has_it_and_with_its_newest_state() -> None:
    runs = Runs(cast("Any", None))
    old = live(runs, "a", "one", 1.0)
    stored = [row_of(old)]
    old.take(m.Finished(run=old.id, error=None, seconds=0.5))
    live(runs, "b", "one", 2.0)
    live(runs, "c", "two", 3.0)
    assert [(row.id, row.state) for row in runs.newest(stored, "one", None, 10.0)] == [("b", "running"), ("a", "done")]
    assert [row.id for row in runs.newest(stored, None, "running", 10.0)] == ["c", "b"]
    assert [row.id for row in runs.newest(stored, None, None, 3.0)] == ["b", "a"]
