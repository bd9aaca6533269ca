"""The shipped speaker says what it is given, as a judge hears that is told nothing."""

import json
from itertools import islice

import pytest
import torch

from walkgraph import starters
from walkgraph.models.voice.codec import Codec
from walkgraph.models.voice.config import read_voice
from walkgraph.models.voice.model import Speaker
from walkgraph.starters import unknown_words
from walkgraph.starters.shapes.language import caption
from walkgraph.starters.shapes.scenes import draw_scenes
from walkgraph.starters.voice.config import config
from walkgraph.starters.voice.data import IGNORED, Codes, ids_of, rows, texts
from walkgraph.starters.voice.evaluate import FOLDER, descriptions, judge, load, shuffled, sounds, word_lists
from walkgraph.starters.voice.judge import Judge, errors
from walkgraph.starters.voice.units import RECORDED, UNITS, WORDS

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shipped() -> tuple[Speaker, Codec]:
    return load(FOLDER)


@pytest.fixture(scope="module")
def hears() -> Judge:
    return judge(FOLDER)


def test_the_starter_is_found_and_small() -> None:
    assert "voice" in starters.names()
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 3e6


def test_the_shipped_files_are_of_what_is_trained() -> None:
    assert read_voice(FOLDER) == config()
    assert json.loads((FOLDER / starters.WORDS).read_text("utf-8")) == list(WORDS)


def test_the_shipped_figures_pass_the_bar() -> None:
    figures = json.loads((FOLDER / "figures.json").read_text())
    assert [figures[kind]["texts"] for kind in ("descriptions", "any_order", "shuffled")] == [200] * 3
    assert figures["descriptions"]["recognised"] >= 0.97
    assert figures["any_order"]["recognised"] >= 0.95
    assert figures["shuffled"]["recognised"] <= 0.3


def test_new_texts_are_heard_as_they_are_and_not_when_shuffled(shipped: tuple[Speaker, Codec], hears: Judge) -> None:
    texts_ = [*islice(descriptions(), 1), *islice(word_lists(), 1)]
    made = sounds(*shipped, texts_)
    rate = shipped[1].sizes.rate
    for text, sound in zip(texts_, made, strict=True):
        wanted = text.split()
        assert errors(wanted, hears.hears(sound, rate)) == 0, text
        assert errors(wanted, hears.hears(shuffled(sound, rate), rate)) > len(wanted) / 2


def test_unknown_words_are_spelled_and_told(shipped: tuple[Speaker, Codec], hears: Judge) -> None:
    [sound] = sounds(*shipped, ["red cub"])
    assert hears.hears(sound, shipped[1].sizes.rate) == ["red", "C", "U", "B"]
    assert unknown_words(("starter:voice",), ["a red cube, 42 b"]) == ("cube",)


def test_it_knows_the_words_of_every_description() -> None:
    said = [caption(scene) for scene in islice(draw_scenes(3, reserved=False), 50)]
    assert unknown_words(("starter:voice",), said) == ()


@pytest.mark.parametrize(
    ("wanted", "heard", "wrong"), [("a b c", "a b c", 0), ("a b c", "a c", 1), ("a b", "a x b", 1), ("a", "", 1)]
)
def test_errors_are_words_missed_put_in_and_mistaken(wanted: str, heard: str, wrong: int) -> None:
    assert errors(wanted.split(), heard.split()) == wrong


def test_recordings_are_heard_as_themselves(hears: Judge) -> None:
    assert list(hears.names[1:]) == list(RECORDED)
    assert len(hears.recordings) == len(hears.names)


def test_rows_of_training_follow_the_frames() -> None:
    codes: Codes = {
        (unit, final): torch.arange(3).numpy() + 3 * final for unit in range(len(UNITS)) for final in (False, True)
    }
    ids = ids_of("red b")
    made = rows([ids], codes, 10, 12)
    assert made.wanted[0].tolist() == [0, 1, 12, 3, 4, 15, 3, 4, 15] + [IGNORED] * 3
    assert made.token[0, :9].tolist() == [20, 0, 1, 12, 3, 4, 15, 3, 4]
    assert made.unit[0, :9].tolist() == [unit for unit in ids for _ in range(3)]
    assert made.following[0, :9].tolist() == [unit for unit in [*ids[1:], ids[-1]] for _ in range(3)]
    assert made.age[0, :9].tolist() == [0, 1, 2] * 3


def test_texts_of_training_follow_their_seed_and_have_an_end() -> None:
    first, again = (list(islice(texts(5), 20)) for _ in range(2))
    assert first == again
    assert all(text[-1] == len(UNITS) - 1 for text in first)
