"""Streams, tasks, and unused parts: a document for each problem triggers exactly it, at the right place."""

import copy
from typing import Any

import pytest

from tests.unit.graph.changes import Also, Case, Change, both, cases, changed, drops, expect, found, problems, put, sets
from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.graph.check import check

STREAMS: list[Case] = [
    ("duplicate_name", both(sets("streams/1/name", "prompt"), drops("walks/talk/edges/1")), "/streams/1/name"),
    ("unknown_walk", sets("streams/2/walks/-", "tolk"), "/streams/2/walks/1"),
    ("unknown_use", sets("streams/2/from", "tolker.code"), "/streams/2/from"),
    ("unknown_port", sets("streams/2/from", "talker.coda"), "/streams/2/from"),
    ("bad_reference", sets("streams/2/from", "@in.code"), "/streams/2/from"),
    ("policy_unmet", sets("streams/2/chunks/first", 26), "/streams/2/chunks/first"),
    (
        "policy_unmet",
        sets("streams/2/chunks", {"policy": "sliding", "window": 4, "stride": 5}),
        "/streams/2/chunks/stride",
    ),
    (
        "policy_unmet",
        sets("streams/2/chunks", {"policy": "fixed", "size": 4, "first": 5}),
        "/streams/2/chunks/first",
    ),
    ("policy_unmet", sets("streams/1/chunks", {"policy": "whole"}), "/streams/1/chunks"),
    ("policy_unmet", sets("nodes/vocoder/component", "toy.framed"), "/streams/2/chunks"),
    (
        "policy_unmet",
        sets("streams/2/chunks", {"policy": "fixed", "size": 4, "continue_after_done": True}),
        "/streams/2/chunks/continue_after_done",
    ),
    (
        "unused_stream",
        sets("streams/-", {"name": "x", "from": "llm.hidden", "walks": ["read"], "chunks": {"policy": "whole"}}),
        "/streams/3",
    ),
    ("needs_per_chunk", drops("tasks/speak/steps/vocoder/0/per"), "/tasks/speak/steps/vocoder/0"),
    ("chunk_without_stream", sets("tasks/paint/steps/1/first/1/per", "chunk"), "/tasks/paint/steps/1/first/1/per"),
    (
        "same_steps",
        lambda doc: put(
            doc, "tasks/speak/steps", [s for lane in doc["tasks"]["speak"]["steps"].values() for s in lane]
        ),
        "/tasks/speak/steps/2",
    ),
    (
        "same_partition",
        both(
            sets("nodes/pad", {"component": "toy.noise", "params": {"cells": 1}}),
            *(sets(f"walks/{walk}/body/-", "pad") for walk in ("talk", "sound")),
            *(sets(f"walks/{walk}/edges/-", ["pad.latents", "@out.pad"]) for walk in ("talk", "sound")),
        ),
        "/streams/2",
    ),
    (
        "stream_read_twice",
        both(
            sets("nodes/other", {"component": "toy.vocoder"}),
            sets(
                "walks/other",
                {"body": ["other"], "edges": [["@stream.codes", "other.codes"], ["other.audio", "@out.x"]]},
            ),
            sets("tasks/speak/steps/other", [{"walk": "other", "per": "chunk"}]),
        ),
        "/streams/2",
    ),
    (
        "partition_in_two_lists",
        sets("tasks/speak/steps/more", [{"walk": "write", "as": "on", "with": {"token": "write.last"}}]),
        "/tasks/speak/steps/more/0",
    ),
    (
        "per_chunk_loop",
        sets("walks/sound/body", [{"loop": "twice", "times": "2", "body": ["vocoder"]}]),
        "/walks/sound/edges/1",
    ),
    (
        "per_chunk_loop",
        both(
            sets("walks/sound/inputs", {"extra": "codes"}),
            sets("walks/sound/body", [{"loop": "twice", "times": "2", "body": ["second"]}, "vocoder"]),
            sets("walks/talk/results", {"all": {"from": "talker.code", "collect": True}}),
            sets("nodes/second", {"component": "toy.vocoder"}),
            sets("walks/sound/edges/-", {"from": "@in.extra", "to": "second.codes", "each": True}),
            sets("walks/sound/edges/-", {"from": "second.audio", "to": "@out.more", "each": True}),
            sets("tasks/speak/steps/vocoder/0/with", {"extra": "talk.all"}),
        ),
        "/walks/sound/edges/2",
    ),
    (
        "two_chunked_streams",
        both(
            sets("streams/-", {**document()["streams"][2], "name": "more"}),
            sets("walks/sound/body/-", {"use": "vocoder", "as": "second"}),
            sets("walks/sound/edges/-", ["@stream.more", "second.codes"]),
            sets("walks/sound/edges/-", ["second.audio", "@out.more"]),
        ),
        "/tasks/speak/steps/vocoder/0/per",
    ),
    (
        "stream_without_producer",
        both(drops("tasks/speak/steps/talker")),
        "/tasks/speak/steps/vocoder/0",
    ),
]

