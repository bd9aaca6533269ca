"""The words that starters know: those of their own sentences, and a client is told of the others."""

import json
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest

from walkgraph import starters
from walkgraph.starters import unknown_words
from walkgraph.starters.shapes.language import caption, prompt
from walkgraph.starters.shapes.scenes import draw_scenes, generator

SHAPES = ("starter:shapes",)


@pytest.mark.parametrize("name", ["shapes", "reach"])
def test_the_list_is_that_of_the_tokenizer(name: str) -> None:
    tokens = import_module(f"walkgraph.starters.{name}.tokens")
    assert json.loads((Path(tokens.FILE).parent / starters.WORDS).read_text("utf-8")) == list(tokens.WORDS)


def test_words_outside_the_sentences_are_named_once_in_their_order() -> None:
    assert unknown_words(SHAPES, ["A cat on a sofa,", "a red CAT"]) == ("cat", "sofa")
    assert unknown_words(SHAPES, ["a large red circle at the top left", ""]) == ()
    assert len(unknown_words(SHAPES, [" ".join(f"w{chr(97 + i)}x" for i in range(26))])) == 20


def test_no_sentence_of_its_training_has_an_unknown_word() -> None:
    rng = generator(4)
    scenes = list(islice(draw_scenes(3, reserved=False), 50))
    said = [caption(scene) for scene in scenes] + [prompt(rng, scene).text for scene in scenes]
    assert unknown_words(SHAPES, said) == ()


@pytest.mark.parametrize(
    "sources", [(), ("random:bagel-tiny:0",), ("starter:shapes", "checkpoint:x"), ("starter:world",)]
)
def test_other_weights_have_no_list(sources: tuple[str, ...]) -> None:
    assert unknown_words(sources, ["a cat"]) == ()
