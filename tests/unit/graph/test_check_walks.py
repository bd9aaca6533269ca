"""Bodies and edges of Walks: each problem has a document that triggers exactly it, at the right place."""

import pytest

from tests.unit.graph.changes import Also, Case, Change, both, cases, changed, drops, expect, found, sets
from tests.unit.graph.documents import CATALOGUE
from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.check import check

NEST = {
    "inputs": {"many": "latents: float[k, m, 4]"},
    "body": [{"loop": "a", "times": "2", "body": [{"loop": "b", "times": "2", "body": ["painter"]}]}],
    "edges": [{"from": "@in.many", "to": "painter.latents", "each": True}, ["painter.image", "@out.image"]],
}
WALKS: list[Case] = [
    ("bad_type", sets("walks/look/inputs/image", "picture"), "/walks/look/inputs/image"),
    ("empty_walk", sets("walks/blank", {"body": []}), "/walks/blank/body"),
    ("unknown_node", sets("walks/sound/body/-", "voocoder"), "/walks/sound/body/1"),
    ("unknown_node", sets("walks/sound/body/-", {"use": "voocoder", "as": "x"}), "/walks/sound/body/1/use"),
    ("duplicate_name", sets("walks/look/body/-", "eye"), "/walks/look/body/3"),
    ("duplicate_name", sets("walks/look/body/-", {"use": "painter", "as": "eye"}), "/walks/look/body/3"),
    ("bad_name", sets("walks/talk/body/0/loop", "index"), "/walks/talk/body/0/loop"),
    ("unknown_state", sets("walks/look/body/0/fork", "mein"), "/walks/look/body/0/fork"),
    ("bad_fork", sets("walks/look/body/0/into", "main"), "/walks/look/body/0/into"),
    ("bad_fork", sets("walks/look/body/0/into", "dice"), "/walks/look/body/0/into"),
    ("bad_times", sets("walks/talk/body/0/times", "max_tokens / 2"), "/walks/talk/body/0/times"),
    ("bad_times", sets("walks/talk/body/0/times", "max_tokens > 2"), "/walks/talk/body/0/times"),
    ("bad_times", sets("walks/talk/body/0/times", "0"), "/walks/talk/body/0/times"),
    ("bad_times", sets("walks/talk/body/0/times", "-max_tokens"), "/walks/talk/body/0/times"),
    ("times_may_be_negative", sets("walks/talk/body/0/times", "max_tokens - 5"), "/walks/talk/body/0/times"),
    ("times_may_be_zero", sets("tasks/paint/params/steps/min", 1), "/walks/draw/body/1/times"),
    ("bad_expression", sets("walks/talk/body/0/times", "max tokens"), "/walks/talk/body/0/times"),
    ("bad_expression", sets("walks/talk/body/0/times", "max_tokens and 1"), "/walks/talk/body/0/times"),
    ("unknown_parameter", sets("walks/talk/body/0/times", "max_token"), "/walks/talk/body/0/times"),
    ("unknown_loop", sets("walks/talk/body/0/times", "@loop.index"), "/walks/talk/body/0/times"),
    ("bad_until", sets("walks/talk/body/0/until", "@in.x"), "/walks/talk/body/0/until"),
    ("bad_until", sets("walks/talk/body/0/until", "talker.code"), "/walks/talk/body/0/until"),
    ("unknown_port", sets("walks/talk/body/0/until", "talker.stopp"), "/walks/talk/body/0/until"),
    ("unknown_use", sets("walks/talk/body/0/until", "tolker.stop"), "/walks/talk/body/0/until"),
    ("drop_without_until", drops("walks/write/body/0/until"), "/walks/write/body/0/drop_last"),
    ("bad_when", sets("walks/look/body/0/when", "scale"), "/walks/look/body/0/when"),
    ("bad_expression", sets("walks/look/body/0/when", "scale >"), "/walks/look/body/0/when"),
    ("unknown_parameter", sets("walks/look/body/0/when", "scales > 1"), "/walks/look/body/0/when"),
    ("unknown_loop", sets("walks/look/body/0/when", "@loop.index > 1"), "/walks/look/body/0/when"),
    ("unreachable_use", sets("walks/look/body/0/when", "1 > 2"), "/walks/look/body/0/when"),
    ("unknown_loop", sets("walks/draw/body/1/body/2/when", "@loop.noise > 1"), "/walks/draw/body/1/body/2/when"),
]

