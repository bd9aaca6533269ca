"""Scenes, requests and relations."""

import itertools

from walkgraph.starters.shapes.scenes import (
    PLACES,
    RELATIONS,
    Item,
    Request,
    Scene,
    Wanted,
    draw_scenes,
    held_out,
    related,
    relation_between,
    scene,
)


def sample(count: int, *, reserved: bool = False) -> list[Scene]:
    return list(itertools.islice(draw_scenes(3, reserved=reserved), count))


def at(place: str, shape: int = 0) -> Item:
    return Item(shape, 0, 0, PLACES.index(place))


def test_a_seed_draws_the_same_scenes() -> None:
    assert sample(50) == sample(50)
    assert sample(50) != list(itertools.islice(draw_scenes(4, reserved=False), 50))


def test_reserved_scenes_are_a_twentieth_and_never_drawn_in_training() -> None:
    assert not any(map(held_out, sample(500)))
    assert all(map(held_out, sample(50, reserved=True)))
    everything = {
        Scene(b, (Item(s, c, z, p),))
        for b in range(3)
        for s in range(4)
        for c in range(6)
        for z in range(2)
        for p in range(9)
    }
    assert 0.03 < sum(map(held_out, everything)) / len(everything) < 0.07


def test_scenes_are_in_reading_order_with_one_item_a_cell() -> None:
    for drawn in sample(300):
        cells = [item.cell for item in drawn.items]
        assert cells == sorted(set(cells))
        assert len(cells) <= 2
    assert {len(drawn.items) for drawn in sample(300)} == {0, 1, 2}


def test_relations_hold_within_a_row_or_a_column() -> None:
    cases = {
        ("left", "right"): "left of",
        ("center", "left"): "right of",
        ("top", "bottom"): "above",
        ("bottom right", "right"): "below",
        ("top left", "bottom right"): None,
        ("top left", "right"): None,
    }
    for (first, second), name in cases.items():
        relation = relation_between(at(first), at(second))
        assert (None if relation is None else RELATIONS[relation]) == name
    assert not any(related(at("center"), at("center"), r) for r in range(4))


def test_a_request_allows_what_it_does_not_speak_of() -> None:
    shown = scene(1, (at("left", 2), at("right", 1)))
    assert Request(None, (Wanted(1), Wanted(2))).allows(shown)
    assert Request(1, (Wanted(2, 0, 0, 3), Wanted(1))).allows(shown)
    assert not Request(0, (Wanted(1), Wanted(2))).allows(shown)
    assert not Request(None, (Wanted(1),)).allows(shown)
    assert not Request(None, (Wanted(1), Wanted(1))).allows(shown)
    assert not Request(None, (Wanted(2, 1), Wanted(1))).allows(shown)


def test_a_relation_is_read_from_the_first_item_to_the_second() -> None:
    shown = scene(0, (at("left", 2), at("right", 1)))
    left, right = RELATIONS.index("left of"), RELATIONS.index("right of")
    assert Request(None, (Wanted(2), Wanted(1)), left).allows(shown)
    assert Request(None, (Wanted(1), Wanted(2)), right).allows(shown)
    assert not Request(None, (Wanted(1), Wanted(2)), left).allows(shown)
