"""Simulated deployments under seeded disturbances: all runs end right or with a typed error, and all is freed.

`pytest tests/unit/simulation/test_schedules.py --schedules 100000` runs more of them.
"""

from collections import Counter

import pytest

from walkgraph.simulation.page import NO_PAGE
from walkgraph.simulation.schedules import SimulationReport, known_scenarios, run_schedules, run_seeds, world
from walkgraph.simulation.world import Outcome

ENDS = {"done", "cancelled", "deadline_exceeded", "node_error", "not_found", "worker_lost"}
HAPPENED = {
    "aborts",
    "approvals that expire",
    "batches of several calls",
    "breakpoints",
    "calls that give no number",
    "chains",
    "changes of the graph",
    "changes of the graph taken back",
    "closing chunks",
    "deadlines",
    "deferred calls",
    "deferred calls joined",
    "deferred calls made alone",
    "deferred calls made early",
    "device loops",
    "device loops held",
    "full arenas",
    "full sockets",
    "iterations asked",
    "kept calls",
    "kept calls evicted",
    "kept pages evicted",
    "late messages",
    "messages",
    "packets of telemetry",
    "parts of states",
    "plans that can't be loaded",
    "prefixes found",
    "pauses asked",
    "processes crashed",
    "processes hung",
    "processes killed",
    "processes stalled",
    "processes started",
    "ranks lost while a run waits for a person",
    "resumes asked",
    "runs held at their start",
    "runs moved in the queue",
    "runs started again",
    "runs in sessions",
    "runs suspended",
    "sessions begun anew under another graph",
    "steps asked",
    "stops at a breakpoint",
    "taps",
    "tickets",
    "tokens that a receiver had",
}


RARE = {"runs started again", "runs suspended", "sessions begun anew under another graph"}
MANY = 500
"""Schedules among which everything that may happen does, but for what is rare."""
MANY_MORE = 5_000
"""Schedules among which even that happens."""
BLOCKS = 4
"""Parts of the schedules, each a group of its own: so they run in all test processes."""


@pytest.mark.timeout(0)  # its work is given by `--schedules`
@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=pytest.mark.xdist_group(f"schedules/{block}")) for block in range(BLOCKS)]
)
def test_every_run_of_every_schedule_ends_right_and_frees_all(request: pytest.FixtureRequest, block: int) -> None:
    schedules = int(str(request.config.getoption("--schedules"))) // BLOCKS
    seed = int(str(request.config.getoption("--schedule-seed"))) + block * schedules
    report = run_schedules(schedules, seed, 1)
    assert report.faults == []
    assert report.worlds == schedules
    if schedules >= MANY:
        assert ENDS - report.ends.keys() == set()
        due = HAPPENED if schedules >= MANY_MORE else HAPPENED - RARE
        assert {kind for kind in due if not report.counts[kind]} == set()


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (1005217, "a value of a worker that was just killed ended its run with `internal_error`"),
        (1050451, "a value of a worker that was just killed ended its run with `internal_error`"),
        (1058193, "a value of a worker that was just killed ended its run with `internal_error`"),
        (1006221, "a world was at rest before its conductor had heard of a death"),
        (1033918, "a world was at rest before its conductor had noticed a hung process"),
    ],
)
def test_a_schedule_that_found_a_fault_finds_none(seed: int, fault: str) -> None:
    assert world(known_scenarios(), seed, page=NO_PAGE).run().ends, fault


@pytest.mark.parametrize(
    ("seed", "fault"),
    [
        (
            6002698,
            "a loop that was held before its first iteration missed the items that came meanwhile, and never ended",
        ),
        (90684, "a world drew graphs whose ranks have other numbers of pages, and judged all by those of the first"),
        (60127679, "a message of a run that was over stayed with a rank while the rank it was for was dead"),
        (60176406, "a message of a run that was over stayed with a rank while the rank it was for was dead"),
    ],
)
def test_a_schedule_with_all_its_acts_that_found_a_fault_finds_none(seed: int, fault: str) -> None:
    assert world(known_scenarios(), seed).run().ends, fault


def test_a_seed_makes_the_same_world_every_time() -> None:
    first, second = run_seeds(range(7, 15)), run_seeds(range(7, 15))
    assert (first.ends, first.counts, first.seconds) == (second.ends, second.counts, second.seconds)


def test_a_seed_does_not_depend_on_those_before_it() -> None:
    known = known_scenarios()
    alone = world(known, 14).run()
    run_seeds(range(7, 14))
    assert world(known, 14).run() == alone


def test_a_report_names_the_seed_of_a_fault_and_how_to_replay_it() -> None:
    report = SimulationReport()
    report.add(Outcome(Counter(done=2), Counter(messages=5), 1.5))
    report.faults.append((41, "scenario `walk 1/2`, seed 41, 0.5 s: rank 0 keeps 1 pages"))
    text = report.text(2.0)
    assert "         2 done" in text
    assert "1 faults\n  scenario `walk 1/2`, seed 41" in text
    assert text.endswith("python -m walkgraph.simulation --schedules 1 --seed 41")
