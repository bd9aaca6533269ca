"""Malformed documents, nodes and states: a document for each problem triggers exactly it, at the right place."""

import pytest

from tests.unit.graph.changes import Also, Case, Change, both, cases, changed, drops, expect, problems, sets

STRUCTURE: list[Case] = [
    ("unknown_key", sets("nodez", {}), "/nodez"),
    ("unknown_key", sets("nodes/llm/wieghts", "toy"), "/nodes/llm/wieghts"),
    ("unknown_key", sets("walks/draw/body/1/tims", "3"), "/walks/draw/body/1/tims"),
    ("unknown_key", sets("streams/2/chunks/windows", 3), "/streams/2/chunks/windows"),
    ("unknown_key", sets("tasks/paint/params/steps/maximum", 3), "/tasks/paint/params/steps/maximum"),
    ("missing_key", drops("name"), ""),
    ("missing_key", drops("nodes/eye/component"), "/nodes/eye"),
    ("missing_key", drops("walks/sound/body"), "/walks/sound"),
    ("missing_key", drops("tasks/speak/outputs"), "/tasks/speak"),
    ("wrong_type", sets("layout", 3), "/layout"),
    ("wrong_type", sets("nodes/eye", "toy.eye"), "/nodes/eye"),
    ("wrong_type", sets("nodes/llm/params/time", [1]), "/nodes/llm/params/time"),
    ("wrong_type", sets("walks/write/body/0/drop_last", "yes"), "/walks/write/body/0/drop_last"),
    ("wrong_type", sets("walks/write/body/0/times", 3), "/walks/write/body/0/times"),
    ("wrong_type", sets("walks/read/edges/0", ["@in.text"]), "/walks/read/edges/0"),
    ("wrong_type", sets("walks/write/edges/3/each", 1), "/walks/write/edges/3/each"),
    ("wrong_type", sets("streams/2/chunks/chunk", "5"), "/streams/2/chunks/chunk"),
    ("wrong_type", sets("tasks/paint/steps/0/text/0/with/text", None), "/tasks/paint/steps/0/text/0/with/text"),
    ("bad_name", sets("nodes/two words", {"component": "toy.eye"}), "/nodes/two words"),
    ("bad_name", sets("nodes/eye/component", "eye"), "/nodes/eye/component"),
    ("bad_name", sets("walks/read/body/1/parallel/1", "9lives"), "/walks/read/body/1/parallel/1"),
    ("bad_reference", sets("walks/read/edges/1", ["tokenizer", "llm.ids"]), "/walks/read/edges/1/0"),
    ("bad_reference", sets("walks/read/results/token", "llm"), "/walks/read/results/token"),
    ("bad_value", sets("weights/toy/source", "/etc/passwd"), "/weights/toy/source"),
    ("bad_value", sets("weights/toy/source", f"random:x:{10**18}"), "/weights/toy/source"),
    ("bad_value", sets("states/main/kind", "paged"), "/states/main/kind"),
    ("bad_value", sets("format", "walkgraph/graph@2"), "/format"),
    ("bad_value", sets("streams/2/chunks/policy", "lookback"), "/streams/2/chunks"),
    ("bad_value", sets("streams/2/credits", 0), "/streams/2/credits"),
    ("bad_value", sets("walks/read/body/1/parallel", []), "/walks/read/body/1/parallel"),
    ("bad_value", sets("tasks/speak/session/ttl_seconds", 10**6), "/tasks/speak/session/ttl_seconds"),
    ("bad_item", sets("walks/read/body/1/parallel/1", {"node": "llm_guide"}), "/walks/read/body/1/parallel/1"),
    ("bad_item", sets("walks/read/body/1/parallel/1", 7), "/walks/read/body/1/parallel/1"),
    ("bad_item", sets("tasks/paint/steps/1", {"wolk": "draw"}), "/tasks/paint/steps/1"),
    ("loop_without_bound", drops("walks/talk/body/0/times"), "/walks/talk/body/0"),
    ("bad_number", sets("layout/x", float("nan")), "/layout/x"),
    ("bad_number", sets("streams/2/credits", 2**63), "/streams/2/credits"),
    ("bad_text", sets("description", "\ud800"), "/description"),
    ("too_large", sets("description", "x" * 20_001), "/description"),
]

