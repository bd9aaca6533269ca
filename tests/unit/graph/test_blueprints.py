"""Nodes that stand for blueprints: what they become, and where their problems are told."""

import copy
from typing import Any

import pytest

from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints import library
from walkgraph.graph.blueprints.flattening import MOST_DEEP, flatten
from walkgraph.graph.blueprints.packing import pack, pack_walk, unpack
from walkgraph.graph.build import GraphBuilder
from walkgraph.graph.check import check
from walkgraph.graph.codec import dump, load

REFINER: dict[str, Any] = {
    "inputs": {"latents": "latents: float[m, 4]"},
    "outputs": {"latents": "euler.latents"},
    "params": {
        "steps": {"type": "integer", "min": 1, "max": 100},
        "strength": {"type": "number", "default": 2.0, "min": 0, "max": 20},
    },
    "weights": {"model": {"family": "toy", "source": "random:tiny:0"}},
    "states": {"kv": {"kind": "paged_kv", "capacity": "steps * 2"}},
    "nodes": {
        "llm": {"component": "toy.backbone", "weights": "model", "states": {"kv": "kv"}},
        "euler": {"component": "toy.euler", "params": {"scale": "=strength * 1.5"}},
    },
    "body": [{"loop": "denoise", "times": "steps - 1", "body": ["llm", "euler"]}],
    "edges": [
        ["@in.latents", "llm.latents"],
        ["@in.latents", "euler.latents"],
        ["euler.latents", "llm.latents"],
        ["euler.latents", "euler.latents"],
        ["llm.velocity", "euler.velocity"],
    ],
}


def drawing() -> dict[str, Any]:
    """A graph whose Walk draws with the blueprint `refiner`."""
    found = {
        "name": "drawing",
        "states": {"dice": {"kind": "rng"}},
        "nodes": {
            "noise": {"component": "toy.noise", "states": {"rng": "dice"}, "params": {"cells": 16}},
            "refine": {"component": "blueprint.refiner", "params": {"steps": "=rounds + 1"}},
            "painter": {"component": "toy.painter"},
        },
        "walks": {
            "draw": {
                "body": ["noise", "refine", "painter"],
                "edges": [
                    ["noise.latents", "refine.latents"],
                    ["refine.latents", "painter.latents"],
                    ["painter.image", "@out.image"],
                ],
            }
        },
        "tasks": {
            "draw": {
                "outputs": ["image"],
                "params": {"rounds": {"type": "integer", "default": 4, "min": 1, "max": 50}},
                "steps": [{"walk": "draw"}],
            }
        },
        "blueprints": {"refiner": copy.deepcopy(REFINER)},
    }
    return copy.deepcopy(found)


def told(value: dict[str, Any]) -> set[tuple[str, str]]:
    return {(problem.code, problem.pointer) for problem in check(value, CATALOGUE).problems}


def test_a_node_becomes_a_copy() -> None:
    report = check(drawing(), CATALOGUE)
    assert report.errors == ()
    assert report.graph is not None
    flat = dump(report.graph)
    assert "blueprints" not in flat
    assert flat["weights"] == {"refiner__model": {"family": "toy", "source": "random:tiny:0"}}
    assert flat["states"]["refine__kv"] == {"kind": "paged_kv", "capacity": "(rounds + 1) * 2"}
    assert flat["nodes"]["refine__llm"] == {
        "component": "toy.backbone",
        "weights": "refiner__model",
        "states": {"kv": "refine__kv"},
    }
    assert flat["nodes"]["refine__euler"]["params"] == {"scale": "=2.0 * 1.5"}
    walk = flat["walks"]["draw"]
    loop = {"loop": "refine__denoise", "times": "rounds + 1 - 1", "body": ["refine__llm", "refine__euler"]}
    assert walk["body"] == ["noise", loop, "painter"]
    assert ["noise.latents", "refine__llm.latents"] in walk["edges"]
    assert ["refine__euler.latents", "painter.latents"] in walk["edges"]
    assert load(flat) == report.graph
    assert report.written == load(drawing())


