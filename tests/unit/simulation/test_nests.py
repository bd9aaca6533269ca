"""Tasks that call tasks that call tasks, in one deployment or several, under scarce pages: every nest ends.

`pytest tests/unit/simulation/test_nests.py --schedules 10000` runs more of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from walkgraph.conductor.runs import admission
from walkgraph.conductor.runs.page_budget import Demand
from walkgraph.conductor.runs.passed_calls import PassedCalls
from walkgraph.conductor.runs.priority import Holder, to_suspend
from walkgraph.conductor.runs.records import RunTable
from walkgraph.graph.checks.called import MOST_DEEP
from walkgraph.simulation.kinds.nests import CALM, NestChances, NestWorld
from walkgraph.simulation.reference.task_nests import random_tasks, wanted
from walkgraph.simulation.simulator import Violation

MANY = 100
"""Worlds among which a deployment is lost at every moment that its callers can notice."""
SEEDS = 40
"""In which a fault must be found."""


def test_every_nest_ends_right_and_frees_all(request: pytest.FixtureRequest) -> None:
    worlds = max(1, int(str(request.config.getoption("--schedules"))) // 10)
    ends, counts = Counter[str](), Counter[str]()
    for seed in range(worlds):
        outcome = NestWorld(seed, chances=CALM if seed % 2 else None).run()
        ends += outcome.ends
        counts += outcome.counts
    assert {"done", "refused", "node_error"} <= ends.keys()
    assert ends["done"] > ends.total() / 3
    assert counts["runs suspended"]
    if worlds >= MANY:
        assert {"not_found", "shutting_down"} <= ends.keys()
        assert counts["deployments lost while others may call them"]
        assert all(counts[f"runs {depth} deep"] for depth in range(1, MOST_DEEP + 1))


def without_waiting(lacking: Demand, priority: int, holders: list[Holder]) -> list[str]:
    return to_suspend(lacking, priority, [one._replace(calls=False) for one in holders])


@pytest.mark.parametrize(
    ("owner", "name", "by"),
    [
        (admission, "to_suspend", without_waiting),
        (RunTable, "active", property(lambda table: table.running)),
    ],
    ids=["who waits keeps its pages", "who waits keeps its place"],
)
def test_a_world_finds_nests_that_block_themselves(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, by: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, by)
    with pytest.raises(Violation, match="a nest does not end"):
        run_all(SEEDS)


def only_values(whole: Callable[..., object]) -> Callable[..., object]:
    """Calls that fail are not answered."""
    return lambda self, answer, now: [] if answer.error is not None else whole(self, answer, now)


def test_a_world_finds_a_call_that_nobody_answers_once_its_deployment_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassedCalls, "answer", only_values(PassedCalls.answer))
    with pytest.raises(Violation, match="a nest does not end"):
        run_all(SEEDS, CALM._replace(undeploy=1.0))


def run_all(seeds: int, chances: NestChances = CALM) -> None:
    for seed in range(seeds):
        NestWorld(seed, chances=chances).run()


def test_a_seed_makes_the_same_world_every_time() -> None:
    assert NestWorld(5).run() == NestWorld(5).run()


def test_random_tasks_call_only_later_ones_and_no_deeper_than_allowed() -> None:
    for seed in range(50):
        tasks = random_tasks(random.Random(seed), ("a", "b"))
        depth = [0] * len(tasks)
        for number in reversed(range(len(tasks))):
            assert all(call > number for call in tasks[number].calls)
            depth[number] = max((depth[call] + 1 for call in tasks[number].calls), default=0)
        assert max(depth) <= MOST_DEEP
        right = wanted(tasks, 0, {"a": 99, "b": 99}, 4)
        assert right.sum >= tasks[0].own