NODES: list[Case] = [
    ("unknown_component", sets("nodes/eye/component", "toy.ear"), "/nodes/eye/component"),
    ("former_name", sets("nodes/eye/component", "toy.retina"), "/nodes/eye/component"),
    ("component_unavailable", sets("nodes/wide", {"component": "toy.wide"}), "/nodes/wide/component"),
    ("missing_weights", drops("nodes/llm_guide/weights"), "/nodes/llm_guide"),
    ("unknown_weights", sets("nodes/llm_guide/weights", "toys"), "/nodes/llm_guide/weights"),
    ("needless_weights", sets("nodes/eye/weights", "toy"), "/nodes/eye/weights"),
    ("wrong_family", sets("weights/toy/family", "lego"), "/nodes/llm/weights"),
    (
        "wrong_family",
        both(
            sets("weights/mute", {"family": "any", "source": "checkpoint:any"}),
            sets("nodes/tokenizer/weights", "mute"),
        ),
        "/nodes/tokenizer/weights",
    ),
    ("not_deterministic", sets("nodes/noise/kept", "own"), "/nodes/noise/kept"),
    ("bad_value", sets("nodes/noise/kept", "mine"), "/nodes/noise/kept"),
    ("unknown_slot", sets("nodes/llm/states/kw", "main"), "/nodes/llm/states/kw"),
    ("unknown_state", sets("nodes/llm_guide/states/kv", "guise"), "/nodes/llm_guide/states/kv"),
    ("wrong_state_kind", sets("nodes/noise/states/rng", "main"), "/nodes/noise/states/rng"),
    ("missing_state", sets("nodes/talker/states", {}), "/nodes/talker/states"),
    ("missing_state", drops("nodes/talker/states"), "/nodes/talker"),
    ("unknown_param", sets("nodes/euler/params/scael", 1.0), "/nodes/euler/params/scael"),
    ("missing_param", sets("nodes/noise/params", {}), "/nodes/noise/params"),
    ("bad_param", sets("nodes/noise/params/cells", 65), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/noise/params/cells", 0), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/noise/params/cells", 2.5), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/noise/params/cells", "16"), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/noise/params/cells", True), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/euler/params/renorm", "locally"), "/nodes/euler/params/renorm"),
    ("bad_param", sets("nodes/noise/params/cells", "=scale"), "/nodes/noise/params/cells"),
    ("bad_param", sets("nodes/noise/params/cells", "=steps + 100"), "/nodes/noise/params/cells"),
    ("bounds_differ", sets("nodes/noise/params/cells", "=steps"), "/nodes/noise/params/cells"),
    ("bad_expression", sets("nodes/noise/params/cells", "=steps +"), "/nodes/noise/params/cells"),
    ("bad_expression", sets("nodes/noise/params/cells", "=guided + 1"), "/nodes/noise/params/cells"),
    ("unknown_parameter", sets("nodes/noise/params/cells", "=stepz"), "/nodes/noise/params/cells"),
    ("unknown_parameter", sets("nodes/llm/params/time", "=flow_time(0, stepz, 1)"), "/nodes/llm/params/time"),
    ("unknown_parameter", sets("nodes/llm/params/time", "=@loop.denoize / 10"), "/nodes/llm/params/time"),
    ("unknown_parameter", sets("nodes/noise/params/cells", "=@loop.denoise"), "/nodes/noise/params/cells"),
]

STATES: list[Case] = [
    ("missing_capacity", drops("states/main/capacity"), "/states/main"),
    ("needless_capacity", sets("states/dice/capacity", "3"), "/states/dice/capacity"),
    ("unknown_parameter", sets("states/main/capacity", "contexts"), "/states/main/capacity"),
    ("unknown_parameter", sets("states/main/width", "samples"), "/states/main/width"),
    ("unknown_loop", sets("states/main/capacity", "@loop.denoise"), "/states/main/capacity"),
    ("bad_size", sets("states/main/capacity", "context / 2"), "/states/main/capacity"),
    ("bad_size", sets("states/main/width", "0"), "/states/main/width"),
    ("bad_expression", sets("states/main/capacity", "context *"), "/states/main/capacity"),
    ("unused_state", sets("states/spare", {"kind": "rng"}), "/states/spare"),
    ("iteration_outside_loop", sets("states/dice/scope", "iteration"), "/states/dice/scope"),
    ("iteration_of_one_use", sets("states/talk/scope", "iteration"), "/states/talk/scope"),
    (
        "state_never_written",
        both(drops("walks/read/edges/2"), drops("walks/read/body/1/parallel/1"), drops("walks/look/body/0")),
        "/states/guide",
    ),
    ("no_session", sets("states/main/scope", "session"), "/states/main/scope"),
]
ALSO: Also = {
    "/nodes/wide/component": {("unused_node", "/nodes/wide")},
    "/nodes/noise/states/rng": {("unused_state", "/states/dice")},
    "/nodes/talker/states": {("unused_state", "/states/talk")},
    "/nodes/talker": {("unused_state", "/states/talk")},
    "/nodes/llm_guide/states/kv": {("unused_state", "/states/guide")},
    "/walks/read/body/1/parallel/1": {("unused_state", "/states/guide")},
    "/nodes/llm/weights": {("wrong_family", "/nodes/llm_guide/weights")},
}


@pytest.mark.parametrize(("code", "change", "pointer"), cases(STRUCTURE, NODES, STATES))
def test_exactly_this_problem(code: str, change: Change, pointer: str) -> None:
    expect(code, change, pointer, ALSO)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drops("nodes/tokenizer/weights"), "reads the tokenizer of a family's weights; set `weights` to `toy`"),
        (drops("nodes/llm/weights"), "reads weights of family `toy`; set `weights` to `toy`"),
        (
            both(drops("weights/toy"), drops("nodes/tokenizer/weights")),
            "set `weights` to an entry of the graph with family `lego` or `toy`",
        ),
    ],
)
def test_what_lacks_weights_is_told_which_would_do(change: Change, words: str) -> None:
    assert any(words in problem.message for problem in problems(changed(change)))
