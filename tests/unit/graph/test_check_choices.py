"""Choices and merges: each problem has a document that triggers exactly it, at the right place."""

import copy
from typing import Any

import pytest

from tests.unit.graph.changes import Case, Change, cases, drops, sets
from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.check import check
from walkgraph.graph.codec import dump, load

CATALOGUE = {
    c.name: c
    for c in (
        Component(
            name="c.judge",
            description="Judges a text.",
            inputs=(port("text", "text: str"),),
            outputs=(
                port("kind", "text: str"),
                port("count", "scalar: int"),
                port("ok", "flag: bool"),
                port("score", "scalar: float"),
                port("picture", "pixels: float[3, h, w]"),
            ),
            network="x.operators:X",
        ),
        Component(
            name="c.draw",
            description="Draws.",
            inputs=(port("text", "text: str"), port("picture", "pixels: float[3, h, w]", optional=True)),
            outputs=(port("picture", "pixels: float[3, h, w]"), port("done", "flag: bool")),
            network="x.operators:X",
        ),
        Component(
            name="c.show",
            description="Shows.",
            inputs=(port("picture", "pixels: float[3, h, w]"), port("other", "pixels", optional=True)),
            outputs=(port("image", "image: bytes"),),
            network="x.operators:X",
        ),
    )
}

DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "choices",
    "nodes": {
        "judge": {"component": "c.judge"},
        "draw": {"component": "c.draw"},
        "photo": {"component": "c.draw"},
        "show": {"component": "c.show"},
    },
    "walks": {
        "make": {
            "inputs": {"text": "text: str", "mode": "text: str"},
            "body": [
                "judge",
                {"choose": "judge.kind", "cases": {"draw": ["draw"]}, "otherwise": ["photo"]},
                "show",
            ],
            "merges": {"picture": ["draw.picture", "photo.picture"]},
            "edges": [
                ["@in.text", "judge.text"],
                ["@in.text", "draw.text"],
                ["@in.mode", "photo.text"],
                ["@merge.picture", "show.picture"],
                ["show.image", "@out.image"],
            ],
            "results": {"picture": "@merge.picture", "kind": "judge.kind", "score": "judge.score"},
        },
        "again": {
            "inputs": {"picture": "pixels: float[3, h, w]"},
            "body": [{"use": "show", "as": "once_more"}],
            "edges": [["@in.picture", "once_more.picture"], ["once_more.image", "@out.second"]],
        },
    },
    "tasks": {
        "go": {
            "inputs": {"text": {"modality": "text"}, "more": {"modality": "text"}},
            "params": {"mode": {"type": "string", "default": "x"}, "size": {"type": "number", "default": 1.5}},
            "outputs": ["image", "second"],
            "steps": [
                {"walk": "make", "with": {"text": "@task.text", "mode": "@task.mode"}},
                {
                    "choose": "make.kind",
                    "cases": {
                        "draw": [{"walk": "make", "as": "last", "with": {"text": "@task.more", "mode": "@task.mode"}}]
                    },
                    "otherwise": [{"walk": "make", "as": "last", "with": {"text": "@task.text", "mode": "@task.mode"}}],
                },
                {"walk": "again", "with": {"picture": "last.picture"}},
            ],
        }
    },
}
CHOICE = "walks/make/body/1"


def test_the_document_is_accepted_and_kept() -> None:
    report = check(DOCUMENT, CATALOGUE)
    assert [p for p in report.problems if p.code != "unused_parameter"] == []
    assert dump(load(DOCUMENT)) == DOCUMENT


