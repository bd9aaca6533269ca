"""Runs are listed while the store is written behind, old ones are forgotten, and followers are told all."""

import asyncio
from typing import Any, cast

import pytest

from walkgraph.ids import RunId
from walkgraph.service.http import limits
from walkgraph.service.runs.runs import LiveRun, Runs, row_of
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


def end(runs: Runs, run: LiveRun) -> None:
    run.take(m.Finished(run=run.id))
    runs.ended(run)


async def test_the_first_to_end_are_forgotten_first_and_none_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEPT_RUNS", 2)
    runs = Runs(cast("Any", None))
    made = [live(runs, name, "one", 1.0) for name in "abcd"]
    for number in (3, 1, 2):
        end(runs, made[number])
    assert [name for name in "abcd" if runs.get(name)] == ["a", "b", "c"]
    end(runs, made[0])
    assert [name for name in "abcd" if runs.get(name)] == ["a", "c"]


async def test_what_is_kept_has_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEPT_ASKED_BYTES", 250)
    monkeypatch.setattr(limits, "KEPT_OUTPUT_BYTES", 1000)
    runs = Runs(cast("Any", None))
    made = [live(runs, name, "one", 1.0) for name in "abc"]
    for run in made:
        runs.remember(run, {"x": "y" * 99})
    assert [run.asked.body is not None if run.asked else None for run in made] == [False, True, True]
    for run in made:
        run.take(m.Output(run=run.id, name="o", index=0, value=m.Blob(data=b"x" * 390)))
        end(runs, run)
    # Outputs of two, and what was asked for the third: 390 + 390 + 100 + 100.
    assert [name for name in "abc" if runs.get(name)] == ["b", "c"]
    end(runs, live(runs, "d", "one", 1.0))
    assert runs._over_bytes + runs._asked_bytes == 980


async def test_a_follower_gets_all_that_has_come_at_once_and_what_comes_later() -> None:
    runs = Runs(cast("Any", None))
    run = live(runs, "a", "one", 1.0)
    told = [m.Accepted(run=run.id, seed=1), m.Output(run=run.id, name="o", index=0, value=m.Small(value=1))]
    for event in told:
        run.take(event)
    assert await run.after(0) == told
    assert await run.after(2, 0.001) == []
    assert not await run.rests(0.001)
    waiting = [asyncio.create_task(run.after(2)), asyncio.create_task(run.ended())]
    await asyncio.sleep(0)
    run.take(m.Finished(run=run.id))
    assert await waiting[0] == [run.finished]
    assert await waiting[1] is run.finished
    assert [event async for event in run.follow()] == [*told, run.finished]


async def test_the_end_does_not_wait_for_rows_that_nobody_writes() -> None:
    """As where the loop ends by an error, and cancels all tasks."""
    runs = Runs(cast("Any", None))
    runs.start()
    live(runs, "a", "one", 1.0)
    assert runs._saver is not None
    runs._saver.cancel()
    async with asyncio.timeout(60):
        await runs.close()
