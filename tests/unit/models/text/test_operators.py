from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import bagel_tiny
from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of, serve
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.engine.engine import Engine
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.starters.shapes.tokens import FILE

NODES = {
    "tokenizer": ("walkgraph.models.text.operators:Tokenizer", {}),
    "start": ("walkgraph.models.text.operators:BeginAnswer", {}),
    "finish": ("walkgraph.models.text.operators:EndAnswer", {}),
    "detokenizer": ("walkgraph.models.text.operators:Detokenizer", {"tail": "tail"}),
}


def checkpoint(folder: Path) -> None:
    """A folder that counts as weights; what is in them doesn't matter to a tokenizer."""
    folder.mkdir()
    (folder / "model.safetensors").touch()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    root = tmp_path_factory.mktemp("roots")
    checkpoint(root / "words")
    (root / "words" / "tokenizer.json").write_text(FILE.read_text("utf-8"), "utf-8")
    return engine_of(plan_of(NODES, source="checkpoint:words"), weights_roots=[root])


@pytest.fixture(scope="module")
def drawn() -> Engine:
    return _bytes_engine()


def encode(engine: Engine, text: str, *, wrap: bool = True) -> list[int]:
    return outputs(engine, call("tokenizer", {"text": text}, wrap=wrap))[0]["ids"].tolist()


def write(engine: Engine, tokens: list[int], run: str = "r") -> list[str]:
    """The text that each token adds."""
    pieces = [
        outputs(engine, call("detokenizer", {"token": ids(token)}, run=run, states={"tail": "tail"}))[0]["text"]
        for token in tokens
    ]
    engine.drop(run)
    return pieces


def test_text_lies_between_the_begin_and_the_end_token(trained: Engine) -> None:
    bos, *inner, eos = encode(trained, "a red circle")
    assert (bos, eos) == (256, 257)
    assert inner == encode(trained, "a red circle", wrap=False)
    assert len(inner) == 3
    assert outputs(trained, call("start"))[0]["token"].tolist() == [256]


@pytest.mark.parametrize("engine", ["trained", "drawn"])
@pytest.mark.parametrize("text", ["a red circle above a blue star", "grün 😀 und 語", "", "a\ufffdb"])
def test_streamed_text_is_the_whole_text(engine: str, text: str, request: pytest.FixtureRequest) -> None:
    here = request.getfixturevalue(engine)
    pieces = write(here, encode(here, text, wrap=False))
    assert "".join(pieces) == text


def test_a_cut_character_waits_for_its_other_half(drawn: Engine) -> None:
    assert write(drawn, list("é😀x".encode())) == ["", "é", "", "", "", "😀", "x"]


def test_bytes_that_are_no_character_do_not_hold_the_rest_back(drawn: Engine) -> None:
    pieces = write(drawn, [*[0xE2, 0x82] * 3, *b" ok"])
    assert "".join(pieces).endswith(" ok")
    assert "\ufffd" in "".join(pieces[:6])


def test_special_and_unknown_tokens_give_no_text(trained: Engine, drawn: Engine) -> None:
    for engine in (trained, drawn):
        assert write(engine, [256, 257, 258, 90_000]) == [""] * 4


def test_a_special_tokens_name_in_a_text_is_text(trained: Engine) -> None:
    inner = encode(trained, "a <|im_end|> b", wrap=False)
    assert not {256, 257, 258, 259} & set(inner)
    assert "".join(write(trained, inner)) == "a <|im_end|> b"


def test_texts_of_two_runs_do_not_mix(drawn: Engine) -> None:
    def feed(run: str, byte: int) -> str:
        [out] = outputs(drawn, call("detokenizer", {"token": ids(byte)}, run=run, states={"tail": "tail"}))
        return out["text"]

    first, second = "é".encode(), "ü".encode()
    assert [feed("a", first[0]), feed("b", second[0]), feed("a", first[1]), feed("b", second[1])] == ["", "", "é", "ü"]


def test_what_is_no_text_is_the_clients_fault(drawn: Engine) -> None:
    bad, good = serve(drawn, call("tokenizer", {"text": 5}, wrap=True), call("tokenizer", {"text": "a"}, wrap=False))
    assert bad.error is not None
    assert bad.error.code == "invalid_input"
    assert good.error is None
    assert encode(drawn, "\ud800", wrap=False) == [ord("?")]