WALKS: list[Case] = [
    ("unknown_use", sets(f"{CHOICE}/choose", "judje.kind"), f"/{CHOICE}/choose"),
    ("unknown_port", sets(f"{CHOICE}/choose", "judge.kinds"), f"/{CHOICE}/choose"),
    ("unknown_input", sets(f"{CHOICE}/choose", "@in.nothing"), f"/{CHOICE}/choose"),
    ("unknown_merge", sets(f"{CHOICE}/choose", "@merge.nothing"), f"/{CHOICE}/choose"),
    ("bad_choice", sets(f"{CHOICE}/choose", "@loop.index"), f"/{CHOICE}/choose"),
    ("bad_choice", sets(f"{CHOICE}/choose", "@stream.x"), f"/{CHOICE}/choose"),
    ("bad_choice_type", sets(f"{CHOICE}/choose", "judge.picture"), f"/{CHOICE}/choose"),
    ("bad_choice_type", sets(f"{CHOICE}/choose", "judge.score"), f"/{CHOICE}/choose"),
    ("unreachable_case", sets(f"{CHOICE}/choose", "judge.ok"), f"/{CHOICE}/cases/draw"),
    ("unreachable_case", sets(f"{CHOICE}/choose", "judge.count"), f"/{CHOICE}/cases/draw"),
    ("backward_edge", sets(f"{CHOICE}/choose", "show.image"), f"/{CHOICE}/choose"),
    ("between_branches", sets("walks/make/edges/-", ["draw.picture", "photo.picture"]), "/walks/make/edges/5"),
    ("absent_value", sets("walks/make/edges/3/0", "draw.picture"), "/walks/make/edges/3/1"),
    (
        "absent_value",
        sets(CHOICE, {"choose": "judge.kind", "cases": {"draw": ["draw"], "photo": ["photo"]}}),
        "/walks/make/edges/3/1",
    ),
    ("absent_value", sets(f"{CHOICE}/when", "mode == 'x'"), "/walks/make/edges/3/1"),
    ("fed_twice", sets("walks/make/edges/-", ["draw.picture", "show.picture"]), "/walks/make/edges/5/1"),
    ("fed_twice", sets("walks/make/edges/-", ["@merge.picture", "@out.image"]), "/walks/make/edges/5/1"),
    ("unknown_merge", sets("walks/make/edges/3/0", "@merge.pictures"), "/walks/make/edges/3/0"),
    ("unused_merge", sets("walks/make/merges/more", ["draw.done", "photo.done"]), "/walks/make/merges/more"),
    ("bad_merge", sets("walks/make/merges/picture/1", "@in.text"), "/walks/make/merges/picture/1"),
    ("unknown_use", sets("walks/make/merges/picture/1", "foto.picture"), "/walks/make/merges/picture/1"),
    ("unknown_port", sets("walks/make/merges/picture/1", "photo.pictures"), "/walks/make/merges/picture/1"),
    ("not_exclusive", sets("walks/make/merges/picture/-", "judge.picture"), "/walks/make/merges/picture/2"),
    ("not_exclusive", sets("walks/make/merges/picture/-", "draw.picture"), "/walks/make/merges/picture/2"),
    ("type_mismatch", sets("walks/make/merges/picture/1", "photo.done"), "/walks/make/merges/picture/1"),
    ("bad_reference", sets("walks/make/merges/picture/1", "photo"), "/walks/make/merges/picture/1"),
    ("bad_value", sets(f"{CHOICE}/cases", {}), f"/{CHOICE}/cases"),
    ("bad_name", sets(f"{CHOICE}/cases/two\nlines", []), f"/{CHOICE}/cases/two\nlines"),
    ("unknown_key", sets(f"{CHOICE}/case", {}), f"/{CHOICE}/case"),
    ("bad_reference", sets(f"{CHOICE}/choose", "kind"), f"/{CHOICE}/choose"),
    ("unknown_node", sets(f"{CHOICE}/cases/draw/-", "drew"), f"/{CHOICE}/cases/draw/1"),
    ("bad_item", sets(f"{CHOICE}/otherwise/-", {}), f"/{CHOICE}/otherwise/1"),
    (
        "unreachable_use",
        sets(f"{CHOICE}/otherwise/-", {"use": "draw", "as": "d2", "when": "1 > 2"}),
        f"/{CHOICE}/otherwise/1/when",
    ),
]


STEPS: list[Case] = [
    ("unknown_result", sets("tasks/go/steps/1/choose", "make.kinds"), "/tasks/go/steps/1/choose"),
    ("used_before_produced", sets("tasks/go/steps/1/choose", "last.kind"), "/tasks/go/steps/1/choose"),
    ("bad_choice_type", sets("tasks/go/steps/1/choose", "make.score"), "/tasks/go/steps/1/choose"),
    ("bad_choice_type", sets("tasks/go/steps/1/choose", "@task.size"), "/tasks/go/steps/1/choose"),
    ("bad_choice", sets("tasks/go/steps/1/choose", "@task.text"), "/tasks/go/steps/1/choose"),
    ("unknown_parameter", sets("tasks/go/steps/1/choose", "@task.modus"), "/tasks/go/steps/1/choose"),
    ("bad_reference", sets("tasks/go/steps/1/choose", "make"), "/tasks/go/steps/1/choose"),
    ("absent_value", drops("tasks/go/steps/1/otherwise"), "/tasks/go/steps/2/with/picture"),
    (
        "used_before_produced",
        sets("tasks/go/steps/1/otherwise/-", {"walk": "again", "as": "x", "with": {"picture": "drawn.picture"}}),
        "/tasks/go/steps/1/otherwise/1/with/picture",
    ),
    ("unknown_result", sets("tasks/go/steps/2/with/picture", "last.pictures"), "/tasks/go/steps/2/with/picture"),
    ("wrong_modality", sets("tasks/go/steps/2/with/picture", "last.kind"), "/tasks/go/steps/2/with/picture"),
    ("bad_item", sets("tasks/go/steps/1/otherwise/-", {}), "/tasks/go/steps/1/otherwise/1"),
    ("unknown_walk", sets("tasks/go/steps/1/cases/draw/-", {"walk": "foo"}), "/tasks/go/steps/1/cases/draw/2/walk"),
]
CONSEQUENCES = {
    "not_exclusive": {"absent_value", "between_branches"},
    "type_mismatch": {"type_mismatch", "wrong_modality"},
    "backward_edge": {"bad_choice_type"},
    "fed_twice": {"absent_value"},
    "bad_value": {"absent_value", "not_exclusive"},
    "bad_item": {"absent_value"},
    "between_branches": {"absent_value"},
    "unreachable_use": {"absent_value", "unconnected_input"},
}
"""Code -> what else is then true of the document."""


