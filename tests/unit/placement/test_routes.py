"""Every edge and stream says between which ranks, and how, it travels."""

from tests.support.placing import DOCUMENT, at, duet, planned
from walkgraph.placement.routes import TravelRoute, routes


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
