"""The shipped tokenizer: words are tokens, text comes back, and the file is what its script makes."""

import json

from tokenizers import Tokenizer

from walkgraph.starters.shapes.config import config
from walkgraph.starters.shapes.data import CAPTION, EDIT, PROMPT, edit_stream, encode
from walkgraph.starters.shapes.language import caption, prompt
from walkgraph.starters.shapes.scenes import draw_scenes, generator
from walkgraph.starters.shapes.tokens import FILE, SPECIALS, WORDS, make


def shipped() -> Tokenizer:
    return Tokenizer.from_file(str(FILE))


def test_the_file_is_what_the_script_makes() -> None:
    assert json.loads(FILE.read_text("utf-8")) == json.loads(make().to_str())


def test_every_word_is_one_token_with_and_without_a_space() -> None:
    tokenizer = shipped()
    for word in WORDS:
        assert len(tokenizer.encode(word).ids) == 1
        assert len(tokenizer.encode(f"a {word}").ids) == 2


def test_specials_are_where_the_config_says() -> None:
    tokens = config().tokens
    ids = [shipped().token_to_id(name) for name in SPECIALS]
    assert ids == [tokens.bos, tokens.eos, tokens.boi, tokens.eoi]
    assert shipped().get_vocab_size() <= config().llm.vocab <= 512


def test_any_text_comes_back() -> None:
    tokenizer = shipped()
    for text in ("a small red circle", "hällo, wörld! 12", "日本 ☃", "  two  spaces "):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("A Red Circle").ids == tokenizer.encode("a red circle").ids


def test_texts_of_the_grammar_fit_their_tables() -> None:
    tokenizer, rng, scenes, edits = (
        shipped(),
        generator(0),
        draw_scenes(1, reserved=False),
        edit_stream(2, reserved=False),
    )
    shown = [next(scenes) for _ in range(300)]
    for texts, length in (
        ([caption(s) for s in shown], CAPTION),
        ([prompt(rng, s).text for s in shown], PROMPT),
        ([next(edits).text for _ in range(300)], EDIT),
    ):
        table = encode(tokenizer, texts, length)
        assert table[0][: 2 + len(tokenizer.encode(texts[0]).ids)].tolist()[0] == 256
        for row, text in zip(table, texts, strict=True):
            ids = [i for i in row.tolist() if i >= 0]
            assert ids[-1] == 257
            assert tokenizer.decode(ids) == text
