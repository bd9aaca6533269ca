"""Marks of turns, with a tokenizer of bytes."""

from __future__ import annotations

import pytest
import torch

from tests.golden.qwen3_omni import thinking
from tests.unit.engine.plans import call
from walkgraph.abi.calls import CallFailed
from walkgraph.abi.operator import LoadContext
from walkgraph.checkpoints.chat_template import render, text_of
from walkgraph.checkpoints.known_templates import QWEN3
from walkgraph.graph.conversation import Conversation, Role, Turn, TurnPart
from walkgraph.models.qwen3_omni.presets import text_edges
from walkgraph.models.qwen3_omni.thinker.turn_operators import TurnMarker


def _context() -> LoadContext:
    return LoadContext(
        device=torch.device("cpu"),
        dtype=torch.float32,
        folder=None,
        shared={},
        options={},
        random=("qwen3-omni-tiny", 0),
    )


@pytest.mark.parametrize(
    ("mark", "text", "wanted"),
    [
        ("user", None, "<|im_start|>user\n"),
        ("assistant", None, "<|im_start|>assistant\n"),
        ("system", None, "<|im_start|>system\n"),
        ("end", None, "<|im_end|>\n"),
        ("system", "Be kind.", "<|im_start|>system\nBe kind.<|im_end|>\n"),
        ("assistant", "Red", "<|im_start|>assistant\nRed<|im_end|>\n"),
    ],
)
def test_a_turn_is_marked_as_published(mark: str, text: str | None, wanted: str) -> None:
    context = _context()
    inputs = {} if text is None else {"text": text}
    (given,) = TurnMarker.load(context).forward([call("turn", inputs, mark=mark)], None)  # type: ignore[arg-type]
    assert given["ids"].tolist() == thinking.ids_of(wanted)


def test_a_conversation_is_marked_as_the_template_writes_it() -> None:
    """With thoughts in earlier answers, which the published template leaves out once a question follows."""
    said = ["A wall.", "<think>\nA door?\nRed.\n</think>\n\nA red door.", "Why?</think>\nSo.", "<think>never mind"]
    turns: list[tuple[Role, str]] = [("system", "Be kind.")]
    for text in said:
        turns.append(("user", "<think>What?</think> Say it."))
        turns.append(("assistant", text))
    turns.append(("user", "And now?"))
    conversation = Conversation(tuple(Turn(role, (TurnPart("text", text),)) for role, text in turns))
    marker = TurnMarker.load(_context())
    calls = [call("turn", {"text": text}, mark=role) for role, text in turns]
    given = [*marker.forward(calls, None), *marker.forward([call("turn", mark="assistant")], None)]  # type: ignore[arg-type]
    assert torch.cat([one["ids"] for one in given]).tolist() == thinking.ids_of(text_of(render(QWEN3, conversation)))


@pytest.mark.parametrize(
    ("token", "said", "wanted"),
    [(65, 66, "A<|im_end|>\n"), (65, None, "A<|im_end|>\n"), (257, 66, "<|im_end|>\n"), (65, -1, "\n")],
)
def test_an_answer_ends_with_the_token_that_was_cut_off(token: int, said: int | None, wanted: str) -> None:
    inputs = {"token": torch.tensor([token])} | ({} if said is None else {"said": torch.tensor([said])})
    (given,) = TurnMarker.load(_context()).forward([call("turn", inputs, mark="end")], None)  # type: ignore[arg-type]
    assert given["ids"].tolist() == thinking.ids_of(wanted)


def test_a_turn_that_is_too_long_is_refused() -> None:
    marker = TurnMarker.load(_context())
    ids = thinking.ids_of("<|im_start|>user\nHello<|im_end|>\n")
    for most in (0, len(ids)):
        (given,) = marker.forward([call("turn", {"text": "Hello"}, mark="user", context=most)], None)  # type: ignore[arg-type]
        assert given["ids"].tolist() == ids
    with pytest.raises(CallFailed, match=f"at most {len(ids) - 1} tokens, and these are {len(ids)}"):
        marker.forward([call("turn", {"text": "Hello"}, mark="user", context=len(ids) - 1)], None)  # type: ignore[arg-type]


def test_the_edges_of_a_text_are_those_of_a_turn() -> None:
    assert text_edges("qwen3-omni-30b-a3b") == (151644, 151645)
    assert text_edges("qwen3-omni-tiny") == (256, 257)