def test_two_nodes_have_a_state_each_and_share_weights() -> None:
    value = drawing()
    value["nodes"]["again"] = {"component": "blueprint.refiner", "params": {"steps": 3}}
    value["walks"]["draw"]["body"] = ["noise", "refine", "again", "painter"]
    value["walks"]["draw"]["edges"][1:2] = [["refine.latents", "again.latents"], ["again.latents", "painter.latents"]]
    graph = check(value, CATALOGUE).graph
    assert graph is not None
    assert {"refine__kv", "again__kv"} <= graph.states.keys()
    assert list(graph.weights) == ["refiner__model"]
    value["states"]["shared"] = {"kind": "paged_kv", "capacity": "64"}
    value["weights"] = {"other": {"family": "toy", "source": "random:tiny:1"}}
    value["nodes"]["again"] |= {"states": {"kv": "shared"}, "weights": "other"}
    graph = check(value, CATALOGUE).graph
    assert graph is not None
    assert graph.nodes["again__llm"].states == {"kv": "shared"}
    assert graph.nodes["again__llm"].weights == "other"
    assert "again__kv" not in graph.states


def test_blueprints_use_blueprints() -> None:
    value = drawing()
    value["blueprints"]["outer"] = {
        "inputs": {"start": "latents"},
        "outputs": {"end": "inner.latents"},
        "params": {"n": {"type": "integer", "default": 3}},
        "nodes": {"inner": {"component": "blueprint.refiner", "params": {"steps": "=n"}}},
        "body": ["inner"],
        "edges": [["@in.start", "inner.latents"]],
    }
    value["nodes"]["refine"] = {"component": "blueprint.outer"}
    value["walks"]["draw"]["edges"][:2] = [["noise.latents", "refine.start"], ["refine.end", "painter.latents"]]
    report = check(value, CATALOGUE)
    assert {problem.code for problem in report.errors} == set()
    assert report.graph is not None
    assert "refine__inner__llm" in report.graph.nodes
    value["walks"]["draw"]["edges"].pop(0)
    assert ("unconnected_input", "/walks/draw/body/1") in told(value)
    assert not any("inner" in problem.message for problem in check(value, CATALOGUE).errors)


def test_values_of_a_loop_are_sent_one_by_one() -> None:
    value = drawing()
    value["blueprints"]["refiner"]["nodes"]["eye"] = {"component": "toy.painter"}
    value["blueprints"]["refiner"]["body"][0]["body"].append("eye")
    value["blueprints"]["refiner"]["edges"].append(["euler.latents", "eye.latents"])
    value["blueprints"]["refiner"]["outputs"]["preview"] = "eye.image"
    value["walks"]["draw"]["edges"].append({"from": "refine.preview", "to": "@out.preview", "each": True})
    report = check(value, CATALOGUE)
    assert report.errors == ()
    assert report.graph is not None
    assert any(edge.from_ == "refine__eye.image" and edge.each for edge in report.graph.walks["draw"].edges)