def _found(document: object) -> set[tuple[str, str]]:
    return {(p.code, p.pointer) for p in check(document, CATALOGUE).problems}


@pytest.mark.parametrize(("code", "change", "place"), cases(WALKS, STEPS))
def test_a_problem(code: str, change: Change, place: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    for branch, name in ((document["tasks"]["go"]["steps"][1]["cases"]["draw"], "drawn"),):
        branch.insert(0, {"walk": "make", "as": name, "with": {"text": "@task.more", "mode": "@task.mode"}})
    assert check(document, CATALOGUE).ok
    before = _found(document)
    change(document)
    others = _found(document) - before - {(code, place)}
    assert (code, place) in _found(document), others
    assert {other for other, _ in others} <= CONSEQUENCES.get(code, set()) | {"unused_merge", "no_effect"}


def _loop(*, until: str | None = None, **walk: Any) -> dict[str, Any]:
    """The document with its choice in a loop, and the picture used after it."""
    document = copy.deepcopy(DOCUMENT)
    made = document["walks"]["make"]
    inside = {"loop": "l", "times": "2", "body": made["body"][:2]} | ({"until": until} if until else {})
    made["body"] = [inside, "show"]
    made |= walk
    document["tasks"]["go"]["params"]["mode"]["default"] = "x"
    return document


def test_the_last_value_of_a_merge_leaves_a_loop() -> None:
    assert check(_loop(), CATALOGUE).ok


def test_a_merge_is_not_collected() -> None:
    document = _loop()
    document["walks"]["make"]["edges"][3] = {"from": "@merge.picture", "to": "show.other", "collect": True}
    assert ("merge_collected", "/walks/make/edges/3/collect") in _found(document)


def test_a_merge_may_end_a_loop_if_one_branch_is_always_taken() -> None:
    merges = {"picture": ["draw.picture", "photo.picture"], "done": ["draw.done", "photo.done"]}
    document = _loop(until="@merge.done", merges=merges)
    assert check(document, CATALOGUE).ok
    del document["walks"]["make"]["body"][0]["body"][1]["otherwise"]
    document["walks"]["make"]["merges"] = {"picture": ["draw.picture"], "done": ["draw.done"]}
    document["walks"]["make"]["edges"] = [e for e in document["walks"]["make"]["edges"] if "photo.text" not in e]
    assert ("absent_value", "/walks/make/body/0/until") in _found(document)
    document["walks"]["make"]["body"][0]["until"] = "@merge.dun"
    assert ("unknown_merge", "/walks/make/body/0/until") in _found(document)


def test_a_carried_value_is_absent_where_another_branch_was_taken_before() -> None:
    document = _loop()
    made = document["walks"]["make"]
    made["body"][0]["body"][1]["cases"]["draw"] = [{"use": "draw", "as": "first"}, "draw"]
    made["edges"] += [["@in.text", "first.text"], ["draw.picture", "first.picture"]]
    assert check(document, CATALOGUE).ok, check(document, CATALOGUE).errors


def test_both_values_of_a_flag_are_all_there_is() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["walks"]["make"]["body"][1] = {"choose": "judge.ok", "cases": {"true": ["draw"], "false": ["photo"]}}
    assert check(document, CATALOGUE).ok
    document["walks"]["make"]["body"][1]["otherwise"] = [{"use": "draw", "as": "d2"}]
    document["walks"]["make"]["edges"].append(["@in.text", "d2.text"])
    assert ("unreachable_case", "/walks/make/body/1/otherwise") in _found(document)


def test_a_case_may_hold_any_text() -> None:
    document = copy.deepcopy(DOCUMENT)
    choice = document["walks"]["make"]["body"][1]
    choice["cases"] = {"image/png ~ α": [{"use": "draw", "as": "d2"}, "nothing"], "when": ["draw"], "0": []}
    found = _found(document)
    assert ("unknown_node", "/walks/make/body/1/cases/image~1png ~0 α/1") in found
    assert ("unconnected_input", "/walks/make/body/1/cases/image~1png ~0 α/0") in found


def test_a_branch_reads_no_stream() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["streams"] = [{"name": "s", "from": "once_more.image", "walks": ["again"], "chunks": {"policy": "whole"}}]
    document["walks"]["make"]["edges"][2] = ["@stream.s", "photo.text"]
    assert ("stream_in_choice", "/walks/make/edges/2/1") in _found(document)
    assert ("stream_in_choice", "/tasks/go/steps/1/cases/draw/0/walk") in _found(document)
