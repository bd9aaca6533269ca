"""Simulated requests: the conductor's steps, with reasons."""

from typing import Any

import pytest

from tests.support.placing import CATALOGUE, DOCUMENT, duet, planned
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement import itinerary, simulate
from walkgraph.placement.expansion.state_machine import MAX_STEPS
from walkgraph.placement.simulate import PartAt, Simulation, StepSeen, UseSeen


def talk(params: dict[str, Any] | None = None, parts: tuple[str, ...] = ("text", "text"), **inputs: int) -> Simulation:
    return simulate.simulate(duet(), CATALOGUE, "talk", params or {}, inputs, parts)


def draw(**params: Any) -> Simulation:
    return simulate.simulate(duet(), CATALOGUE, "draw", params, {"prompt": 1})


def steps(found: Simulation, lane: int = 0) -> list[StepSeen]:
    return list(found.lanes[lane].steps)


def use(step: StepSeen, name: str) -> UseSeen:
    return next(use for use in step.uses if use.use == name)


def test_parts_walk_their_steps_in_order_and_lanes_stand_apart() -> None:
    found = talk()
    assert [lane.lane for lane in found.lanes] == ["writer", "speaker"]
    assert [(s.walk, s.pointer, s.part) for s in steps(found)] == [
        ("prefill", "/steps/writer/0/text/0", PartAt("text", 0)),
        ("prefill", "/steps/writer/0/text/0", PartAt("text", 1)),
        ("decode", "/steps/writer/1", None),
    ]
    assert all(step.taken and step.why == "always" for step in steps(found))
    assert found.params == {"times": 8, "room": 64, "heat": 1.0, "scale": 1.0, "seed": 0}


def test_values_of_inputs_are_parts_too() -> None:
    assert [step.part for step in steps(talk({}, ("text",), prompt=2))][:3] == [PartAt("text", i) for i in range(3)]


def test_the_steps_taken_are_those_of_the_itinerary() -> None:
    plan = planned().plan
    assert plan is not None
    for params in ({}, {"describe": True}, {"times": 2, "describe": True}):
        real = itinerary.expand(duet(), plan, "draw", {"seed": 0, **params}, {"prompt": ["a"]})
        assert [s.walk for s in steps(draw(**params)) if s.taken] == [plan.walks[s.walk].name for s in real.steps]
    with pytest.raises(InvalidInput) as real_refusal:
        itinerary.expand(duet(), plan, "draw", {"seed": 0, "times": 1}, {"prompt": ["a"]})
    with pytest.raises(InvalidInput) as refusal:
        draw(times=1)
    assert (str(refusal.value), refusal.value.pointer) == (str(real_refusal.value), real_refusal.value.pointer)


def test_reasons_name_the_values() -> None:
    found = {step.pointer: step for step in steps(draw(times=4))}
    assert found["/steps/1/first/0"].why == "times > 1 is true: times = 4"
    assert found["/steps/1/first/1"].why == "an earlier choice is taken: `draw`"
    assert found["/steps/2"].why == "describe is false: describe = false"
    assert not found["/steps/2"].taken
    assert found["/steps/2"].uses == ()


def test_a_step_that_nothing_waits_for_says_so() -> None:
    document = codec.dump(duet())
    document["tasks"]["draw"]["outputs"] = ["text"]
    document["tasks"]["draw"]["params"]["describe"]["default"] = True
    found = simulate.simulate(codec.load(document), CATALOGUE, "draw", {}, {"prompt": 1})
    (drawing,) = (step for step in steps(found) if step.walk == "draw")
    assert (drawing.taken, drawing.why) == (False, "no output of the task needs it")


def test_loops_count_and_uses_say_in_how_many_iterations_they_are_called() -> None:
    drawing = next(step for step in steps(draw(times=5, scale=3)) if step.walk == "draw")
    assert drawing.loops == {"steps": 5}
    assert use(drawing, "llm") == UseSeen("llm", "llm", True, "always", 5)
    assert use(drawing, "noise").iterations == 1
    guide = use(drawing, "guide")
    assert (guide.taken, guide.iterations) == (None, 4)
    assert "4 of 5 iterations of `steps`" in guide.why
    off = use(next(step for step in steps(draw(times=5, scale=1)) if step.walk == "draw"), "guide")
    assert (off.taken, off.why, off.iterations) == (False, "scale > 1 is false: scale = 1", 0)


def test_a_stream_ends_its_loop_at_a_time_nobody_knows() -> None:
    (speak,) = steps(talk(), 1)
    assert speak.loops == {"chunk": None}
    assert use(speak, "voice") == UseSeen("voice", "voice", True, "always", None)


def looping(times: str, inner: str, when: str = "@loop.index > 0") -> StepSeen:
    document = codec.dump(duet())
    document["walks"]["draw"]["body"][1] = {
        "loop": "outer",
        "times": times,
        "body": [{"loop": "steps", "times": inner, "body": ["llm", {"use": "guide", "when": when}, "mix"]}],
    }
    found = simulate.simulate(codec.load(document), CATALOGUE, "draw", {"times": 6}, {"prompt": 1})
    return next(step for step in steps(found) if step.walk == "draw")


