"""Captions, prompts and edits say what is true."""

import itertools

import pytest

from walkgraph.starters.shapes import language
from walkgraph.starters.shapes.data import edit_stream
from walkgraph.starters.shapes.scenes import Item, Scene, Wanted, draw_scenes, generator, held_out, scene

RED, BLUE, ORANGE = 0, 2, 5
CIRCLE, SQUARE, STAR = 0, 1, 3


def test_the_caption_says_everything_in_reading_order() -> None:
    shown = scene(2, (Item(SQUARE, ORANGE, 1, 4), Item(CIRCLE, RED, 0, 0)))
    want = "a small red circle at the top left and a large orange square in the center on a grey background"
    assert language.caption(shown) == want
    assert language.caption(Scene(0, ())) == "nothing on a white background"


def test_captions_tell_all_scenes_apart() -> None:
    scenes = set(itertools.islice(draw_scenes(1, reserved=False), 2000))
    assert len({language.caption(s) for s in scenes}) == len(scenes)


def test_articles() -> None:
    assert language.noun(Wanted(STAR, ORANGE)) == "an orange star"
    assert language.noun(Wanted(STAR, ORANGE, 0)) == "a small orange star"
    assert language.noun(Wanted(STAR, ORANGE, 0), article=False) == "small orange star"


def test_every_prompt_is_satisfied_by_its_scene() -> None:
    rng = generator(5)
    prompts = [(shown, language.prompt(rng, shown)) for shown in itertools.islice(draw_scenes(6, reserved=False), 500)]
    assert all(prompt.request.allows(shown) for shown, prompt in prompts)
    assert any(prompt.request.relation is not None for _, prompt in prompts)
    assert any(prompt.request.background is None for _, prompt in prompts)


def test_every_edit_leads_to_what_it_wants_and_keeps_the_rest() -> None:
    kinds = set()
    for edit in itertools.islice(edit_stream(1, reserved=False), 500):
        kinds.add(edit.kind)
        assert edit.wanted.allows(edit.after)
        assert edit.before != edit.after
        assert not held_out(edit.before)
        assert not held_out(edit.after)
        for item, old in zip(edit.after.items, edit.moved, strict=True):
            if old is not None:
                assert edit.before.items[old].cell == item.cell
        assert len(edit.after.items) - len(edit.before.items) == {"add": 1, "remove": -1}.get(edit.kind, 0)
        assert (edit.before.background != edit.after.background) == (edit.kind == "background")
    assert kinds == set(language.EDITS)


@pytest.mark.parametrize("kind", ["recolour", "move", "remove"])
def test_twins_have_no_name_of_their_own(kind: str) -> None:
    twins = scene(0, (Item(CIRCLE, RED, 0, 0), Item(CIRCLE, RED, 0, 8)))
    assert language.edit(generator(0), twins, kind) is None


def test_a_name_means_one_item_alone() -> None:
    shown = scene(0, (Item(CIRCLE, RED, 0, 0), Item(CIRCLE, BLUE, 0, 8)))
    texts = {language.edit(generator(seed), shown, "remove").text.rstrip(".") for seed in range(40)}  # type: ignore[union-attr]
    assert all("red" in text or "blue" in text for text in texts)


def test_what_cannot_be_done_is_not_asked() -> None:
    full, empty = scene(0, (Item(CIRCLE, RED, 0, 0), Item(SQUARE, RED, 0, 8))), Scene(0, ())
    assert language.edit(generator(0), full, "add") is None
    assert language.edit(generator(0), empty, "remove") is None
    assert language.edit(generator(0), empty, "add") is not None
