"""Every edge and stream says between which ranks, and how, it travels."""

import copy

from tests.support.placing import CATALOGUE, DOCUMENT, at, duet, hardware, placement, planned, sizes
from walkgraph.graph.codec import load
from walkgraph.placement.plan import plan
from walkgraph.placement.routes import TravelRoute, handed, routes


def found(*groups: dict[str, object]) -> list[TravelRoute]:
    made = planned(*groups)
    assert made.plan is not None, made.problems
    return routes(duet(), made.plan)


def test_every_edge_and_stream_has_a_route_with_its_place_in_the_document() -> None:
    routes_ = found()
    pointers = {
        f"/walks/{name}/edges/{i}" for name, walk in DOCUMENT["walks"].items() for i in range(len(walk["edges"]))
    }
    assert {route.pointer for route in routes_} == pointers | {"/streams/0"}
    assert len(routes_) == len(pointers) + 1
    assert {(route.source, route.target) for route in routes_} == {(0, 0)}
    assert {route.transport for route in routes_} == {"local", "control"}


def test_what_crosses_ranks_says_how() -> None:
    by_pointer = {route.pointer: route for route in found(at(1, "guide"), at(1, "voice"))}
    velocity = by_pointer["/walks/draw/edges/7"]
    assert (velocity.source, velocity.target, velocity.transport) == (1, 0, "shm")
    carried = by_pointer["/walks/draw/edges/4"]
    assert (carried.source, carried.target, carried.transport) == (0, 1, "shm")
    assert by_pointer["/walks/draw/edges/3"].transport == "local"
    heard = by_pointer["/streams/0"]
    assert (heard.walk, heard.stream) == (None, "heard")
    assert (heard.source, heard.target, heard.transport) == (0, 1, "inline")
    client = by_pointer["/walks/speak/edges/1"]
    assert (client.source, client.target, client.transport) == (1, 1, "control")


def test_a_node_that_moves_between_walks_moves_its_edges_only_there() -> None:
    by_pointer = {route.pointer: route for route in found(at(1, "llm", "say", walks=("decode",)))}
    assert by_pointer["/walks/decode/edges/1"].source == 1
    assert by_pointer["/walks/prefill/edges/1"].target == 0


def test_a_result_that_a_later_step_reads_on_another_rank_crosses() -> None:
    together, apart = planned(), planned(at(1, "llm", "say", walks=("decode",)))
    assert together.plan is not None
    assert apart.plan is not None
    assert {(route.source, route.target, route.transport) for route in handed(duet(), together.plan)} == {
        (0, 0, "local")
    }
    (token,) = (route for route in handed(duet(), apart.plan) if route.task == "talk")
    assert (token.result, token.input) == ("prefill.token", "decode.token")
    assert (token.source, token.target, token.transport) == (0, 1, "inline")
    assert DOCUMENT["tasks"]["talk"]["steps"]["writer"][1]["with"]["token"] == token.result
    assert token.pointer == "/tasks/talk/steps/writer/1/with/token"


def test_a_result_is_carried_also_where_the_step_has_another_name_than_its_walk() -> None:
    """A binding may mean the step by its own name, or by its Walk's."""
    document = copy.deepcopy(DOCUMENT)
    document["tasks"] = {"talk": document["tasks"]["talk"]}
    document["tasks"]["talk"]["steps"]["writer"][0]["text"][0]["as"] = "heard"
    made = plan(load(document), placement(at(1, "llm", "say", walks=("decode",))), hardware(), CATALOGUE, sizes())
    assert made.plan is not None, made.problems
    prefill = next(walk for walk in made.plan.walks if walk.name == "prefill")
    (edge,) = (edge for edge in prefill.edges if edge.target.kind == "result")
    assert edge.transport == "inline"
