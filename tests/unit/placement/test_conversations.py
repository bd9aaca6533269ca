"""Conversations become steps: turns by role, their parts, what is bound of a turn, what is refused, and what the
simulated request and the cache of itineraries make of it."""

import copy
from typing import Any

import pytest

from tests.support.placing import CATALOGUE, DOCUMENT
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.expansion.state_machine import MAX_STEPS
from walkgraph.placement.itinerary import expand
from walkgraph.placement.simulate import PartAt, RoleAt, SimulatedTurn, Value, simulate
from walkgraph.placement.tables import FromInput, FromLiteral, Itinerary, Plan
from walkgraph.wire import messages as m

STEPS: list[Any] = [
    {
        "for": "turns",
        "system": [{"for": "parts", "text": [{"walk": "prefill", "with": {"text": "@part"}}]}],
        "user": [
            {"walk": "prefill", "with": {"text": "@turn.role"}},
            {"for": "parts", "text": [{"walk": "prefill", "with": {"text": "@part"}}]},
        ],
        "assistant": [
            {"walk": "prefill", "with": {"text": "@turn.calls"}, "when": "@turn.calls != ''"},
            {"for": "parts", "text": [{"walk": "prefill", "with": {"text": "@part"}, "when": "not @turn.last"}]},
        ],
    },
    {"walk": "decode", "with": {"token": "prefill.token"}},
]


def graph_of(steps: list[Any]) -> Graph:
    document = copy.deepcopy(DOCUMENT)
    task = document["tasks"]["talk"]
    document["tasks"]["chat"] = {
        **task,
        "inputs": {"chat": {"modality": "messages"}},
        "outputs": ["text"],
        "steps": {"writer": steps},
    }
    return codec.load(document)


GRAPH = graph_of(STEPS)


def plan_of(graph: Graph) -> Plan:
    group = Group(nodes=("*",), ranks=(0,))
    devices = (RankDevice(rank=0, device="cpu"),)
    return assemble(Assignment(graph, Placement(name="p", groups=(group,), ranks=devices)), CATALOGUE)


PLAN = plan_of(GRAPH)


def said(role: Any, *texts: str, calls: int = 0) -> m.Turn:
    parts = tuple(m.Part(modality="text", value=m.Small(value=text)) for text in texts)
    called = tuple(m.ToolCall(id=str(i), name="look", arguments="{}") for i in range(calls))
    return m.Turn(role=role, parts=parts, tool_calls=called)


def chat(*turns: m.Turn, graph: Graph = GRAPH) -> Itinerary:
    plan = PLAN if graph is GRAPH else plan_of(graph)
    return expand(graph, plan, "chat", {"seed": 1}, {"chat": [m.Conversation(turns=turns)]})


def texts(found: Itinerary) -> list[Any]:
    return [binding for step in found.steps if (binding := step.bindings.get("text")) is not None]


def test_turns_are_walked_in_order_with_their_parts() -> None:
    found = chat(said("system", "be kind"), said("user", "a", "b"), said("assistant", "c"), said("user", "d"))
    assert texts(found) == [
        FromInput("chat.0.0.0"),
        FromLiteral("user"),
        FromInput("chat.0.1.0"),
        FromInput("chat.0.1.1"),
        FromInput("chat.0.2.0"),
        FromLiteral("user"),
        FromInput("chat.0.3.0"),
    ]
    assert [PLAN.walks[step.walk].name for step in found.steps][-1] == "decode"


def test_conditions_and_bindings_read_the_turn() -> None:
    found = chat(said("user"), said("assistant", calls=1), said("assistant", "left out"))
    written = '[{"id":"0","name":"look","arguments":"{}"}]'
    assert texts(found) == [FromLiteral("user"), FromLiteral(written)]


@pytest.mark.parametrize(
    ("turns", "pointer", "words"),
    [
        ((said("user", "a"), said("tool", "b")), "/inputs/chat/1/role", "no turns of role `tool`"),
        ((), "/inputs/chat", "has no turns"),
        (
            (m.Turn(role="user", parts=(m.Part(modality="image", value=m.Blob(data=b"x")),)),),
            "/inputs/chat/0/content",
            "no parts of modality `image`",
        ),
    ],
)
def test_what_has_no_steps_is_refused_at_its_place(turns: tuple[m.Turn, ...], pointer: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refusal:
        chat(*turns)
    assert refusal.value.pointer == pointer


def test_tool_calls_that_no_step_reads_are_refused() -> None:
    steps = [{**STEPS[0], "assistant": STEPS[0]["assistant"][1:]}, STEPS[1]]
    with pytest.raises(InvalidInput, match="reads tool calls") as refusal:
        chat(said("user", "a"), said("assistant", calls=1), graph=graph_of(steps))
    assert refusal.value.pointer == "/inputs/chat/1/tool_calls"


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(InvalidInput, match=str(MAX_STEPS)):
        chat(*(said("user", *["a"] * 100) for _ in range(300)))


def test_itineraries_are_kept_by_roles_and_parts_not_by_texts() -> None:
    cache = ItineraryCache(GRAPH, PLAN)

    def of(*turns: m.Turn) -> Itinerary:
        submit = m.Submit(run=RunId("r"), task="chat", params={}, inputs={"chat": (m.Conversation(turns=turns),)})
        return cache.of(cache.asked(submit, 1)).expanded.itinerary

    first = of(said("user", "a"), said("assistant", "b"), said("user", "c"))
    assert of(said("user", "x"), said("assistant", "y"), said("user", "z")) is first
    assert of(said("user", "x"), said("user", "y"), said("user", "z")) is not first
    assert of(said("user", "x"), said("assistant", "y", calls=1), said("user", "z")) is not first
    assert of(said("user", "x"), said("assistant"), said("user", "z")) != first


def test_a_simulated_request_shows_turns_and_reasons() -> None:
    turns = [SimulatedTurn("user", (Value("text"), Value("text"))), SimulatedTurn("assistant", (Value("text"),))]
    found = simulate(GRAPH, CATALOGUE, "chat", {}, {"chat": 1}, (), turns)
    (lane,) = found.lanes
    assert [(step.pointer, step.turn, step.part, step.taken) for step in lane.steps] == [
        ("/steps/writer/0/user/0", RoleAt("user", 0), None, True),
        ("/steps/writer/0/user/1/text/0", RoleAt("user", 0), PartAt("text", 0), True),
        ("/steps/writer/0/user/1/text/0", RoleAt("user", 0), PartAt("text", 1), True),
        ("/steps/writer/0/assistant/0", RoleAt("assistant", 1), None, False),
        ("/steps/writer/0/assistant/1/text/0", RoleAt("assistant", 1), PartAt("text", 0), False),
        ("/steps/writer/1", None, None, True),
    ]
    assert lane.steps[4].why == "not @turn.last is false: @turn.last = true"
    real = chat(said("user", "a", "b"), said("assistant", "c"))
    assert [PLAN.walks[s.walk].name for s in real.steps] == [s.walk for s in lane.steps if s.taken]
    with pytest.raises(InvalidInput) as refusal:
        simulate(GRAPH, CATALOGUE, "chat", {}, {"chat": 1})
    assert refusal.value.pointer == "/inputs/chat"