EDGES: list[Case] = [
    ("unknown_use", sets("walks/look/edges/-", ["llm.token", "lm.token"]), "/walks/look/edges/2/1"),
    ("unknown_use", sets("walks/look/edges/-", ["eyes.seen", "@out.seen"]), "/walks/look/edges/2/0"),
    ("unknown_use", sets("walks/read/results/token", "lm.token"), "/walks/read/results/token"),
    ("unknown_port", sets("walks/look/edges/-", ["llm.tokens", "@out.tokens"]), "/walks/look/edges/2/0"),
    ("unknown_port", sets("walks/look/edges/-", ["eye.seen", "llm.scene"]), "/walks/look/edges/2/1"),
    ("unknown_port", sets("walks/read/results/token", "llm.tokens"), "/walks/read/results/token"),
    ("unknown_input", sets("walks/look/edges/-", ["@in.foto", "@out.foto"]), "/walks/look/edges/2/0"),
    ("unknown_stream", sets("walks/look/edges/-", ["@stream.x", "@out.x"]), "/walks/look/edges/2/0"),
    ("unknown_loop", sets("walks/draw/edges/9/0", "@loop.noise"), "/walks/draw/edges/9/0"),
    ("unknown_loop", sets("walks/draw/edges/-", ["@loop.index", "painter.index"]), "/walks/draw/edges/13/0"),
    ("bad_reference", sets("walks/look/edges/-", ["@out.x", "@out.x"]), "/walks/look/edges/2/0"),
    ("bad_reference", sets("walks/look/edges/-", ["llm.token", "@in.image"]), "/walks/look/edges/2/1"),
    ("bad_reference", sets("walks/look/results", {"x": "@in.image"}), "/walks/look/results/x"),
    ("between_branches", sets("walks/read/edges/-", ["llm.token", "llm_guide.token"]), "/walks/read/edges/3"),
    ("backward_edge", sets("walks/look/edges/-", ["llm.token", "llm.token"]), "/walks/look/edges/2"),
    (
        "each_without_loop",
        sets("walks/look/edges/-", {"from": "llm.token", "to": "@out.t", "each": True}),
        "/walks/look/edges/2/each",
    ),
    (
        "each_without_loop",
        sets("walks/look/edges/1", {"from": "eye.seen", "to": "llm.seen", "each": True}),
        "/walks/look/edges/1/each",
    ),
    (
        "collect_without_loop",
        sets("walks/look/edges/1", {"from": "eye.seen", "to": "llm.seen", "collect": True}),
        "/walks/look/edges/1/collect",
    ),
    (
        "collect_without_loop",
        sets("walks/read/results/token", {"from": "llm.token", "collect": True}),
        "/walks/read/results/token/collect",
    ),
    ("each_by_outer_loop", sets("walks/nest", NEST), "/walks/nest/edges/0/each"),
    ("each_and_collect", sets("walks/write/edges/3/collect", True), "/walks/write/edges/3/each"),
    ("unconnected_input", drops("walks/look/edges/0"), "/walks/look/body/1"),
    ("fed_twice", sets("walks/look/edges/-", ["@in.image", "eye.image"]), "/walks/look/edges/2/1"),
    ("fed_twice", sets("walks/draw/edges/-", ["llm.velocity", "euler.latents"]), "/walks/draw/edges/13/1"),
    ("fed_twice", sets("walks/draw/edges/-", ["painter.image", "@out.preview"]), "/walks/draw/edges/13/1"),
    ("no_first_value", drops("walks/draw/edges/2"), "/walks/draw/edges/4/1"),
    ("absent_value", sets("walks/draw/edges/6/0", "llm_guide.velocity"), "/walks/draw/edges/6/1"),
    ("type_mismatch", sets("walks/draw/edges/7/0", "llm.token"), "/walks/draw/edges/7"),
]

