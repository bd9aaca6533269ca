"""A repair of the editor ends the problem for the backend too, and brings no other."""

import json

from tests.golden.editor_repairs import BROKEN, HINT, MENDED, Fault, dumps, problems, sound


def test_the_broken_graphs_are_those_of_today() -> None:
    assert dumps() == BROKEN.read_text(), HINT
    assert problems(sound()) == []


def test_what_is_mended_has_the_problem_no_more_and_no_new_one() -> None:
    broken, mended = json.loads(BROKEN.read_text()), json.loads(MENDED.read_text())
    assert list(mended) == list(broken), HINT
    for name, repairs in mended.items():
        before = broken[name]["problems"]
        for repair in repairs:
            after = problems(repair["graph"])
            said = (name, repair["label"])
            assert before[repair["problem"]] not in after, said
            # The same problem may say something else now: of weights, that there are some.
            assert {_place(one) for one in after} <= {_place(one) for one in before}, said


def test_every_broken_graph_has_a_repair() -> None:
    mended = json.loads(MENDED.read_text())
    assert [name for name, repairs in mended.items() if not repairs] == []
    assert sum(len(repairs) for repairs in mended.values()) > len(mended)


def _place(fault: Fault) -> tuple[str, str]:
    return fault["code"], fault["pointer"]