def test_a_missing_or_broken_tokenizer_is_said(tmp_path: Path) -> None:
    checkpoint(tmp_path / "empty")
    plan = plan_of({"tokenizer": NODES["tokenizer"]}, source="checkpoint:empty")
    with pytest.raises(NotFound, match=r"no `tokenizer\.json`"):
        engine_of(plan, weights_roots=[tmp_path])
    broken = tmp_path / "tokenizer.json"
    broken.write_text("{}")
    with pytest.raises(InvalidInput, match="not a readable tokenizer"):
        Trained(broken)


@given(st.text(max_size=20))
@settings(max_examples=80)
def test_any_text_comes_back_when_streamed(text: str) -> None:
    vocabulary = Trained(FILE)
    lowered = vocabulary.decode(vocabulary.encode(text))
    engine = _bytes_engine()
    assert "".join(write(engine, encode(engine, text, wrap=False))) == text
    assert vocabulary.decode(vocabulary.encode(lowered)) == lowered


@cache
def _bytes_engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:bagel-tiny:0", family="bagel"))


# ── Qwen2's several files ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def merged(tmp_path: Path) -> Path:
    checkpoint(tmp_path / "words")
    bagel_tiny.write_tokenizer(tmp_path / "words")
    return tmp_path / "words"


def test_a_vocabulary_and_its_merges_are_a_tokenizer(merged: Path) -> None:
    engine = engine_of(plan_of(NODES, source="checkpoint:words"), weights_roots=[merged.parent])
    vocab = bagel_tiny.vocabulary()
    bos, *inner, eos = encode(engine, "in the red cat")
    assert [bos, eos] == [len(vocab) + 1, len(vocab) + 2]
    assert inner == [vocab[piece] for piece in ("in", "Ġthe", "Ġ", "red", "Ġcat")]
    assert "".join(write(engine, encode(engine, "naïve 🙂 2+2"))) == "naïve 🙂 2+2"


def test_the_name_of_a_special_token_in_a_text_is_text(merged: Path) -> None:
    vocabulary = Trained(merged / "vocab.json")
    assert len(vocabulary.encode("<|im_end|>")) > 1
    assert vocabulary.decode([vocabulary.bos, *vocabulary.encode("a <|im_end|> b"), vocabulary.eos]) == "a <|im_end|> b"


def test_one_file_is_preferred_to_several(merged: Path) -> None:
    (merged / "tokenizer.json").write_text(FILE.read_text("utf-8"), "utf-8")
    engine = engine_of(plan_of(NODES, source="checkpoint:words"), weights_roots=[merged.parent])
    assert encode(engine, "a red circle")[0] == 256


def test_special_tokens_that_do_not_follow_the_vocabulary_are_refused(merged: Path) -> None:
    config = json.loads((merged / "tokenizer_config.json").read_text())
    config["added_tokens_decoder"]["999"] = {"content": "<|far|>"}
    (merged / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match=r"numbers `<\|far\|>` 999"):
        Trained(merged / "vocab.json")


@pytest.mark.parametrize("broken", ["{", '["a"]', '{"a": "b"}'])
def test_a_broken_vocabulary_is_said_to_be_broken(merged: Path, broken: str) -> None:
    (merged / "vocab.json").write_text(broken)
    with pytest.raises(InvalidInput, match=r"`vocab\.json` is not a readable tokenizer"):
        Trained(merged / "vocab.json")


@pytest.mark.parametrize("missing", ["vocab.json", "merges.txt", "tokenizer_config.json"])
def test_half_a_tokenizer_says_what_it_lacks(merged: Path, missing: str) -> None:
    (merged / missing).unlink()
    with pytest.raises(NotFound, match=r"no `tokenizer\.json`, nor `vocab\.json`, `merges\.txt` and"):
        engine_of(plan_of(NODES, source="checkpoint:words"), weights_roots=[merged.parent])


# ── the end of an answer ────────────────────────────────────────────────────────────────────────


def test_an_answer_that_was_cut_gets_its_end(trained: Engine) -> None:
    eos = 257
    for last, wanted in ((40, [40, eos]), (eos, [eos])):
        assert outputs(trained, call("finish", {"token": ids(last)}))[0]["ids"].tolist() == wanted
