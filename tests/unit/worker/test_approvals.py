"""Tasks that wait for a person: the rest of a run gets what was kept, and does what plain Python does."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.cluster import Cluster
from walkgraph.abi.calls import Call
from walkgraph.graph.catalogue import Catalogue
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.itinerary import Resumed, expanded_request, legs_of
from walkgraph.placement.request import Given, fill_params, name_inputs
from walkgraph.placement.tables import FromInput, FromLiteral, Itinerary, LegAnswer
from walkgraph.simulation.reference.random_walks import CATALOGUE, RESIDENT, mix, plain
from walkgraph.simulation.reference.reference_walk import Function
from walkgraph.simulation.scenarios import Scenario, ScenarioRequest, decided, task_scenario
from walkgraph.worker.events import ABSENT
from walkgraph.worker.walk import shaping


class Resumable:
    """Runs one request segment by segment: each ends at an approval, and the next gets only what was kept."""

    def __init__(self, scenario: Scenario, request: ScenarioRequest, seed: int) -> None:
        mixed = {node: mix(node) for node in scenario.graph.nodes}
        self.cluster = Cluster(scenario.plan, {node: _served(mixed[node]) for node in mixed}, seed)
        self.task, self.facts = scenario.graph.tasks["t"], Facts(scenario.plan)
        self.params = fill_params(self.task, {"seed": 1, **request.params})
        self.inputs: tuple[Given, ...] = name_inputs(self.task, {"x": [request.inputs["x"]]}, ())
        self.outputs: dict[str, list[Any]] = {name: [] for name in self.task.outputs}
        self.asked: list[dict[str, Any]] = []
        self._texts: dict[str, str] = {}
        self.ends: dict[str, tuple[int, str]] = {}

    def run(self) -> None:
        """To the end, or to a refusal that no step reads."""
        kept: dict[str, Any] = {}
        answers: list[LegAnswer] = []
        while True:
            legs = self._segment(f"r{len(self.asked)}", kept, answers)
            if legs is None or legs.approval is None:
                return
            reported = self.cluster.kept[f"r{len(self.asked)}"]
            found = {one.name: reported.get(one.name, kept.get(one.otherwise, ABSENT)) for one in legs.keep}
            kept = {name: value for name, value in found.items() if value is not ABSENT}
            self.asked.append(self._shown(legs, kept))
            decision = decided(legs.approval.number)
            if not decision.approved and legs.approval.step.as_ is None:
                return
            answers, self._texts = [*legs.answers, decision], dict(legs.texts)

    def _segment(self, name: str, kept: Mapping[str, Any], answers: list[LegAnswer]) -> Legs | None:
        texts = {key: text for key, value in kept.items() if (text := shaping.text(value)) is not None}
        resumed = Resumed(answers, self._texts | texts) if answers else None
        found = expanded_request(self.facts, self.task, self.params, self.inputs, None, resumed)
        first, legs = legs_of(self.facts, self.task, self.params, self.inputs, found, resumed)
        values = {**{one.name: one.value for one in self.inputs}, **kept}
        self.cluster.start(name, first, self.params, values, legs)
        self.cluster.run()
        self._over(name, first, legs)
        for output in self.outputs:
            self.outputs[output] += [plain(value) for _, value in self.cluster.outputs[name, output]]
        self.cluster.cancel(name)
        for loop, ended in legs.ended.items() if legs is not None else ():
            self.ends[loop] = self.ends.get(loop, (0, ""))[0] + ended.passes, ended.reason
        return legs

    def _over(self, name: str, first: Itinerary, legs: Legs | None) -> None:
        assert not self.cluster.failures
        if legs is None or legs.approval is None:
            assert self.cluster.done(name) == set(first.ranks)

    def _shown(self, legs: Legs, kept: Mapping[str, Any]) -> dict[str, Any]:
        given = {**{one.name: one.value for one in self.inputs}, **kept}
        found: dict[str, Any] = {}
        for name, binding in legs.shown(legs.approval) if legs.approval is not None else ():
            value = given.get(binding.name, ABSENT) if isinstance(binding, FromInput) else ABSENT
            value = binding.value if isinstance(binding, FromLiteral) else value
            found |= {name: plain(value)} if value is not ABSENT else {}
        return found


def _served(function: Function) -> Callable[[Call], dict[str, Any]]:
    return lambda call: dict(function(dict(call.inputs), call.iteration))


NAMED = (38, 135, 196, 224)
"""Tasks with loops that a flag beside their `until` names, behind approvals and before them, on one to three ranks."""


@pytest.mark.parametrize("components", [CATALOGUE, RESIDENT], ids=["stepped", "resident"])
def test_random_tasks_agree_with_plain_python(components: Catalogue) -> None:
    """Approvals among branches, loops and names in any mix, on one to three ranks."""
    asked = refused = 0
    reasons = set[str]()
    for seed in (*range(16), *NAMED):
        scenario = task_scenario(seed, components, asks=True)
        for request in scenario.requests:
            found = Resumable(scenario, request, seed)
            found.run()
            wanted = {name: list(request.outputs.get(name, ())) for name in found.outputs}
            assert found.outputs == wanted, (seed, request.params)
            assert found.asked == request.asked, (seed, request.params)
            assert found.ends == request.ends, (seed, request.params)
            reasons |= {reason for _, reason in found.ends.values()}
            asked += len(found.asked)
            refused += any(not decided(i).approved for i in range(len(found.asked)))
    assert asked > 40
    assert reasons == {"stop", "bound", "odd"}
    assert refused > 5