TASKS: list[Case] = [
    ("unknown_modality", sets("tasks/paint/inputs/image/modality", "picture"), "/tasks/paint/inputs/image/modality"),
    ("duplicate_name", sets("tasks/paint/params/image", {"type": "string"}), "/tasks/paint/inputs/image"),
    ("duplicate_name", sets("tasks/paint/outputs/-", "image"), "/tasks/paint/outputs/2"),
    ("bad_name", sets("tasks/paint/params/max-steps", {"type": "integer"}), "/tasks/paint/params/max-steps"),
    ("bad_name", sets("tasks/paint/params/seed", {"type": "integer"}), "/tasks/paint/params/seed"),
    ("bad_bounds", sets("tasks/paint/params/steps/max", 1), "/tasks/paint/params/steps/max"),
    ("bad_bounds", sets("tasks/paint/params/guided/min", 1), "/tasks/paint/params/guided/min"),
    ("bad_value", sets("tasks/paint/params/steps/default", 1), "/tasks/paint/params/steps/default"),
    ("bad_value", sets("tasks/paint/params/steps/default", 2.5), "/tasks/paint/params/steps/default"),
    ("bad_value", sets("tasks/paint/params/steps/choices", [10, 20]), "/tasks/paint/params/steps/default"),
    ("bad_value", sets("tasks/paint/params/steps/choices", [50, "many"]), "/tasks/paint/params/steps/choices/1"),
    ("bad_value", sets("tasks/speak/inputs/prompt/default", 3), "/tasks/speak/inputs/prompt/default"),
    ("bad_value", sets("tasks/paint/inputs/image/default", "x"), "/tasks/paint/inputs/image/default"),
    ("unknown_walk", sets("tasks/paint/steps/1/first/1/walk", "drow"), "/tasks/paint/steps/1/first/1/walk"),
    ("unknown_input", sets("tasks/speak/steps/thinker/0/with/txt", "x"), "/tasks/speak/steps/thinker/0/with/txt"),
    ("unbound_input", drops("tasks/paint/steps/0/image/0/with"), "/tasks/paint/steps/0/image/0"),
    ("bad_when", sets("tasks/paint/steps/1/first/0/when", "steps"), "/tasks/paint/steps/1/first/0/when"),
    ("unknown_parameter", sets("tasks/paint/steps/1/first/0/when", "guide"), "/tasks/paint/steps/1/first/0/when"),
    ("unknown_loop", sets("tasks/paint/steps/1/first/0/when", "@loop.index > 1"), "/tasks/paint/steps/1/first/0/when"),
    ("unreachable_step", sets("tasks/paint/steps/1/first/0/when", "false"), "/tasks/paint/steps/1/first/0/when"),
    ("unreachable_step", drops("tasks/paint/steps/1/first/0/when"), "/tasks/paint/steps/1/first/1"),
    ("bad_binding", sets("tasks/speak/steps/thinker/0/with/text", "@prompt"), "/tasks/speak/steps/thinker/0/with/text"),
    ("wrong_modality", sets("tasks/speak/steps/thinker/1/with/token", 3), "/tasks/speak/steps/thinker/1/with/token"),
    (
        "wrong_modality",
        sets("tasks/paint/steps/0/image/0/with/image", "@task.steps"),
        "/tasks/paint/steps/0/image/0/with/image",
    ),
    (
        "wrong_modality",
        sets("walks/read/results/token", "llm.hidden"),
        "/tasks/speak/steps/thinker/1/with/token",
    ),
    (
        "part_outside_for",
        sets("tasks/speak/steps/thinker/0/with/text", "@part"),
        "/tasks/speak/steps/thinker/0/with/text",
    ),
    (
        "many_outside_for",
        sets("tasks/speak/inputs/prompt/many", True),
        "/tasks/speak/steps/thinker/0/with/text",
    ),
    ("absent_value", sets("tasks/speak/inputs/prompt/optional", True), "/tasks/speak/steps/thinker/0/with/text"),
    (
        "absent_value",
        both(
            sets("walks/write/results/text", "detokenizer.text"),
            sets("tasks/speak/steps/thinker/1/when", "context > 20"),
            sets("tasks/speak/steps/thinker/-", {"walk": "read", "as": "more", "with": {"text": "write.text"}}),
        ),
        "/tasks/speak/steps/thinker/2/with/text",
    ),
    (
        "unknown_input",
        both(
            sets("tasks/speak/steps/thinker/0/with/text", "@task.promt"),
            sets("tasks/speak/steps/thinker/-", {"walk": "read", "as": "again", "with": {"text": "@task.prompt"}}),
        ),
        "/tasks/speak/steps/thinker/0/with/text",
    ),
    (
        "unknown_result",
        sets("tasks/speak/steps/thinker/1/with/token", "read.tokn"),
        "/tasks/speak/steps/thinker/1/with/token",
    ),
    (
        "unknown_result",
        sets("tasks/speak/steps/thinker/1/with/token", "red.token"),
        "/tasks/speak/steps/thinker/1/with/token",
    ),
    (
        "used_before_produced",
        sets("tasks/speak/steps/thinker/1/with/token", "write.last"),
        "/tasks/speak/steps/thinker/1/with/token",
    ),
    ("input_without_steps", drops("tasks/paint/steps/0/image"), "/tasks/paint/inputs/image"),
    ("unreachable_step", drops("tasks/paint/inputs/image"), "/tasks/paint/steps/0/image"),
    ("output_never_sent", sets("tasks/paint/outputs/-", "video"), "/tasks/paint/outputs/2"),
    ("no_outputs", sets("tasks/paint/outputs", []), "/tasks/paint/outputs"),
    # It has a session, whose states none of its Walks changes.
    ("no_outputs", sets("tasks/speak/outputs", []), "/tasks/speak/outputs"),
    (
        "no_outputs",
        both(sets("tasks/paint/outputs", []), sets("states/main/scope", "session")),
        "/tasks/paint/outputs",
    ),
    ("wrong_modality", sets("walks/read/edges/-", ["llm.token", "@out.text"]), "/tasks/speak/outputs/0"),
]
ALSO: Also = {
    "/tasks/paint/outputs": {("no_session", "/states/main/scope")},
    "/tasks/paint/steps/1/first/0/when": {("unused_parameter", "/tasks/paint/params/guided")},
    "/tasks/paint/steps/1/first/1": {("unused_parameter", "/tasks/paint/params/guided")},
    "/tasks/paint/params/seed": {("unused_parameter", "/tasks/paint/params/seed")},
    "/tasks/speak/steps/2": {("same_steps", "/tasks/speak/steps/3")},
    "/tasks/speak/steps/vocoder/0": {("unused_walk", "/walks/talk")},
    "/tasks/paint/inputs/image": {("unused_walk", "/walks/look")},
}