DICE, UNKNOWN, EYE = {"kv": "dice"}, {"component": "toy.x"}, {"component": "toy.eye"}
CHANGES: list[tuple[str, str, Any]] = [
    ("unknown_component", "/nodes/refine/component", lambda d: d["blueprints"].clear()),
    ("unconnected_input", "/walks/draw/body/1", lambda d: d["walks"]["draw"]["edges"].pop(0)),
    ("unknown_port", "/walks/draw/edges/0/1", lambda d: d["walks"]["draw"]["edges"][0].__setitem__(1, "refine.x")),
    ("unknown_port", "/walks/draw/edges/1/0", lambda d: d["walks"]["draw"]["edges"][1].__setitem__(0, "refine.x")),
    ("missing_param", "/nodes/refine/params", lambda d: d["nodes"]["refine"]["params"].clear()),
    ("unknown_param", "/nodes/refine/params/step", lambda d: d["nodes"]["refine"]["params"].update(step=1)),
    ("bad_param", "/nodes/refine/params/steps", lambda d: d["nodes"]["refine"]["params"].update(steps=0)),
    ("bad_expression", "/nodes/refine/params/steps", lambda d: d["nodes"]["refine"]["params"].update(steps="=(")),
    ("unknown_slot", "/nodes/refine/states/x", lambda d: d["nodes"]["refine"].update(states={"x": "dice"})),
    ("wrong_state_kind", "/blueprints/refiner/nodes/llm/states/kv", lambda d: d["nodes"]["refine"].update(states=DICE)),
    ("unknown_weights", "/nodes/refine/weights", lambda d: d["nodes"]["refine"].update(weights="x")),
    ("unknown_param", "/blueprints/refiner/nodes/euler/params/x", lambda d: _inner(d, "euler")["params"].update(x=1)),
    ("unknown_component", "/blueprints/refiner/nodes/llm/component", lambda d: _inner(d, "llm").update(UNKNOWN)),
    ("unknown_port", "/blueprints/refiner/edges/4/0", lambda d: _edges(d)[4].__setitem__(0, "llm.x")),
    ("unknown_input", "/blueprints/refiner/edges/0/0", lambda d: _edges(d)[0].__setitem__(0, "@in.x")),
    ("bad_reference", "/blueprints/refiner/edges/4/1", lambda d: _edges(d)[4].__setitem__(1, "@out.x")),
    ("unused_input", "/blueprints/refiner/inputs/y", lambda d: d["blueprints"]["refiner"]["inputs"].update(y="text")),
    ("unused_node", "/blueprints/refiner/nodes/y", lambda d: d["blueprints"]["refiner"]["nodes"].update(y=EYE)),
    ("unused_blueprint", "/blueprints/y", lambda d: d["blueprints"].update(y=copy.deepcopy(REFINER))),
    ("empty", "/blueprints/refiner/body", lambda d: d["blueprints"]["refiner"].update(body=[])),
    ("missing_key", "/blueprints/refiner", lambda d: d["blueprints"]["refiner"].pop("body")),
    ("unknown_key", "/blueprints/refiner/bodies", lambda d: d["blueprints"]["refiner"].update(bodies=[])),
    ("blueprint_cycle", "/blueprints/refiner", lambda d: _inner(d, "llm").update(component="blueprint.refiner")),
    ("name_taken", "/nodes/refine__llm", lambda d: d["nodes"].update(refine__llm={"component": "toy.eye"})),
    ("bad_expression", "/blueprints/refiner/body/0/times", lambda d: _loop(d).update(times="(")),
    ("bad_param", "/nodes/refine/params/steps", lambda d: d["nodes"]["refine"]["params"].update(steps="many")),
    ("not_deterministic", "/nodes/refine/kept", lambda d: d["nodes"]["refine"].update(kept="own")),
    ("unused_node", "/nodes/refine", lambda d: d["walks"]["draw"].update(body=["noise", "painter"])),
]  # fmt: skip


def _inner(value: dict[str, Any], node: str) -> dict[str, Any]:
    return value["blueprints"]["refiner"]["nodes"][node]


def _loop(value: dict[str, Any]) -> dict[str, Any]:
    return value["blueprints"]["refiner"]["body"][0]


def _edges(value: dict[str, Any]) -> list[Any]:
    return value["blueprints"]["refiner"]["edges"]


@pytest.mark.parametrize(("code", "pointer", "change"), CHANGES, ids=[f"{code}{at}" for code, at, _ in CHANGES])
def test_problems_are_told_where_they_are(code: str, pointer: str, change: Any) -> None:
    value = drawing()
    assert told(value) == told(drawing())
    assert (code, pointer) not in told(value)
    change(value)
    assert (code, pointer) in told(value)


