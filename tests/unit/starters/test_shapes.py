"""The shipped weights describe, draw and edit, in float32 on a CPU."""

import pytest
import torch

from walkgraph.models.bagel.config import read_bagel
from walkgraph.placement.sizes import weights_folder
from walkgraph.starters import names
from walkgraph.starters.shapes import language
from walkgraph.starters.shapes.config import config
from walkgraph.starters.shapes.context import Guidance
from walkgraph.starters.shapes.detector import detect
from walkgraph.starters.shapes.evaluate import Judge, caption_score, edit_score, load
from walkgraph.starters.shapes.render import draw
from walkgraph.starters.shapes.scenes import Item, scene

torch.set_num_threads(1)
FOLDER = weights_folder("starter:shapes", ())
FEW = Guidance(steps=12, text_scale=3.0)


@pytest.fixture(scope="module")
def judge() -> Judge:
    return load(FOLDER, 8)


def test_the_starter_is_found() -> None:
    assert "shapes" in names()


def test_the_package_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 15e6


def test_the_shipped_config_is_the_one_trained() -> None:
    vae = read_bagel(FOLDER).vae
    assert read_bagel(FOLDER) == config(vae.shift, vae.scale)


def test_a_drawing_is_described_exactly(judge: Judge) -> None:
    shown = [scene(1, (Item(0, 0, 1, 0), Item(3, 4, 0, 5))), scene(0, (Item(2, 1, 0, 8),))]
    assert judge.captions(draw(shown, 3)) == [language.caption(s) for s in shown]


def test_a_prompt_is_drawn(judge: Judge) -> None:
    shown = [scene(0, (Item(0, 0, 1, 3), Item(1, 2, 1, 5))), scene(1, (Item(3, 3, 1, 4),))]
    pictures = judge.drawings([language.caption(s) for s in shown], FEW)
    assert [detect(picture).scene for picture in pictures.numpy()] == shown


def test_an_edit_changes_what_it_names_alone(judge: Judge) -> None:
    before = scene(0, (Item(0, 0, 1, 0), Item(1, 2, 1, 8)))
    pictures = judge.edits(draw([before, before], 3), ["make the circle green", "remove the square"], FEW)
    after = [scene(0, (Item(0, 1, 1, 0), Item(1, 2, 1, 8))), scene(0, (Item(0, 0, 1, 0),))]
    assert [detect(picture).scene for picture in pictures.numpy()] == after


def test_scores_count_what_is_right(judge: Judge) -> None:
    captions = caption_score(judge, 4)
    assert captions["right"] == 1 - len(captions["wrong"]) / 4
    edits = edit_score(judge, 4, FEW)
    assert edits["right"] == 1 - len(edits["wrong"]) / 4
