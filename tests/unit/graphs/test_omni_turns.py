"""Qwen3-Omni's conversations sent whole each time: what earlier turns said is found, media too, and the answers are
those of a deployment that computes everything anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.golden.qwen3_omni import whole
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import GREEDY, ONE, TWO, on_cpus, part
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn, TurnPart

ASKED: Sequence[Sequence[whole.Part]] = (
    ["Look: ", (64, 96), "what is it?"],
    ["And this? ", 9000],
    [whole.BRIEF, "Or here?"],
    ["Why?"],
)
"""The user's turns of a conversation."""


def deployed(name: str, *, keeps: bool) -> LocalDeployment:
    text = GRAPHS["qwen3_omni"].read_text().replace("random:qwen3-omni-30b-a3b:0", "random:qwen3-omni-tiny:0")
    return LocalDeployment(codec.load(text.encode()), on_cpus(name), threads=1, prefix_cache=keeps)


def ask(local: LocalDeployment, run: str, turns: Sequence[Turn], outputs: Sequence[str]) -> tuple[Any, int, int]:
    """-> the outputs, the tokens that the thinker read, and those of them that were found."""
    params = {**GREEDY, "every": 2}
    local.submit(run, "converse", params, {"messages": [Conversation(tuple(turns))]}, outputs=outputs)
    local.run()
    assert not local.failed
    local.release(run)
    ends = local.ends.pop(run)
    for engine in local.engines.values():
        engine.states.audit()
    made = local.outputs.pop(run)
    return {name: made[name] for name in outputs}, sum(end.read for end in ends), sum(end.found for end in ends)


def converse(both: Sequence[LocalDeployment], outputs: Sequence[str]) -> list[tuple[int, int]]:
    """-> for each turn the tokens that were read, and those of them that the first deployment found."""
    turns, figures = list[Turn](), list[tuple[int, int]]()
    for index, asked in enumerate(ASKED):
        turns.append(Turn("user", tuple(map(part, asked))))
        (made, read, found), (wanted, whole_, none) = [ask(one, f"turn {index}", turns, outputs) for one in both]
        assert made == wanted
        assert (read, none) == (whole_, 0)
        figures.append((read, found))
        turns.append(Turn("assistant", (TurnPart("text", "".join(made["text"])),)))
    return figures


@pytest.mark.parametrize("name", [ONE, TWO])
def test_a_conversation_in_text_is_found_with_its_media(name: str) -> None:
    figures = converse([deployed(name, keeps=True), deployed(name, keeps=False)], ["text"])
    for (read, _), (_, found) in pairwise(figures):
        # All that was read the turn before, but for the mark that begins the answer.
        assert found >= read - 4


def test_media_are_read_again_where_the_talker_listens() -> None:
    figures = converse([deployed(ONE, keeps=True), deployed(ONE, keeps=False)], ["text", "audio"])
    assert all(found > 0 for _, found in figures[1:])
