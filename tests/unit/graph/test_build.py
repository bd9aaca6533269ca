"""Python and JSON are two forms of one graph."""

from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.graph.documents import document
from tests.unit.graph.strategies import DOCUMENTS
from tests.unit.graph.test_check_choices import DOCUMENT
from walkgraph.errors import InvalidInput
from walkgraph.graph.build import GraphBuilder, fixed, left_context, sliding, whole
from walkgraph.graph.codec import dump, load
from walkgraph.graph.document import Graph
from walkgraph.graph.export import to_python
from walkgraph.graph.reading.guard import read_json


def rebuilt(graph: Graph) -> Graph:
    names: dict[str, Any] = {}
    exec(compile(to_python(graph), "<exported>", "exec"), names)
    return names["graph"]


def test_a_graph_by_hand() -> None:
    g = GraphBuilder("writer", description="Writes.")
    g.weights("tiny", family="bagel", source="starter:shapes")
    g.state("main", "paged_kv", capacity="max_tokens")
    llm = g.node("llm", "bagel.backbone", weights="tiny", states={"kv": "main"}, params={"top_k": 3})
    guide = g.node("guide", "bagel.backbone", weights="tiny", states={"kv": "main"})
    with g.walk("decode", label="Write", token="tokens") as w:
        with w.loop("tokens", times="max_tokens", until=llm["stop"], drop_last=True) as index, w.parallel():
            w.use(llm)
            with w.sequence(when="@loop.index > 1"):
                second = w.use(guide, as_="second", when="max_tokens > 3")
        w.fork("main", "main", when="max_tokens > 1")
        w.edge(w.input("token"), llm["token"])
        w.edge(llm["token"], llm["token"])
        w.edge(index, second["step"])
        w.edge(llm["text"], w.out("text"), each=True)
        w.result("token", llm["token"], collect=True)
    source = g.stream("words", llm["token"], walks=["decode"], chunks=left_context(4, 2, first=1), credits=2)
    assert source == "@stream.words"
    with g.task("write", outputs=["text"], label="Write") as t:
        prompt = t.input("prompt", "text", many=True)
        t.param("max_tokens", "integer", default=64, min=1)
        parts = t.parts()
        with parts.steps("text"):
            t.step("decode", {"token": "@part"})
        with t.first():
            step = t.step("decode", {"token": prompt}, when="max_tokens > 1")
            t.step("decode", {"token": f"{step}.token"}, as_="again")
        t.session(queue="latest")
    with g.task("other", outputs=[]) as t, t.lane("only"):
        t.step("decode", per="chunk")
    g.layout("llm", {"x": 1})
    assert dump(g.build()) == {
        "format": "walkgraph/graph@1",
        "name": "writer",
        "description": "Writes.",
        "weights": {"tiny": {"family": "bagel", "source": "starter:shapes"}},
        "states": {"main": {"kind": "paged_kv", "capacity": "max_tokens"}},
        "nodes": {
            "llm": {
                "component": "bagel.backbone",
                "weights": "tiny",
                "states": {"kv": "main"},
                "params": {"top_k": 3},
            },
            "guide": {"component": "bagel.backbone", "weights": "tiny", "states": {"kv": "main"}},
        },
        "walks": {
            "decode": {
                "label": "Write",
                "inputs": {"token": "tokens"},
                "body": [
                    {
                        "loop": "tokens",
                        "times": "max_tokens",
                        "until": "llm.stop",
                        "drop_last": True,
                        "body": [
                            {
                                "parallel": [
                                    "llm",
                                    {
                                        "sequence": [{"use": "guide", "as": "second", "when": "max_tokens > 3"}],
                                        "when": "@loop.index > 1",
                                    },
                                ]
                            }
                        ],
                    },
                    {"fork": "main", "into": "main", "when": "max_tokens > 1"},
                ],
                "edges": [
                    ["@in.token", "llm.token"],
                    ["llm.token", "llm.token"],
                    ["@loop.tokens", "second.step"],
                    {"from": "llm.text", "to": "@out.text", "each": True},
                ],
                "results": {"token": {"from": "llm.token", "collect": True}},
            }
        },
        "streams": [
            {
                "name": "words",
                "from": "llm.token",
                "walks": ["decode"],
                "chunks": {"policy": "left_context", "chunk": 4, "context": 2, "first": 1},
                "credits": 2,
            }
        ],
        "tasks": {
            "write": {
                "label": "Write",
                "inputs": {"prompt": {"modality": "text", "many": True}},
                "outputs": ["text"],
                "params": {"max_tokens": {"type": "integer", "default": 64, "min": 1}},
                "steps": [
                    {"for": "parts", "text": [{"walk": "decode", "with": {"token": "@part"}}]},
                    {
                        "first": [
                            {"walk": "decode", "with": {"token": "@task.prompt"}, "when": "max_tokens > 1"},
                            {"walk": "decode", "as": "again", "with": {"token": "decode.token"}},
                        ]
                    },
                ],
                "session": {"queue": "latest"},
            },
            "other": {"outputs": [], "steps": {"only": [{"walk": "decode", "per": "chunk"}]}},
        },
        "layout": {"llm": {"x": 1}},
    }


def test_chunk_policies() -> None:
    assert fixed(3, continue_after_done=True) == {"policy": "fixed", "size": 3, "continue_after_done": True}
    assert sliding(4, 2, first=1) == {"policy": "sliding", "window": 4, "stride": 2, "first": 1}
    assert whole() == {"policy": "whole"}


def test_a_mistake_has_its_place() -> None:
    g = GraphBuilder("g")
    g.node("llm", "backbone")
    with pytest.raises(InvalidInput, match="not a component's name") as caught:
        g.build()
    assert caught.value.pointer == "/nodes/llm/component"


def test_the_exported_program_makes_the_same_graph() -> None:
    graph = load(document())
    assert rebuilt(graph) == graph
    assert max(map(len, to_python(graph).splitlines())) <= 140


def test_bundled_graphs_survive_python(repository: Any) -> None:
    for path in sorted((repository / "graphs").glob("*.json")):
        graph = load(read_json(path.read_bytes()))
        assert rebuilt(graph) == graph


@given(DOCUMENTS)
@settings(max_examples=60)
def test_any_graph_survives_python(value: dict[str, Any]) -> None:
    graph = load(value)
    assert dump(rebuilt(graph)) == dump(graph)
    assert rebuilt(graph) == graph


def test_choices_and_merges() -> None:
    graph = load(DOCUMENT)
    assert rebuilt(graph) == graph


def test_a_choice_holds_branches_only() -> None:
    g = GraphBuilder("x")
    with g.walk("w") as w:
        with pytest.raises(InvalidInput, match="more than `case`"), w.choose("a.kind"):
            w.use("b")
        with pytest.raises(InvalidInput, match="inside a choice"), w.case("c"):
            pass
