"""`check` as a whole: anything may be given, what is broken hides nothing else, and messages lead on."""

import pytest

from tests.unit.graph.changes import Change, both, changed, found, problems, sets
from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.graph.check import check
from walkgraph.graph.codec import dump, load


def test_the_document_has_no_problem() -> None:
    report = check(document(), CATALOGUE)
    assert report.problems == ()
    assert report.ok
    assert report.graph == load(document())


@pytest.mark.parametrize("value", [None, True, 3, 1.5, "graph", [], ["a"], {1, 2}, object(), {1: 2}, {"a": {"b": {3}}}])
def test_anything_may_be_given(value: object) -> None:
    report = check(value, CATALOGUE)
    assert report.errors
    assert not report.ok
    assert report.graph is None


def test_a_graph_is_judged_by_its_dump() -> None:
    broken = changed(sets("walks/look/edges/1", ["eye.nothing", "llm.seen"]))
    assert problems(load(broken)) == problems(dump(load(broken)))
    assert found(load(broken)) == [("unknown_port", "/walks/look/edges/1/0")]


def test_a_broken_node_does_not_hide_the_problems_of_walks() -> None:
    broken = changed(
        both(
            sets("nodes/llm", {"component": 3}),
            sets("walks/look/edges/0/1", "eye.picture"),
            sets("walks/talk/body/0/times", "max_token"),
            sets("tasks/paint/outputs/-", "video"),
        )
    )
    assert sorted(found(broken)) == [
        ("output_never_sent", "/tasks/paint/outputs/2"),
        ("unconnected_input", "/walks/look/body/1"),
        ("unknown_parameter", "/walks/talk/body/0/times"),
        ("unknown_port", "/walks/look/edges/0/1"),
        ("wrong_type", "/nodes/llm/component"),
    ]


@pytest.mark.parametrize(
    ("change", "root"),
    [
        (sets("nodes/eye", 3), ("wrong_type", "/nodes/eye")),
        (sets("nodes/llm", {}), ("missing_key", "/nodes/llm")),
        (sets("states/main", "kv"), ("wrong_type", "/states/main")),
        (sets("weights/toy", {"family": "toy"}), ("missing_key", "/weights/toy")),
        (sets("walks/read", []), ("wrong_type", "/walks/read")),
        (sets("walks/read/body", {}), ("wrong_type", "/walks/read/body")),
        (sets("walks/read/body/0", 5), ("bad_item", "/walks/read/body/0")),
        (sets("walks/read/edges", {}), ("wrong_type", "/walks/read/edges")),
        (sets("walks/read/edges/0", ["@in.text"]), ("wrong_type", "/walks/read/edges/0")),
        (sets("walks/read/inputs", "text"), ("wrong_type", "/walks/read/inputs")),
        (sets("walks/read/results", 5), ("wrong_type", "/walks/read/results")),
        (sets("walks/write/body/0/until", "stop"), ("bad_reference", "/walks/write/body/0/until")),
        (sets("streams/2/from", 5), ("wrong_type", "/streams/2/from")),
        (sets("tasks/speak", 5), ("wrong_type", "/tasks/speak")),
        (sets("tasks/speak/params", 5), ("wrong_type", "/tasks/speak/params")),
        (sets("tasks/speak/params/max_tokens", 5), ("wrong_type", "/tasks/speak/params/max_tokens")),
        (sets("tasks/speak/inputs/prompt", 5), ("wrong_type", "/tasks/speak/inputs/prompt")),
        (sets("tasks/speak/steps", 5), ("wrong_type", "/tasks/speak/steps")),
        (sets("tasks/speak/steps/talker/0", 5), ("bad_item", "/tasks/speak/steps/talker/0")),
        (sets("nodes/eye/component", "toy.ear"), ("unknown_component", "/nodes/eye/component")),
    ],
)
def test_only_the_root_cause_is_reported(change: Change, root: tuple[str, str]) -> None:
    assert found(changed(change)) == [root]


def test_messages_name_the_nearest_match() -> None:
    (problem,) = problems(changed(sets("nodes/eye/component", "toy.eyes")))
    assert problem.message == "no component `toy.eyes`; did you mean `toy.eye`?"
    (problem,) = problems(changed(sets("nodes/llm/wieghts", "toy")))
    assert problem.message == "`wieghts` is not a key of a node; did you mean `weights`?"


def test_keys_are_escaped_in_pointers() -> None:
    assert found(changed(sets("layuot~", 3)))[0] == ("unknown_key", "/layuot~0")
    made = document()
    made["a/b"] = 1
    assert found(made) == [("unknown_key", "/a~1b")]