SHARED: list[Case] = [
    # Two writers of one cache, side by side.
    ("conflicting_state", sets("nodes/llm_guide/states/kv", "main"), "/walks/read/body/1/parallel/1"),
    # Scratch is only read: drawing may share what reading may not.
    (
        "conflicting_state",
        both(
            sets("walks/draw/body/1/body/0/parallel/1", {"use": "llm", "as": "llm_guide"}),
            sets("walks/draw/edges/-", ["noise.latents", "llm_guide.seen"]),
            drops("walks/draw/edges/13"),
            sets("walks/draw/edges/-", ["llm.token", "llm_guide.token"]),
            drops("walks/draw/edges/13"),
            sets("walks/draw/inputs", {"token": "tokens: int[1]"}),
            sets("walks/draw/edges/-", ["@in.token", "llm_guide.token"]),
        ),
        "/walks/draw/body/1/body/0/parallel/1",
    ),
    # A fork writes its target, and reads its source.
    (
        "conflicting_state",
        sets("walks/read/body/1/parallel/-", {"fork": "talk", "into": "main"}),
        "/walks/read/body/1/parallel/2",
    ),
    (
        "conflicting_state",
        sets("walks/read/body/1/parallel/-", {"fork": "main", "into": "talk"}),
        "/walks/read/body/1/parallel/2",
    ),
]
ALSO: Also = {
    "/walks/blank/body": {("unused_walk", "/walks/blank")},
    "/walks/nest/edges/0/each": {("unused_walk", "/walks/nest")},
    "/walks/read/body/1/parallel/1": {("unused_state", "/states/guide")},
    "/walks/look/body/1": {("unused_input", "/walks/look/inputs/image")},
}


@pytest.mark.parametrize(("code", "change", "pointer"), cases(WALKS, EDGES, SHARED))
def test_exactly_this_problem(code: str, change: Change, pointer: str) -> None:
    expect(code, change, pointer, ALSO)


def test_scratch_appends_of_two_branches_read_one_state_together() -> None:
    shared = changed(
        both(
            sets("walks/draw/body/1/body/0/parallel/1", {"use": "llm", "as": "llm_guide"}),
            sets("walks/draw/edges/7", ["llm_guide.velocity", "euler.guide"]),
        )
    )
    assert found(shared) == []


def test_sizes_are_unified_along_a_walk() -> None:
    # 5 wide meets 4 wide over two edges whose ends are both open.
    wide = {"toy.cat": "latents: float[a, b]"}
    catalogue = {**CATALOGUE} | {
        name: Component(name=name, description="", inputs=(port("x", of),), outputs=(port("x", of),), network="toy:Cat")
        for name, of in wide.items()
    }
    made = changed(
        both(
            sets("nodes/cat", {"component": "toy.cat"}),
            sets("walks/draw/inputs", {"wide": "latents: float[2, 5]"}),
            sets("walks/draw/body/-", "cat"),
            sets("walks/draw/body/-", {"use": "painter", "as": "last"}),
            sets("walks/draw/edges/-", ["@in.wide", "cat.x"]),
            sets("walks/draw/edges/-", ["cat.x", "last.latents"]),
            sets("walks/draw/edges/-", ["last.image", "@out.last"]),
        )
    )
    codes = [(p.code, p.pointer) for p in check(made, catalogue).problems]
    assert codes == [
        ("type_mismatch", "/walks/draw/edges/14"),
        ("unbound_input", "/tasks/paint/steps/1/first/0"),
        ("unbound_input", "/tasks/paint/steps/1/first/1"),
    ]
