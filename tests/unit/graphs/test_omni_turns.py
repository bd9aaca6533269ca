"""Qwen3-Omni's conversations sent whole each time: what earlier turns said is found, media too, and the answers are
those of a deployment that computes everything anew."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from tests.golden.qwen3_omni import whole
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import GREEDY, ONE, TWO, on_cpus, part
from walkgraph.abi.states import States
from walkgraph.architectures.language.joined import Unread
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.models.qwen3_omni.thinker.operators import Thinker

ASKED: Sequence[Sequence[whole.Part]] = (
    ["Look: ", (64, 96), "what is it?"],
    ["And this? ", 9000],
    [whole.BRIEF, "Or here?"],
    ["Why?"],
)
"""The user's turns of a conversation."""
THINKER, TALKER = 0, 1
"""Ranks, where there are two."""
OPENING = 8
"""Rows that the talker reads behind the user's turns."""


def deployed(name: str, *, keeps: bool) -> LocalDeployment:
    text = GRAPHS["qwen3_omni"].read_text().replace("random:qwen3-omni-30b-a3b:0", "random:qwen3-omni-tiny:0")
    return LocalDeployment(codec.load(text.encode()), on_cpus(name), threads=1, prefix_cache=keeps)


class Asked(NamedTuple):
    """The outputs of a run, and by rank the tokens that it read and those of them that were found."""

    outputs: dict[str, list[Any]]
    read: dict[int, int]
    found: dict[int, int]


def ask(local: LocalDeployment, run: str, turns: Sequence[Turn], outputs: Sequence[str]) -> Asked:
    params = {**GREEDY, "every": 2}
    local.submit(run, "converse", params, {"messages": [Conversation(tuple(turns))]}, outputs=outputs)
    local.run()
    assert not local.failed
    local.release(run)
    ends = local.ends.pop(run)
    for engine in local.engines.values():
        engine.states.audit()
    made = local.outputs.pop(run)
    read, found = {int(end.rank): end.read for end in ends}, {int(end.rank): end.found for end in ends}
    return Asked({name: made[name] for name in outputs}, read, found)


def converse(both: Sequence[LocalDeployment], outputs: Sequence[str]) -> list[Asked]:
    """Every turn of the conversation, as the first deployment answers it; the second one finds nothing."""
    turns, answers = list[Turn](), list[Asked]()
    for index, asked in enumerate(ASKED):
        turns.append(Turn("user", tuple(map(part, asked))))
        made, wanted = [ask(one, f"turn {index}", turns, outputs) for one in both]
        assert made.outputs == wanted.outputs
        assert made.read == wanted.read
        assert not any(wanted.found.values())
        answers.append(made)
        turns.append(Turn("assistant", (TurnPart("text", "".join(made.outputs["text"])),)))
    return answers


@pytest.mark.parametrize("name", [ONE, pytest.param(TWO, marks=pytest.mark.long)])
def test_a_conversation_in_text_is_found_with_its_media(name: str) -> None:
    answers = converse([deployed(name, keeps=True), deployed(name, keeps=False)], ["text"])
    for before, after in pairwise(answers):
        # All that was read the turn before, but for the mark that begins the answer, and the text before it as far as
        # it fills no page: what follows is read with it.
        assert after.found[THINKER] >= before.read[THINKER] - 4 - (PAGE - 1)


@pytest.mark.parametrize("name", [pytest.param(ONE, marks=pytest.mark.long), TWO])
def test_a_spoken_conversation_is_found_with_its_media(name: str) -> None:
    answers = converse([deployed(name, keeps=True), deployed(name, keeps=False)], ["text", "audio"])
    for before, after in pairwise(answers):
        # On one rank, the talker's figures count where they are larger.
        assert after.found[THINKER] >= before.read[THINKER] - (4 if name == TWO else OPENING) - (PAGE - 1)
        if name == TWO:
            # The user's turns, in whole pages.
            heard = before.read[TALKER] - OPENING
            assert after.found[TALKER] == heard // PAGE * PAGE


def test_spoken_conversations_beside_each_other_find_what_each_said() -> None:
    """Three of them, turn by turn together, of which two are alike but for what the assistant said."""
    both = [deployed(ONE, keeps=True), deployed(ONE, keeps=False)]
    said = {"one": "A door.", "two": "A house.", "three": "A door."}
    for count in (1, 2):
        for local in both:
            for name, answer in said.items():
                talk = {"messages": [beside(count, name, answer)]}
                local.submit(f"{name} {count}", "converse", {**GREEDY, "every": 2}, talk)
            local.run()
            assert not local.failed
            for name in said:
                local.release(f"{name} {count}")
        for run in (f"{name} {count}" for name in said):
            assert len({str(local.outputs[run]) for local in both}) == 1
            [kept], [anew] = (local.ends[run] for local in both)
            assert kept.read == anew.read
            assert (kept.found > 0) == (count > 1)


def test_what_is_made_ready_serves_the_requests() -> None:
    """Programs of loops that no request uses would be made for nothing, and others while clients wait."""
    local = deployed(ONE, keeps=True)
    engine = local.engines[0]
    for loop in local.cores[0].loops():
        engine.prepare(loop)
    ready = len(engine.loops.groups)
    talk = {"messages": [beside(1, "one", "A door.")]}
    local.submit("a", "converse", {**GREEDY, "max_frames": 100}, talk, outputs=["text", "audio"])
    local.run()
    assert not local.failed
    assert len(engine.loops.groups) == ready


@pytest.mark.parametrize("name", [ONE, TWO])
def test_a_conversation_is_read_in_one_forward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards: list[int] = []
    logits = Thinker.logits

    def counted(self: Thinker, unread: Sequence[Unread], states: States) -> Tensor:
        forwards.append(len(unread))
        return logits(self, unread, states)

    local = deployed(name, keeps=True)
    monkeypatch.setattr(Thinker, "logits", counted)
    # A text, and what was seen and heard, and a text, and so on: texts beside each other are one.
    turns = beside(2, "one", "A door.")
    local.submit("a", "converse", GREEDY, {"messages": [turns]}, outputs=["text", "audio"])
    local.run()
    assert not local.failed
    assert forwards == [5]


def beside(count: int, run: str, answer: str) -> Conversation:
    """The first turns of a conversation; the third one has another system prompt."""
    turns = [Turn("system", (TurnPart("text", "Be kind."),))] if run == "three" else []
    for asked in ASKED[:count]:
        turns += [Turn("user", tuple(map(part, asked))), Turn("assistant", (TurnPart("text", answer),))]
    return Conversation(tuple(turns[:-1]))
