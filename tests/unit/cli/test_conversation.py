"""A conversation on the command line: a text, turns as JSON, or a file of them."""

import json
from pathlib import Path

import pytest

from walkgraph.cli.runs.request import build
from walkgraph.errors import InvalidInput, NotFound

TASK = {"name": "chat", "inputs": {"chat": {"modality": "messages", "many": False}}, "params": {}, "outputs": []}
TURNS = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


def given(text: str) -> object:
    return build(TASK, ["--chat", text], [])["inputs"]["chat"]


def test_a_conversation_has_three_forms(tmp_path: Path) -> None:
    (tmp_path / "turns.json").write_text(json.dumps(TURNS))
    assert given("hello") == TURNS[1:]
    assert given(json.dumps(TURNS)) == TURNS
    assert given(str(tmp_path / "turns.json")) == TURNS


def test_what_is_none_of_them_is_refused() -> None:
    with pytest.raises(NotFound, match="a file of turns"):
        given("nowhere.json")
    with pytest.raises(InvalidInput, match="not JSON"):
        given("[oops")
