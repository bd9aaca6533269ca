"""JSON <-> Graph without loss, and refused documents."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.graph.documents import document
from tests.unit.graph.strategies import DOCUMENTS
from walkgraph.errors import InvalidInput
from walkgraph.graph.codec import digest, dump, dumps, load
from walkgraph.graph.document import Fork, Loop, Parallel, Sequence, Use
from walkgraph.graph.reading.guard import MAX_BYTES

QUICK = settings(max_examples=60)


@given(DOCUMENTS)
@QUICK
def test_round_trip(value: dict[str, Any]) -> None:
    graph = load(value)
    assert load(dump(graph)) == graph
    assert load(dumps(graph)) == graph
    assert load(json.dumps(value).encode()) == graph
    assert dumps(load(dumps(graph))) == dumps(graph)
    assert graph.layout == value.get("layout", {})


def test_what_is_written_is_what_was_read() -> None:
    written = dump(load(document()))
    expected = document()
    del expected["states"]["talk"]["scope"]  # the default
    assert written == expected
    assert list(written["walks"]) == list(expected["walks"])
    assert list(written["nodes"]) == list(expected["nodes"])


def test_shorthands_are_expanded() -> None:
    walk = load(
        {
            "name": "g",
            "walks": {
                "w": {
                    "body": ["a", ["b", {"loop": "l", "times": "2", "body": ["c"]}], {"fork": "s", "into": "t"}],
                    "edges": [["a.x", "b.y"]],
                    "results": {"r": "b.z"},
                },
                "v": {"body": [{"parallel": ["a", ["b", "c"]]}]},
            },
        }
    ).walks
    a, sequence, fork = walk["w"].body
    assert a == Use(use="a")
    assert isinstance(sequence, Sequence)
    assert isinstance(sequence.sequence[1], Loop)
    assert isinstance(fork, Fork)
    assert (walk["w"].edges[0].from_, walk["w"].edges[0].to) == ("a.x", "b.y")
    assert walk["w"].results["r"].from_ == "b.z"
    (parallel,) = walk["v"].body
    assert isinstance(parallel, Parallel)
    assert parallel.parallel[1] == Sequence(sequence=(Use(use="b"), Use(use="c")))


def test_flags_keep_the_long_form() -> None:
    edges = [["a.x", "b.y"], {"from": "a.x", "to": "@out.z", "each": True}]
    value = {"name": "g", "walks": {"w": {"body": [{"use": "a", "as": "b"}], "edges": edges}}}
    assert dump(load(value)) == {"format": "walkgraph/graph@1", **value}
    assert dump(load({**value, "description": ""})) == dump(load(value))


def test_text_is_stable_and_short_lists_stay_on_a_line() -> None:
    text = dumps(load(document()))
    assert text == dumps(load(text))
    assert '["@in.text", "tokenizer.text"]' in text
    assert '"eye": { "component": "toy.eye" }' in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.endswith("}\n")


def test_digest_is_of_the_content_without_the_layout() -> None:
    graph = load(document())
    moved = load({**document(), "layout": {"llm": {"x": 99}}})
    renamed = load({**document(), "name": "other"})
    assert digest(graph) == digest(moved) != digest(renamed)
    assert digest(graph) == digest(load(dumps(graph)))
    assert len(digest(graph)) == 64


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"name": "a", "layout": {"x": NaN}}', "finite"),
        (b'{"name": "a", "layout": {"x": -Infinity}}', "finite"),
        (b'{"name": "a", "layout": {"x": 1e999}}', "too large"),
        (b'{"name": "a", "layout": {"x": 9223372036854775808}}', "64 bits"),
        (b'{"name": "a", "layout": {"x": ' + b"9" * 5000 + b"}}", "64 bits"),
        (b'{"name": "a", "layout": {"x": "\\ud800"}}', "surrogate"),
        (b'{"name": "a", "layout": {"\\udfff": 1}}', "key"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"name": "a"', "line 1"),
        (b"", "line 1"),
        (b"[" * 100_000, "nested"),
        (b'{"name": "a", "layout": {"x": ' + b"[" * 63 + b"]" * 63 + b"}}", "nested"),
        (b" " * (MAX_BYTES + 1), "bytes"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'{"name": "a", "nodes": {' + b",".join(b'"n%d":{}' % i for i in range(2001)) + b"}}", "2001 nodes"),
        (b'{"name": "a", "layout": [' + b"0," * 100_001 + b"0]}", "more than"),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{len(given)} bytes",
)
def test_refused_at_the_door(data: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        load(data)


def test_too_many_edges_or_items_and_too_deep_bodies() -> None:
    with pytest.raises(InvalidInput, match="10001 edges"):
        load({"name": "g", "walks": {"w": {"body": [], "edges": [["a.x", "b.y"]] * 10_001}}})
    with pytest.raises(InvalidInput, match="10001 items"):
        load({"name": "g", "walks": {"w": {"body": ["a"] * 10_001}}})
    body: Any = "a"
    for _ in range(40):
        body = [body]
    with pytest.raises(InvalidInput, match="nested 41 deep") as caught:
        load({"name": "g", "walks": {"w": {"body": [body]}}})
    assert caught.value.pointer == "/walks/w/body"


def test_the_first_problem_has_its_pointer() -> None:
    broken = document()
    broken["walks"]["read"]["edges"][1] = ["tokenizer", "llm.ids"]
    with pytest.raises(InvalidInput, match="names no port") as caught:
        load(broken)
    assert caught.value.pointer == "/walks/read/edges/1/0"


@pytest.mark.parametrize("value", [7, None, "x", [["name", "g"]]])
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        load(value)
