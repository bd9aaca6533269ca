"""The meaning of the numbers in events, for a plan with every feature."""

from __future__ import annotations

from tests.support.placing import at, planned
from walkgraph import resources
from walkgraph.graph.reading.guard import read_json
from walkgraph.service.deployments.judging import judge
from walkgraph.telemetry.places import Places


def places() -> Places:
    plan = planned(at(1, "say", "voice")).plan
    assert plan is not None
    return Places.of(plan)


def test_edges_are_called_as_the_graph_calls_them() -> None:
    found = places()
    names = {name for (walk, _), name in found.edges.items() if walk == "decode"}
    assert {
        "@in.token -> llm.token",
        "llm.token -> llm.token",
        "llm.token -> say.token",
        "say.text -> @out.text",
    } <= names
    assert found.hop("speak", 0, stream=True) == "@stream.heard"
    assert any(name == "@stream.heard -> voice.tokens" for (walk, _), name in found.edges.items() if walk == "speak")
    number = next(number for (walk, number), name in found.edges.items() if name == "mix.latents -> paint.latents")
    assert found.hop("draw", number, stream=False) == "mix.latents -> paint.latents"
    assert found.hop("nowhere", 3, stream=False) == "edge 3"
    assert found.hop("nowhere", 3, stream=True) == "stream 3"
    assert found.devices == ("cpu", "cpu")


def test_loops_that_make_tokens_are_known_with_their_rank() -> None:
    graph = read_json(resources.bundled("graphs")["shapes"].read_bytes())
    placement = read_json(resources.bundled("placements")["shapes_one_cpu"].read_bytes())
    plan = judge(graph, placement, [], ()).plan
    assert plan is not None
    # In `denoise` the same node gives what is no token.
    assert {loop.name for walk in plan.walks for loop in walk.loops if loop.resident} == {"tokens", "denoise"}
    assert Places.of(plan).tokens == {("decode", "tokens", 0)}


def test_nodes_that_decode_and_encode_media_are_known() -> None:
    graph = read_json(resources.bundled("graphs")["shapes"].read_bytes())
    placement = read_json(resources.bundled("placements")["shapes_one_cpu"].read_bytes())
    plan = judge(graph, placement, [], ()).plan
    assert plan is not None
    found = Places.of(plan).does
    assert found.keys() == {node.name for node in plan.nodes}
    wanted = ("picture_in", "picture_out", "tokenizer", "llm", "vae_decoder")
    assert [found[name] for name in wanted] == ["decode", "encode", "host", "compute", "compute"]


def test_nodes_wait_for_nodes_through_edges_streams_states_and_ends_of_loops() -> None:
    found = places()
    assert found.follows is not None
    assert {("llm", "say"), ("noise", "mix"), ("llm", "voice")} <= found.follows
    # What it wrote an iteration ago is in its state.
    assert ("llm", "llm") in found.follows
    assert ("paint", "noise") not in found.follows
    assert ("say", "llm") not in found.follows


def test_hops_know_who_reads_and_writes_them() -> None:
    found = places()
    assert found.readers["decode", "llm.token -> say.token"] == {"say"}
    assert found.writers["decode", "llm.token -> say.token"] == {"llm"}
    assert found.readers["decode", "@stream.heard"] == {"voice"}
    assert found.writers["decode", "@stream.heard"] == {"llm"}
    assert ("decode", "say.text -> @out.text") not in found.readers
