"""Ports that follow from a node's parameters."""

import pytest

from tests.golden.editor_cases import GIVEN, SHAPED
from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.graph.check import check
from walkgraph.graph.language.shaping import MOST_PORTS, Listed, fault, holes, listed_ports, shaped

JOIN = Component(
    name="test.join",
    description="Joins.",
    inputs=(port("part", "text", of="parts"), port("between", "text", optional=True)),
    outputs=(port("out", "text", of="kind"),),
    params={
        "parts": Param(type="string", gives="ports"),
        "kind": Param(type="string", gives="type", default="text"),
    },
    network="test:Join",
)


def test_an_unshaped_component_stays_as_it_is() -> None:
    plain = Component(name="test.plain", description="", inputs=(port("x", "text"),))
    assert shaped(plain, {"kind": "image"}) is plain


def test_a_type_is_given_to_the_ports_that_follow_from_it() -> None:
    made = shaped(SHAPED, {"kind": "pixels: float[3, h, w]"})
    assert [str(made.inputs[i].type) for i in (1, 2)] == ["pixels: float[3, h, w]", "list of pixels: float[3, h, w]"]
    assert str(made.outputs[0].type) == "pixels: float[3, h, w]"


def test_ports_stand_in_place_of_the_one_that_they_follow_from() -> None:
    made = shaped(SHAPED, {"parts": "a, b: image, c?", "template": "{x} and {y?: scalar}"})
    assert [(p.name, str(p.type), p.optional) for p in made.inputs] == [
        ("fixed", "scalar", False),
        ("typed", "tensor", False),
        ("many", "list of tensor", False),
        ("a", "text", True),
        ("b", "image", True),
        ("c", "text", True),
        ("x", "text", False),
        ("y", "scalar", True),
    ]
    assert [p.name for p in made.outputs] == ["out", "a", "b", "c"]


def test_ports_without_a_type_may_have_that_of_another_parameter() -> None:
    for kind in ("image", "list of image"):
        made = shaped(SHAPED, {"alike": "s, t: text", "kind": kind})
        assert [(p.name, str(p.type)) for p in made.inputs[-2:]] == [("s", "image"), ("t", "text")]
    assert [str(p.type) for p in shaped(SHAPED, {"alike": "s", "kind": "nothing"}).inputs[-1:]] == ["text"]


def test_the_default_gives_ports_too() -> None:
    assert [p.name for p in shaped(SHAPED, {}).outputs] == ["out", "first"]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [""]),
        ("plain", ["plain"]),
        ("{a}", ["", Listed("a", None), ""]),
        ("{{a}} {b?}!", ["", "{", "a", "}", " ", Listed("b", None, True), "!"]),
    ],
)
def test_a_text_is_read_as_pieces(text: str, pieces: list[object]) -> None:
    assert list(holes(text)) == pieces


def test_a_list_splits_at_commas_outside_shapes() -> None:
    assert [one.name for one in listed_ports("a: tensor: float[n, m], b")] == ["a", "b"]


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("kind", "imagee", "is not a modality"),
        ("kind", "=kind", "must be a literal"),
        ("parts", "a, a", "listed twice"),
        ("parts", "a,", "write `name` or `name: type`"),
        ("parts", "a: nothing", "is not a modality"),
        ("parts", "fixed", "has already"),
        ("parts", ",".join(f"p{i}" for i in range(MOST_PORTS + 1)), "at most 64"),
        ("template", "a { b", "write `{{` for a brace"),
        ("template", "{a: text} {a: image}", "has two types"),
        ("template", "{}", "is not a port"),
    ],
)
def test_a_fault_says_what_to_do(key: str, value: str, advice: str) -> None:
    found = fault(SHAPED, key, value)
    assert found is not None
    assert advice in found


@pytest.mark.parametrize(
    ("key", "value"), [("kind", "image"), ("parts", ""), ("parts", "a, b"), ("template", "{a} {a}")]
)
def test_what_can_be_read_has_no_fault(key: str, value: str) -> None:
    assert fault(SHAPED, key, value) is None


def test_whatever_is_refused_gives_no_ports_and_the_rest_no_fault() -> None:
    for key in ("parts", "template"):
        for value in GIVEN[key]:
            refused = fault(SHAPED, key, value) is not None
            read = value.removeprefix("=") == value and bool(listed_or_none(key, value))
            assert refused != read, (key, value)


def listed_or_none(key: str, value: str) -> bool:
    """True if ports, or none at all on purpose, follow from a value."""
    fixed = {p.name for p in SHAPED.inputs if not p.of}
    made = [p.name for p in shaped(SHAPED, {"parts": "", key: value}).inputs if p.of == key]
    return (bool(made) and not fixed & set(made)) or not value.strip() or value == "plain"


def test_check_judges_edges_by_the_ports_of_the_node() -> None:
    def codes(parts: str, kind: str = "text") -> list[str]:
        node = {"component": "test.join", "params": {"parts": parts, "kind": kind}}
        walk = {
            "inputs": {"x": "text", "y": "image"},
            "body": ["j"],
            "edges": [["@in.x", "j.a"], ["@in.y", "j.b"], ["j.out", "@out.t"]],
        }
        task = {
            "inputs": {"x": {"modality": "text"}, "y": {"modality": "image"}},
            "outputs": ["t"],
            "steps": [{"walk": "w", "with": {"x": "@task.x", "y": "@task.y"}}],
        }
        document = {
            "format": "walkgraph/graph@1",
            "name": "g",
            "nodes": {"j": node},
            "walks": {"w": walk},
            "tasks": {"t": task},
        }
        return [problem.code for problem in check(document, {"test.join": JOIN}).problems]

    assert codes("a, b: image") == []
    assert codes("a, b") == ["type_mismatch"]
    assert codes("a") == ["unknown_port"]
    assert codes("a, b: image, c") == ["unconnected_input"]
    assert codes("a, b: image", "=x") == ["bad_param"]
    assert codes("a, between")[0] == "bad_param"
