"""Requests become steps: choices, bindings, what is left out, and states that change rank."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from tests.support.placing import at, duet, planned
from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.itinerary import expand
from walkgraph.placement.request import fill_params, name_inputs
from walkgraph.placement.tables import FromInput, FromLiteral, FromStep, Itinerary, Plan, SendOrder
from walkgraph.resources import bundled


@dataclass(frozen=True)
class Part:
    modality: str
    value: Any = None


LISTED: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "listed",
    "nodes": {"draw": {"component": "shapes/text_to_image"}},
    "walks": {
        "draw": {
            "inputs": {"texts": "list of text"},
            "body": ["draw"],
            "edges": [["@in.texts", "draw.prompt"], ["draw.image", "@out.image"]],
        }
    },
    "tasks": {
        "go": {
            "inputs": {
                "texts": {"modality": "text", "many": True, "optional": True},
                "pictures": {"modality": "image", "many": True, "optional": True},
            },
            "outputs": ["image"],
            "steps": [{"walk": "draw", "with": {"texts": "@task.texts"}}],
        }
    },
}


@cache
def plan_of(split: str = "") -> Plan:
    groups = {
        "decode": [at(1, "llm", "say", walks=("decode",))],
        "recall": [at(1, "keep", "read", "say", walks=("recall",))],
        "draw": [at(1, "llm", "guide", "mix", "noise", walks=("draw",))],
    }.get(split, [])
    made = planned(*groups)
    assert made.plan is not None, made.problems
    return made.plan


def walk_names(itinerary: Itinerary, split: str = "") -> list[str]:
    return [plan_of(split).walks[step.walk].name for step in itinerary.steps]


def talk(params: dict[str, Any] | None = None, split: str = "", **rest: Any) -> Itinerary:
    given: dict[str, Any] = {"inputs": {"prompt": ["a", "b"]}, **rest}
    return expand(duet(), plan_of(split), "talk", {"seed": 1, **(params or {})}, **given)


def draw(params: dict[str, Any], inputs: dict[str, Any] | None = None, split: str = "", **rest: Any) -> Itinerary:
    given = inputs if inputs is not None else {"prompt": ["a"]}
    return expand(duet(), plan_of(split), "draw", {"seed": 1, **params}, given, **rest)


def test_parts_are_walked_in_their_order_and_bindings_resolved() -> None:
    found = talk()
    assert walk_names(found) == ["prefill", "prefill", "decode", "speak"]
    assert [step.partition for step in found.steps] == [0, 0, 0, 1]
    assert [step.bindings for step in found.steps] == [
        {"text": FromInput("prompt.0")},
        {"text": FromInput("prompt.1")},
        {"token": FromStep(1, "token")},
        {},
    ]
    assert plan_of().walks[found.steps[3].walk].chunked
    assert (found.outputs, found.streams, found.ranks) == (("text", "audio"), (0,), (0,))


def test_parts_given_as_parts_have_names_of_their_own() -> None:
    found = talk(inputs={}, parts=[Part("text"), Part("text"), Part("text")])
    texts = [step.bindings.get("text") for step in found.steps[:3]]
    assert texts == [FromInput("part.0"), FromInput("part.1"), FromInput("part.2")]


def test_lanes_that_nobody_waits_for_are_left_out() -> None:
    silent = talk(outputs=["text"])
    assert walk_names(silent) == ["prefill", "prefill", "decode"]
    assert silent.streams == ()
    # The sound needs the writer, whose text nobody waits for.
    assert walk_names(talk(outputs=["audio"])) == ["prefill", "prefill", "decode", "speak"]


def test_steps_that_nobody_waits_for_are_left_out() -> None:
    assert walk_names(draw({"describe": True})) == ["prefill", "draw", "decode"]
    assert walk_names(draw({"describe": True}, outputs=["image"])) == ["prefill", "draw"]
    # Drawing only looks at what the words come from.
    assert walk_names(draw({"describe": True}, outputs=["text"])) == ["prefill", "decode"]


def test_first_takes_the_first_that_holds() -> None:
    assert walk_names(draw({"times": 2})) == ["prefill", "draw"]
    hinted = draw({"times": 1}, {"prompt": ["a"], "hint": ["b"]})
    # `first` is read by nobody: `recall` works on another state.
    assert walk_names(hinted) == ["recall"]
    assert hinted.steps[0].bindings == {"hint": FromInput("hint.0")}


def test_an_optional_input_that_is_needed_on_this_way_is_asked_for() -> None:
    with pytest.raises(InvalidInput, match="`hint` is missing") as error:
        draw({"times": 1})
    assert error.value.pointer == "/inputs/hint"


def test_a_session_is_kept_though_nobody_waits() -> None:
    found = expand(duet(), plan_of(), "remember", {"seed": 1}, {"fact": ["x"]})
    assert walk_names(found) == ["remember", "recall"]
    assert found.steps[1].bindings == {"hint": FromLiteral("what?")}


def test_states_move_when_their_node_does() -> None:
    found = talk(split="decode")
    assert walk_names(found, "decode") == ["prefill", "prefill", "move:main:0>1", "decode", "speak"]
    assert [(step.index, step.partition) for step in found.steps] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)]
    assert found.steps[3].bindings == {"token": FromStep(1, "token")}
    assert found.ranks == (0, 1)


def test_a_copy_goes_straight_to_where_it_is_used() -> None:
    found = draw({"times": 4}, split="draw")
    assert walk_names(found, "draw") == ["prefill", "move:main:0>1", "draw"]


def test_states_that_were_never_written_do_not_move() -> None:
    # What `recall` reads comes from no step before it, but from the session, which rests on its rank.
    found = draw({"times": 1}, {"prompt": ["a"], "hint": ["b"]}, split="recall")
    assert walk_names(found, "recall") == ["move:memory:0>1", "recall", "move:memory:1>0"]
    assert walk_names(draw({"describe": True}, outputs=["text"], split="draw"), "draw") == ["prefill", "decode"]


def test_a_sessions_states_go_back_to_rest() -> None:
    found = expand(duet(), plan_of("recall"), "remember", {"seed": 1}, {"fact": ["x"]})
    assert walk_names(found, "recall") == ["remember", "move:memory:0>1", "recall", "move:memory:1>0"]


@pytest.mark.parametrize(
    ("given", "pointer", "says"),
    [
        ({"params": {"tims": 3}}, "/params/tims", "did you mean `times`"),
        ({"params": {"times": 0}}, "/params/times", "1 or more"),
        ({"params": {"times": 65}}, "/params/times", "64 or less"),
        ({"params": {"times": 2.0}}, "/params/times", "an integer"),
        ({"params": {"times": True}}, "/params/times", "an integer"),
        ({"params": {"scale": float("nan")}}, "/params/scale", "finite"),
        ({"params": {"style": "odd"}}, "/params/style", "`plain`, `rich`"),
        ({"params": {"describe": 1}}, "/params/describe", "true or false"),
        ({"params": {"seed": -1}}, "/params/seed", "0 or more"),
        ({"inputs": {}}, "/inputs/prompt", "`prompt` is missing"),
        ({"inputs": {"prompt": ["a", "b"]}}, "/inputs/prompt", "takes one value"),
        ({"inputs": {"promt": ["a"]}}, "/inputs/promt", "did you mean `prompt`"),
        ({"parts": [Part("image")]}, "/parts/0", "no part of modality `image`; it takes `text`"),
        ({"parts": [Part("text"), Part("text")]}, "/parts/1", "no more parts"),
        ({"outputs": ["imag"]}, "/outputs/0", "did you mean `image`"),
        ({"outputs": []}, "/outputs", "`outputs` is empty"),
    ],
)
def test_what_is_refused(given: dict[str, Any], pointer: str, says: str) -> None:
    request: dict[str, Any] = {"inputs": {"prompt": ["a"]}, **given}
    params = {"seed": 1, **request.pop("params", {})}
    with pytest.raises(InvalidInput, match=says) as error:
        expand(duet(), plan_of(), "draw", params, **request)
    assert error.value.pointer == pointer


def test_seed_is_given_not_drawn() -> None:
    with pytest.raises(InvalidInput, match="`seed` is missing"):
        expand(duet(), plan_of(), "draw", {}, {"prompt": ["a"]})


def test_unknown_task() -> None:
    with pytest.raises(NotFound, match="did you mean `talk`"):
        expand(duet(), plan_of(), "tlak", {"seed": 1}, {})


def test_defaults_are_filled_in() -> None:
    filled = fill_params(duet().tasks["draw"], {"seed": 5, "times": 9})
    assert filled == {"times": 9, "room": 64, "scale": 4.0, "style": "plain", "describe": False, "seed": 5}


def test_inputs_by_name_come_in_the_tasks_order() -> None:
    given = name_inputs(duet().tasks["draw"], {"hint": ["h"], "prompt": ["p"]})
    assert [(value.name, value.input, value.value) for value in given] == [
        ("prompt.0", "prompt", "p"),
        ("hint.0", "hint", "h"),
    ]


def test_many_values_that_a_step_takes_are_one() -> None:
    task = codec.load(LISTED).tasks["go"]
    given = name_inputs(task, {"texts": ["a", "b"]}, [Part("text", "c"), Part("image", "d")])
    assert [(one.name, one.input, one.value) for one in given] == [
        ("texts.0", "texts", ("a", "b", "c")),
        ("part.1", "pictures", "d"),
    ]
    assert [(one.name, one.value) for one in name_inputs(task, {}, [Part("text", "c")])] == [("texts.0", ("c",))]
    assert name_inputs(task, {}, [Part("image", "d")])[0].value == "d"


def test_many_parts_stay_quick() -> None:
    found = talk(inputs={"prompt": ["x"] * 2000}, outputs=["text"])
    assert len(found.steps) == 2001


@pytest.mark.parametrize("apart", [False, True])
def test_steps_that_send_one_output_from_several_ranks_have_an_order(apart: bool) -> None:
    graph = codec.load(bundled("graphs")["qwen3_omni"].read_bytes())
    groups = [Group(nodes=("*",), ranks=(0,))]
    groups += [Group(nodes=("detokenizer",), ranks=(1,), walks=("decode",))] if apart else []
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    plan = assemble(Assignment(graph, Placement(name="p", groups=tuple(groups), ranks=devices)), catalogue())
    found = expand(graph, plan, "chat", {"seed": 1}, {"text": ["a"]})
    names = [plan.walks[step.walk].name for step in found.steps]
    steps = names.index("begin_answer"), names.index("decode")
    assert found.send_orders == ((SendOrder(output="text", steps=steps, ranks=(Rank(0), Rank(1))),) if apart else ())
    assert expand(graph, plan, "chat", {"seed": 1}, {"text": ["a"]}, outputs=["audio"]).send_orders == ()