def test_a_parameter_that_a_node_gives_is_judged_at_the_node() -> None:
    value = drawing()
    value["blueprints"]["refiner"]["nodes"]["euler"]["params"] = {"scale": "=strength"}
    value["nodes"]["refine"]["params"]["strength"] = "=rounds * 100"
    assert ("bad_param", "/nodes/refine/params/strength") in told(value)


def test_what_one_edge_can_not_say_is_refused() -> None:
    value = drawing()
    walk = value["walks"]["draw"]
    walk["body"] = ["noise", {"loop": "again", "times": "3", "body": ["refine"]}, "painter"]
    walk["edges"].append(["refine.latents", "refine.latents"])
    assert ("blueprint_route", "/walks/draw/edges/3") in told(value)
    walk["edges"][3] = {"from": "refine.latents", "to": "@out.all", "each": True}
    assert ("blueprint_route", "/walks/draw/edges/3") in told(value)


def test_nesting_is_bounded() -> None:
    value = drawing()
    for depth in range(MOST_DEEP + 2):
        inner = "refiner" if depth == 0 else f"b{depth - 1}"
        port = "latents"
        value["blueprints"][f"b{depth}"] = {
            "inputs": {port: "latents"},
            "outputs": {port: f"n.{port}"},
            "params": {"steps": {"type": "integer", "default": 2}},
            "nodes": {"n": {"component": f"blueprint.{inner}", "params": {"steps": "=steps"}}},
            "body": ["n"],
            "edges": [[f"@in.{port}", f"n.{port}"]],
        }
    value["nodes"]["refine"]["component"] = f"blueprint.b{MOST_DEEP - 2}"
    assert "too_deep" not in {code for code, at in told(value) if at == f"/blueprints/b{MOST_DEEP - 2}"}
    assert ("too_deep", f"/blueprints/b{MOST_DEEP + 1}") in told(value)


def test_copies_can_not_exceed_the_limits_of_a_document() -> None:
    """Each blueprint holds four nodes that stand for the one before: 4 ** 7 copies of the first."""
    value = drawing()
    for depth in range(7):
        inner = "refiner" if depth == 0 else f"b{depth - 1}"
        nodes = {
            f"n{i}": {"component": f"blueprint.{inner}", "params": {"steps": 2} if depth == 0 else {}} for i in range(4)
        }
        value["blueprints"][f"b{depth}"] = {"nodes": nodes, "body": list(nodes)}
    value["nodes"]["refine"] = {"component": "blueprint.b6"}
    report = check(value, CATALOGUE)
    assert ("too_large", "/blueprints") in {(p.code, p.pointer) for p in report.errors}


def test_a_name_that_gets_too_long_is_told() -> None:
    value = drawing()
    long = "a" * 62
    value["nodes"][long] = value["nodes"].pop("refine")
    walk = value["walks"]["draw"]
    walk["body"][1] = long
    walk["edges"][:2] = [["noise.latents", f"{long}.latents"], [f"{long}.latents", "painter.latents"]]
    assert ("name_too_long", "/blueprints/refiner/nodes/llm") in told(value)


def test_python_makes_blueprints() -> None:
    g = GraphBuilder("drawing")
    with g.blueprint("twice", inputs={"image": "image"}, description="Looks.") as b:
        size = b.param("size", "integer", default=2)
        eye = b.node("eye", "toy.eye", params={"size": f"={size}"})
        b.use(eye)
        b.edge(b.input("image"), eye["image"])
        b.output("seen", eye["seen"])
    look = g.node("look", "blueprint.twice")
    with g.walk("look", image="image") as w:
        w.use(look)
        w.edge(w.input("image"), look["image"])
        w.result("seen", look["seen"])
    graph = g.build()
    assert flatten(graph).graph.walks["look"].results["seen"].from_ == "look__eye.seen"


# ── packing ─────────────────────────────────────────────────────────────────────────────────────


def types(_node: str, port: str) -> str | None:
    return {"latents": "latents: float[m, 4]"}.get(port)


