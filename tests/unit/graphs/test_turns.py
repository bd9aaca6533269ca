"""Conversations sent whole each time: earlier turns are found, pictures too, and the answers are those of a deployment
that computes everything anew."""

import json
from functools import cache
from itertools import count, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from tests.unit.graphs.test_conversations import picture, said, shapes
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn

torch.set_num_threads(1)
QUESTION = {"max_tokens": 12}
NAMES = count()


@cache
def talks(*, keeps: bool, resident: bool = True) -> LocalDeployment:
    graph, placement = codec.load(shapes()), placement_of("shapes_one_cpu")
    return LocalDeployment(graph, placement, threads=1, resident=resident, prefix_cache=keeps)


@cache
def writes(*, keeps: bool) -> LocalDeployment:
    """A language model that is asked by a chat template."""
    document = json.loads(GRAPHS["llm"].read_text())
    document["weights"]["llm"]["source"] = "random:qwen3-tiny:0"
    document["nodes"]["prompt"] = {"component": "text.chat_prompt", "weights": "llm", "params": {"template": "chatml"}}
    document["walks"]["prefill"] |= {
        "inputs": {"chat": "messages"},
        "edges": [["@in.chat", "prompt.messages"], *document["walks"]["prefill"]["edges"][1:]],
    }
    task = document["tasks"]["complete"]
    task["inputs"] = {"messages": {"modality": "messages"}}
    task["steps"][0]["with"] = {"chat": "@task.messages"}
    return LocalDeployment(codec.load(document), on_cpus("llm_one_gpu"), threads=1, prefix_cache=keeps)


def ask(local: LocalDeployment, task: str, turns: list[Turn], **params: Any) -> tuple[str, int, int]:
    """-> the answer, the tokens read, and those of them that were found."""
    run = f"run {next(NAMES)}"
    local.submit(run, task, params, {"messages": [Conversation(tuple(turns))]})
    local.run()
    assert run not in local.failed
    local.release(run)
    [end] = local.ends.pop(run)
    for engine in local.engines.values():
        engine.states.audit()
    return "".join(local.outputs.pop(run)["text"]), end.read, end.found


def converse(task: str, locals_: list[LocalDeployment], asked: list[Turn], **params: Any) -> list[list[int]]:
    """Both deployments get the same history. -> for each turn the tokens read, and those that the first one found."""
    turns, figures = list[Turn](), list[list[int]]()
    for turn in asked:
        turns.append(turn)
        found = [ask(local, task, turns, **params) for local in locals_]
        assert len({text for text, _, _ in found}) == 1
        assert len({read for _, read, _ in found}) == 1
        assert found[-1][2] == 0, "the naive one finds nothing"
        figures.append(list(found[0][1:]))
        turns.append(said("assistant", found[0][0]))
    return figures


@pytest.mark.parametrize("resident", [True, False])
def test_a_conversation_about_pictures_is_found(resident: bool) -> None:
    both = [talks(keeps=True, resident=resident), talks(keeps=False, resident=resident)]
    asked = [
        said("user", picture("red"), "what is this?"),
        said("user", "and why?"),
        said("user", picture("blue"), "?"),
    ]
    figures = converse("chat", both, [*asked, said("user", "say it again")], temperature=0.0, **QUESTION)
    for (read, _), (_, found) in pairwise(figures):
        # All that was read the turn before is found, and the answer but for how its last characters are written.
        assert found >= read
    assert figures[3][1] > 2 * figures[1][1] > 0


def test_a_conversation_by_a_template_is_found() -> None:
    asked = [said("user", f"question {i}, which goes on for some words") for i in range(5)]
    figures = converse("complete", [writes(keeps=True), writes(keeps=False)], asked, temperature=0.0, **QUESTION)
    for (read, _), (more, found) in pairwise(figures):
        assert read // 16 * 16 <= found < more
    assert figures[-1][0] - figures[-1][1] < 120


def test_a_picture_that_comes_again_is_found_behind_the_same_words_only() -> None:
    local = talks(keeps=True)
    red, blue = picture("green"), picture("yellow")
    _, read, found = ask(local, "chat", [said("user", "look:", red)], max_tokens=1)
    assert found == 0
    words = read - 66
    for turns, wanted in (
        ([said("user", "look:", red)], read),
        ([said("user", "look!", red)], 0),
        ([said("user", "look:", blue)], words),
        ([said("user", red, "look:")], 0),
    ):
        assert ask(local, "chat", turns, max_tokens=1) == (
            *ask(talks(keeps=False), "chat", turns, max_tokens=1)[:2],
            wanted,
        )


def drawn(local: LocalDeployment, run: str, prompt: list[str], scale: float) -> tuple[list[bytes], int]:
    """-> the picture, and the tokens that were found."""
    local.submit(run, "text_to_image", {"steps": 3, "cfg_text_scale": scale, "cfg_img_scale": 2.0}, {"prompt": prompt})
    local.run()
    assert run not in local.failed
    local.release(run)
    return local.outputs.pop(run)["image"], local.ends.pop(run)[0].found


def test_guidance_contexts_are_found_and_draw_the_same() -> None:
    keeps, naive = talks(keeps=True), talks(keeps=False)
    words = ["a red circle on white, and more", "left of a blue square"]
    for run, scale in (("guided", 4.0), ("again", 4.0), ("plain", 1.0)):
        image, found = drawn(keeps, run, words, scale)
        assert (image, 0) == drawn(naive, run, words, scale)
        assert (found > 50) == (run != "guided"), run
    keeps.engines[keeps.plan.ranks[0].rank].states.audit()


turn_of = st.lists(
    st.one_of(
        st.sampled_from(["hi", "tell me more about it", "a" * 40]),
        st.sampled_from(["red", "blue"]).map(picture),
    ),
    min_size=1,
    max_size=3,
)


@cache
def scarce() -> LocalDeployment:
    """Pages for about two conversations."""
    return LocalDeployment(codec.load(shapes()), placement_of("shapes_one_cpu"), 1, 160_000)


@given(st.lists(st.lists(turn_of, min_size=1, max_size=3), min_size=1, max_size=3))
@settings(max_examples=8, deadline=None)
def test_any_conversations_are_answered_as_without_kept_pages(conversations: list[list[Any]]) -> None:
    for asked in conversations:
        turns = [said("user", *parts) for parts in asked]
        converse("chat", [scarce(), talks(keeps=False)], turns, temperature=0.0, max_tokens=6)