def test_loops_inside_loops() -> None:
    assert looping("times", "3").loops == {"outer": 6, "steps": 3}
    assert use(looping("times", "3"), "guide").iterations == 12
    assert use(looping("times", "3", "@loop.outer == 5 and @loop.index == 2"), "guide").iterations == 1
    never = use(looping("times", "3", "@loop.outer > 99"), "guide")
    assert (never.taken, never.iterations) == (False, 0)
    depends = looping("times", "@loop.outer + 1")
    assert depends.loops == {"outer": 6, "steps": None}
    assert use(depends, "llm").iterations is None
    empty = use(looping("times - 6", "3"), "llm")
    assert (empty.taken, empty.why) == (False, "loop `outer` turns 0 times")


def test_endless_counts_are_left_out() -> None:
    guide = use(looping("1000000000", "1000000000"), "guide")
    assert (guide.taken, guide.iterations) == (None, None)
    assert "depends on the iteration" in guide.why


@pytest.mark.parametrize(
    ("params", "inputs", "parts", "pointer"),
    [
        ({"times": 99}, {"prompt": 1}, (), "/params/times"),
        ({"tines": 9}, {"prompt": 1}, (), "/params/tines"),
        ({}, {}, (), "/inputs/prompt"),
        ({}, {"promt": 1}, (), "/inputs/promt"),
        ({}, {"prompt": 65}, (), "/inputs/prompt"),
        ({}, {"prompt": -1}, (), "/inputs/prompt"),
        ({}, {"prompt": 40}, ("text",) * 40, "/parts"),
        ({}, {}, ("text", "image"), "/parts/1"),
    ],
)
def test_what_a_request_would_be_refused_for(
    params: dict[str, Any], inputs: dict[str, int], parts: tuple[str, ...], pointer: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        simulate.simulate(duet(), CATALOGUE, "talk", params, inputs, parts)
    assert caught.value.pointer == pointer
    with pytest.raises(NotFound, match="did you mean `talk`"):
        simulate.simulate(duet(), CATALOGUE, "tallk", {}, {})


def nested(depth: int) -> Graph:
    document = codec.dump(codec.load(DOCUMENT))
    inside: list[Any] = [{"walk": "prefill", "with": {"text": "@part"}}]
    for _ in range(depth):
        inside = [{"for": "parts", "text": inside}]
    document["tasks"]["talk"]["steps"]["writer"] = [*inside, document["tasks"]["talk"]["steps"]["writer"][-1]]
    return codec.load(document)


def test_a_request_that_explodes_is_refused() -> None:
    found = simulate.simulate(nested(2), CATALOGUE, "talk", {}, {"prompt": 3})
    assert [step.walk for step in steps(found)].count("prefill") == 9
    with pytest.raises(InvalidInput, match=f"more than {MAX_STEPS} steps"):
        simulate.simulate(nested(8), CATALOGUE, "talk", {}, {"prompt": 64})


def test_the_work_on_conditions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "MAX_EVALUATIONS", 1000)
    evaluated: list[str] = []
    evaluate = simulate.evaluate

    def counted(expr: Any, *rest: Any) -> Any:
        evaluated.append(expr.text)
        return evaluate(expr, *rest)

    monkeypatch.setattr(simulate, "evaluate", counted)
    document = codec.dump(duet())
    parts = " and ".join(f"times > {-i}" for i in range(20))
    uses = [{"use": "guide", "as": f"g{i}", "when": f"{parts} and @loop.index < {i}"} for i in range(60)]
    document["walks"]["draw"]["body"][1]["body"].extend(uses)
    found = simulate.simulate(codec.load(document), CATALOGUE, "draw", {"times": 64}, {"prompt": 1})
    drawing = next(step for step in steps(found) if step.walk == "draw")
    assert use(drawing, "g5").iterations == 5
    last = use(drawing, "g59")
    assert (last.taken, last.iterations) == (None, None)
    assert "depends on the iteration" in last.why
    assert len(evaluated) < 2000


# ── loops of steps ──────────────────────────────────────────────────────────────────────────────


def test_a_step_of_a_loop_is_shown_once_with_its_passes() -> None:
    document = codec.dump(duet())
    draw = document["tasks"]["draw"]["steps"]
    first = {"walk": "prefill", "with": {"text": "@task.prompt"}, "when": "@loop.index == 0"}
    inner = {"loop": [{"walk": "prefill", "with": {"text": "@task.prompt"}}], "times": "2"}
    document["tasks"]["draw"]["steps"] = [{"loop": [first, inner], "times": "times"}, *draw]
    found = simulate.simulate(codec.load(document), CATALOGUE, "draw", {"times": 3}, {"prompt": 1})
    assert [(s.pointer, s.passes, s.why) for s in steps(found)][:2] == [
        ("/steps/0/loop/0", 1, "in up to 1 of 3 passes; `@loop.index == 0`"),
        ("/steps/0/loop/1/loop/0", 6, "in up to 6 passes"),
    ]
    assert steps(found)[2].passes is None