@pytest.mark.parametrize(("code", "change", "pointer"), cases(STREAMS, TASKS))
def test_exactly_this_problem(code: str, change: Change, pointer: str) -> None:
    expect(code, change, pointer, ALSO)


UNUSED: list[Case] = [
    ("unused_node", sets("nodes/spare", {"component": "toy.eye"}), "/nodes/spare"),
    ("unused_weights", sets("weights/spare", {"family": "toy", "source": "starter:x"}), "/weights/spare"),
    ("unused_walk", lambda doc: put(doc, "walks/spare", copy.deepcopy(doc["walks"]["draw"])), "/walks/spare"),
    ("unused_input", sets("walks/draw/inputs", {"x": "latents"}), "/walks/draw/inputs/x"),
    ("unused_parameter", sets("tasks/paint/params/tempo", {"type": "number"}), "/tasks/paint/params/tempo"),
    (
        "no_effect",
        both(
            sets("walks/look/body/-", {"use": "eye", "as": "other"}),
            sets("walks/look/edges/-", ["@in.image", "other.image"]),
        ),
        "/walks/look/body/3",
    ),
]


@pytest.mark.parametrize(("code", "change", "pointer"), cases(UNUSED))
def test_what_serves_nothing_is_a_warning(code: str, change: Change, pointer: str) -> None:
    report = check(changed(change), CATALOGUE)
    assert [(p.code, p.pointer, p.severity) for p in report.problems] == [(code, pointer, "warning")]
    assert report.ok


def test_a_chunk_of_the_length_that_a_port_takes() -> None:
    framed = changed(
        both(
            sets("nodes/vocoder/component", "toy.framed"),
            sets("streams/2/chunks", {"policy": "left_context", "chunk": 5, "context": 2}),
        )
    )
    assert found(framed) == []


def test_a_task_that_changes_its_session_needs_no_outputs() -> None:
    kept = both(sets("states/main/scope", "session"), sets("tasks/speak/outputs", []))
    assert ("no_outputs", "/tasks/speak/outputs") not in found(changed(kept))


def test_a_task_without_outputs_is_told_what_it_could_list() -> None:
    (problem,) = (p for p in problems(changed(sets("tasks/paint/outputs", []))) if p.code == "no_outputs")
    assert problem.severity == "error"
    assert "a run would do nothing; list one of `image`, `preview`" in problem.message


@pytest.mark.parametrize(
    ("declared", "at"),
    [
        ({"modality": "text", "default": "a", "optional": True}, "optional"),
        ({"modality": "text", "default": [1]}, "default"),
        ({"modality": "state", "default": "a"}, "default"),
        ({"modality": "flag", "default": 1}, "default"),
        ({"modality": "scalar", "default": True}, "default"),
        ({"modality": "scalar", "default": [1, 2]}, "default"),
        ({"modality": "bytes", "default": "a"}, "default"),
        ({"modality": "state", "default": [1, 2.5]}, None),
        ({"modality": "scalar", "default": 0}, None),
        ({"modality": "flag", "default": False}, None),
        ({"modality": "text", "default": ""}, None),
    ],
)
def test_a_default_fits_its_input(declared: dict[str, Any], at: str | None) -> None:
    problems = found(changed(sets("tasks/speak/inputs/more", declared)))
    told = [pointer for code, pointer in problems if code == "bad_value"]
    assert told == ([f"/tasks/speak/inputs/more/{at}"] if at else [])
