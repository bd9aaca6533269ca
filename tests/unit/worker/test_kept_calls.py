"""Calls that are not made, as their outputs are kept: taps see their values, breakpoints hold them, telemetry tells."""

from __future__ import annotations

from typing import Any

from tests.support.local import LocalDeployment
from tests.unit.worker.test_pipelines import letter, placed
from tests.unit.worker.test_telling import R, World, call
from walkgraph.engine.calls.memo import Memo
from walkgraph.ids import RunId
from walkgraph.telemetry import events as e
from walkgraph.wire.watching import Break, Gate, Tap, Watch
from walkgraph.worker.events import Watched


def written(local: LocalDeployment, run: str) -> Any:
    return local.outputs[run].get("letter")


def submit(local: LocalDeployment, run: str) -> None:
    local.submit(run, "t", {}, {"name": ["Ada"]})
    local.run()


def watched(**watch: Any) -> LocalDeployment:
    """After a run that was not watched."""
    local = LocalDeployment(letter(), placed(letter(), {}), threads=1, memo=Memo(1 << 20))
    submit(local, "first")
    local.cores[R].handle(Watched(Watch(**watch)))
    return local


def test_a_tap_sees_what_was_kept() -> None:
    local = watched(taps=(Tap(id="a", walk="w", source="shout.text", interval=0.25),))
    submit(local, "second")
    assert [(one.run, one.source, one.value) for one in local.observed] == [("second", "shout.text", "Hello Ada!")]
    assert {one.node: one.kept for one in local.times["second"]}["shout"] == 1


def test_a_breakpoint_holds_a_call_that_would_not_be_made() -> None:
    local = watched(breaks=(Break(id="b", walk="w", use="shout"),))
    submit(local, "second")
    assert "shout" in {one.node for one in local.halted[-1].held}
    assert written(local, "second") is None
    local.gate(R, Gate(run=RunId("second"), mode="open"))
    local.run()
    assert written(local, "second") == written(local, "first")
    assert {one.node: one.kept for one in local.times["second"]}["shout"] == 1


def test_a_recorded_run_has_the_values_that_were_kept() -> None:
    local = watched()
    local.submit("second", "t", {}, {"name": ["Ada"]}, record=True)
    local.run()
    assert "shout.text" in {one.source for one in local.observed}


def test_telemetry_tells_of_each_kept_call() -> None:
    for level in ("summary", "full"):
        world = World(level)
        world.teller.kept(call("r", iteration=(3,)))
        [one] = world.told(e.Kept)
        assert (one.run, one.rank, one.node, one.use, one.walk) == ("r", R, "n", "n_1", "w")
        assert (one.step, one.iteration, one.at) == (2, (3,), world.now)
    world = World("off")
    world.teller.kept(call("r"))
    assert world.told(e.Kept) == []
