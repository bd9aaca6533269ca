"""Calls of functions in answers are found however an answer is cut into pieces; what is no call stays text."""

from __future__ import annotations

import random

import pytest

from walkgraph.checkpoints.chat_template import CallForm
from walkgraph.service.openai.tool_calls import CallReader, FoundCall

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'
LOOK = FoundCall("look", '{"at": "sky"}')


def found(form: CallForm, *pieces: str) -> list[str | FoundCall]:
    reader = CallReader(form, ("look",))
    told = [one for piece in pieces for one in reader.feed(piece)]
    merged: list[str | FoundCall] = []
    for one in (*told, *reader.finish()):
        if isinstance(one, str) and merged and isinstance(merged[-1], str):
            merged[-1] += one
        else:
            merged.append(one)
    return merged


ANSWERS: list[tuple[CallForm, str, list[str | FoundCall]]] = [
    ("tagged", "hello\nyou\n", ["hello\nyou\n"]),
    ("tagged", CALL, [LOOK]),
    ("tagged", f"Let me see.\n{CALL}\n{CALL}", ["Let me see.", LOOK, LOOK]),
    ("tagged", f"<tool_call>x</tool_call>{CALL}", ["<tool_call>x</tool_call>", LOOK]),
    ("tagged", CALL.replace("look", "other"), [CALL.replace("look", "other")]),
    ("tagged", CALL[:-4], [CALL[:-4]]),
    ("tagged", "a <tool", ["a <tool"]),
    ("whole", '{"name": "look", "parameters": {"at": "sky"}}', [LOOK]),
    ("whole", ' {"name": "look", "parameters": 5}', [' {"name": "look", "parameters": 5}']),
    ("whole", 'It is {"name": "look", "parameters": {}}', ['It is {"name": "look", "parameters": {}}']),
    ("whole", "[" * 100_000, ["[" * 100_000]),
]


@pytest.mark.parametrize(("form", "answer", "wanted"), ANSWERS, ids=[str(i) for i in range(len(ANSWERS))])
def test_calls_are_found_in_any_pieces(form: CallForm, answer: str, wanted: list[str | FoundCall]) -> None:
    assert found(form, answer) == wanted
    for seed in range(20):
        draw = random.Random(seed)
        cuts = sorted(draw.randrange(len(answer) + 1) for _ in range(draw.randrange(1, 9)))
        assert found(form, *(answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True))) == wanted


def test_text_is_not_held_back_longer_than_a_call_may_begin_in_it() -> None:
    reader = CallReader("tagged", ("look",))
    assert list(reader.feed("hello <")) == ["hello "]
    assert list(reader.feed("b>")) == ["<b>"]
