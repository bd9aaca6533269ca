"""The stored cases of the editor's tests equal the backend's current results."""

import json

from tests.golden.editor_cases import BY_HAND, FILE, RANDOM_CHOICES, RANDOM_MAPS, RANDOM_WALKS, dumps

HINT = "if this is meant, write it anew with `python -m tests.golden.editor_cases` and mend the editor where it differs"


def test_the_cases_are_those_of_today() -> None:
    assert dumps() == FILE.read_text(), HINT


def test_the_cases_hold_every_kind_of_way() -> None:
    walks = json.loads(FILE.read_text())["walks"]
    routes = [route for walk in walks.values() for route in walk["routes"]]
    assert {route[5] for route in routes} == {"none", "last", "each", "collect"}
    assert {route[6] for route in routes} == {"none", "held", "first", "each"}
    assert {route[0][0] for route in routes} == {"use", "in", "loop", "stream"}
    assert {(route[3], route[4]) for route in routes} == {(False, False), (False, True), (True, True)}
    assert any(walk["beside"] for walk in walks.values())
    assert any(walk.get("choices") for walk in walks.values())
    assert any(walk.get("apart") for walk in walks.values())
    assert any(walk.get("maps") for walk in walks.values())
    assert len(walks) > len(BY_HAND) + RANDOM_WALKS + RANDOM_CHOICES + RANDOM_MAPS