def test_a_selection_becomes_ports_parameters_and_states() -> None:
    graph = load(document())
    packed = pack(graph, "draw", ["/body/1"], "denoiser", types)
    made = packed.blueprints["denoiser"]
    assert made.inputs == {"latents": "latents: float[m, 4]"}
    assert {name: output.from_ for name, output in made.outputs.items()} == {
        "preview": "preview.image",
        "latents": "euler.latents",
    }
    assert set(made.params) == {"steps", "scale", "context"}
    assert made.params["steps"] == graph.tasks["paint"].params["steps"]
    node = packed.nodes["denoiser"]
    assert node.params == {"steps": "=steps", "scale": "=scale", "context": "=context"}
    assert node.states == {"main": "main", "guide": "guide"}
    assert "euler" not in packed.nodes
    assert "llm" in packed.nodes
    assert {p.code for p in check(packed, CATALOGUE).errors} == set()


def test_a_selection_that_is_torn_apart_is_refused() -> None:
    graph = load(document())
    with pytest.raises(InvalidInput, match="select it too"):
        pack(graph, "draw", ["/body/0", "/body/2"], "torn", types)
    with pytest.raises(InvalidInput, match="select it too"):
        pack(graph, "draw", ["/body/0", "/body/1/body/1"], "torn", types)
    with pytest.raises(InvalidInput, match="already"):
        pack(load(drawing()), "draw", ["/body/0"], "refiner", types)


def test_a_walk_becomes_a_blueprint_of_another_graph() -> None:
    graph = load(document())
    entry = library.written("draw", pack_walk(graph, "draw", types), graph.blueprints)
    taken, name = library.take(load({"name": "other"}), entry, None)
    assert name == "draw"
    made = taken.blueprints["draw"]
    assert set(made.outputs) == {"image", "preview"}
    assert set(made.states) == {"main", "guide", "dice"}
    again = library.read(library.entry(taken, "draw"))
    assert again == ("draw", dict(taken.blueprints))


def test_what_is_unpacked_is_as_it_was() -> None:
    graph = unpack(load(drawing()), "refine")
    assert graph.blueprints == {}
    assert list(graph.nodes) == ["noise", "llm", "euler", "painter"]
    assert check(graph, CATALOGUE).errors == ()
    with pytest.raises(InvalidInput, match="stands for no blueprint"):
        unpack(graph, "llm")


# ── the library ─────────────────────────────────────────────────────────────────────────────────


def test_an_update_keeps_the_wires_that_still_fit() -> None:
    graph = load(drawing())
    entry = library.entry(graph, "refiner")
    entry["outputs"] = {"better": "euler.latents"}
    entry["params"] = {"steps": {"type": "integer", "default": 3}}
    entry["nodes"]["euler"] = {"component": "toy.euler"}
    updated, name = library.take(graph, entry, "0" * 32, replaces := "refiner")
    assert name == replaces
    edges = [(edge.from_, edge.to) for edge in updated.walks["draw"].edges]
    assert edges == [("noise.latents", "refine.latents"), ("painter.image", "@out.image")]
    origin = updated.blueprints["refiner"].origin
    assert origin is not None
    assert (origin.name, origin.version) == ("refiner", "0" * 32)


def test_names_of_other_blueprints_stay_apart() -> None:
    graph = load(drawing())
    other = drawing()
    other["blueprints"]["refiner"]["description"] = "Another one."
    other["blueprints"]["outer"] = {
        "nodes": {"n": {"component": "blueprint.refiner", "params": {"steps": 2}}},
        "body": ["n"],
    }
    entry = library.entry(load(other), "outer")
    taken, name = library.take(graph, entry, None)
    assert taken.blueprints[name].nodes["n"].component == "blueprint.refiner_2"
    assert taken.blueprints["refiner"] == graph.blueprints["refiner"]


@pytest.mark.parametrize("value", [None, {}, {"format": "walkgraph/blueprint@1"}, {**REFINER, "name": "x"}])
def test_what_is_no_entry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        library.read(value)
