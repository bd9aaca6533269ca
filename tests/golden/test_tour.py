import pytest

from tests.golden import tour


def test_every_link_leads_to_the_line_of_its_name() -> None:
    text = tour.PAGE.read_text()
    assert len(tour.LINK.findall(text)) == text.count(".py#L") >= 20
    assert tour.with_lines(text) == text, "run python -m tests.golden.tour"


def test_a_planted_name_and_line_are_found() -> None:
    path = "../../backend/walkgraph/worker/core.py"
    assert tour.with_lines(f"[`Core`]({path}#L1)") != f"[`Core`]({path}#L1)"
    with pytest.raises(LookupError, match=r"core.py defines no Gone"):
        tour.with_lines(f"[`Gone`]({path}#L1)")
