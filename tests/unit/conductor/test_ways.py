"""A cached itinerary equals a new expansion, whatever the request's parameters and values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.deployment import plan_named
from walkgraph.conductor import itinerary_cache
from walkgraph.conductor.itinerary_cache import CachedItinerary, ItineraryCache
from walkgraph.errors import WalkgraphError
from walkgraph.graph.document import Task
from walkgraph.ids import RunId
from walkgraph.placement.capacity.demand import inputs_read, page_demand, work_of
from walkgraph.placement.itinerary import Expanded, expand
from walkgraph.placement.request import declared_params, fill_params
from walkgraph.wire import messages as m

GRAPHS = ("synthetic_loops", "synthetic_states", "synthetic_streams", "shapes", "bagel", "orpheus", "pi05")


def drawn(task: Task, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"seed": rng.randrange(3)}
    for name, param in declared_params(task).items():
        low = int(param.min if param.min is not None else 0)
        most = int(param.max if param.max is not None else low + 3)
        if param.choices:
            found[name] = rng.choice(param.choices)
        elif param.type == "boolean":
            found[name] = rng.random() < 0.5
        elif param.type == "integer":
            found[name] = rng.randint(low, min(most, low + 3))
        elif param.type == "number":
            found[name] = rng.choice([low, float(low), most, (low + most) / 2])
        elif rng.random() < 0.5 or param.default is None:
            found[name] = rng.choice(["a", "b"])
    return found


def chat(rng: random.Random) -> m.Conversation:
    """Turns of the roles and parts that the starter takes, and some that it refuses."""
    turns: list[m.Turn] = []
    for _ in range(rng.randint(1, 4)):
        kinds = rng.choices(("text", "image"), (8, 1), k=rng.randint(0, 2))
        parts = tuple(m.Part(modality=kind, value=m.Small(value=rng.choice("xy"))) for kind in kinds)
        calls = (m.ToolCall(id="1", name="f", arguments="{}"),) * (rng.random() < 0.1)
        turns.append(m.Turn(role=rng.choice(("user", "user", "assistant", "system")), parts=parts, tool_calls=calls))
    return m.Conversation(turns=tuple(turns))


def request(name: str, task: Task, rng: random.Random) -> m.Submit:
    inputs: dict[str, tuple[m.Value, ...]] = {}
    parts: list[m.Part] = []
    for key, declared in task.inputs.items():
        if not declared.optional or rng.random() < 0.5:
            many = rng.randint(1, 2) if declared.many else 1
            inputs[key] = (chat(rng) if declared.modality == "messages" else m.Small(value=rng.choice("xy")),) * many
        elif rng.random() < 0.3:
            parts.append(m.Part(modality=declared.modality, value=m.Small(value="z")))
    outputs = None if rng.random() < 0.5 else tuple(rng.sample(task.outputs, 1))
    params = drawn(task, rng)
    return m.Submit(run=RunId("r"), task=name, params=params, inputs=inputs, parts=tuple(parts), outputs=outputs)


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_the_way_that_is_found_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itinerary_cache, "REMEMBERED", 20)
    graph, plan = plan_named(name, 1)
    kept, rng, found = ItineraryCache(graph, plan), random.Random(name), 0
    for key, task in graph.tasks.items():
        for _ in range(30):
            submit = request(key, task, rng)
            try:
                params = fill_params(task, submit.params)
                itinerary = expand(graph, plan, key, params, submit.inputs, submit.parts, submit.outputs)
            except WalkgraphError:
                continue
            tokens = page_demand(plan, itinerary, params)
            anew = CachedItinerary(
                Expanded(itinerary, None), inputs_read(plan, itinerary), tokens, work_of(tokens, itinerary.ranks)
            )
            for _ in range(2):
                assert kept.of(kept.asked(submit, 0)) == anew
                assert repr(kept.of(kept.asked(submit, 0))) == repr(anew)
            found += 1
    assert found >= 10 * len(graph.tasks)


def test_no_more_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itinerary_cache, "REMEMBERED", 3)
    graph, plan = plan_named("synthetic_loops", 1)
    kept = ItineraryCache(graph, plan)
    for value in range(10):
        submit = m.Submit(run=RunId("r"), task="climb", params={"start": value}, inputs={})
        kept.of(kept.asked(submit, 0))
    assert len(kept._known) == 3
    assert kept.of(kept.asked(submit, 7)) is kept.of(kept.asked(submit, 8))
