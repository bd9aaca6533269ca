"""Types of values that leave a loop: joined, stacked, end to end, or as a list; and where each may go."""

from typing import Any

import pytest

from walkgraph.graph.catalogue import Catalogue, Component, Port, port
from walkgraph.graph.check import check
from walkgraph.graph.ports import accepts, parse_type

GIVES = ("text: str", "tokens: int[1]", "image", "pixels: float[3, h, w]", "scalar: float[]")
TAKES = (*GIVES, "tokens: int[n]", "tokens: int[n, 1]", "scalar: float[n]", *(f"list of {one}" for one in GIVES))


def component(name: str, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> Component:
    return Component(name=name, description="Test.", inputs=inputs, outputs=outputs, network="none:None")


CATALOGUE: Catalogue = {
    "test.giver": component("test.giver", (), tuple(port(f"o{i}", of) for i, of in enumerate(GIVES))),
    "test.taker": component("test.taker", tuple(port(f"i{i}", of, optional=True) for i, of in enumerate(TAKES)), ()),
}


def problems(gives: str, takes: str, collect: object, **flags: Any) -> list[tuple[str, str]]:
    edge = {"from": f"giver.o{GIVES.index(gives)}", "to": f"taker.i{TAKES.index(takes)}", "collect": collect, **flags}
    document = {
        "format": "walkgraph/graph@1",
        "name": "kept",
        "nodes": {"giver": {"component": "test.giver"}, "taker": {"component": "test.taker"}},
        "walks": {
            "w": {"body": [{"loop": "l", "times": "3", "body": ["giver"]}, _taker(flags)], "edges": [edge]},
        },
        "tasks": {"t": {"outputs": [], "steps": [{"walk": "w"}]}},
    }
    found = check(document, CATALOGUE).errors
    return [(p.code, p.message) for p in found if p.code != "no_outputs"]


def _taker(flags: dict[str, Any]) -> Any:
    return {"loop": "m", "times": "3", "body": ["taker"]} if flags else "taker"


@pytest.mark.parametrize(
    ("gives", "collect", "takes"),
    [
        ("text: str", True, "text: str"),
        ("text: str", "join", "text: str"),
        ("text: str", "list", "list of text: str"),
        ("tokens: int[1]", True, "tokens: int[n, 1]"),
        ("tokens: int[1]", "join", "tokens: int[n]"),
        ("tokens: int[1]", "list", "list of tokens: int[1]"),
        ("image", True, "list of image"),
        ("image", "list", "list of image"),
        ("pixels: float[3, h, w]", "list", "list of pixels: float[3, h, w]"),
        ("scalar: float[]", True, "scalar: float[n]"),
        ("scalar: float[]", "join", "scalar: float[n]"),
    ],
)
def test_collected_values_fit_one_form(gives: str, collect: object, takes: str) -> None:
    assert problems(gives, takes, collect) == []
    modality = takes.removeprefix("list of ").split(":")[0]
    others = [one for one in TAKES if one.removeprefix("list of ").startswith(modality) and accepts_not(takes, one)]
    assert others, "some port of its modality must not take it"
    for other in others:
        assert [code for code, _ in problems(gives, other, collect)] == ["type_mismatch"], other


def accepts_not(takes: str, other: str) -> bool:
    return accepts(parse_type(other), parse_type(takes)) is not None


def test_a_list_is_taken_apart_by_each() -> None:
    assert problems("image", "image", "list", each=True) == []
    (fault,) = problems("image", "image", "list")
    assert fault[1].endswith("a list does not fit a single value; take the list apart with `each` in a loop")


def test_values_that_cant_be_joined_or_sliced() -> None:
    (joined,) = problems("image", "image", "join")
    assert joined == ("type_mismatch", "values of `image` can't be joined; collect a `list`")
    (sliced,) = problems("text: str", "text: str", True, each=True)
    assert sliced == ("type_mismatch", "`giver.o0` gives one `text`; remove `each`, or collect a `list`")


def test_collect_is_one_of_four() -> None:
    (fault,) = problems("text: str", "text: str", "joined")
    assert fault == ("bad_value", "`joined` is not one of the choices; did you mean `join`?")


@pytest.mark.parametrize("text", ["list of image", "list of pixels: float[3, h, w]", "list of text: str"])
def test_list_types_are_read_and_written(text: str) -> None:
    assert str(parse_type(text)) == text
    assert parse_type(text).many
    with pytest.raises(ValueError, match="not a port type"):
        parse_type(f"list of {text}")
