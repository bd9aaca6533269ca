"""The comparison with the published code: how far two answers are from each other, and what its table says. What it
compares needs packages that this project doesn't have."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.golden.compare.__main__ import FAMILIES
from tests.golden.compare.table import Case, told

FOLDER = Path(__file__).parent / "compare"
MODULES = {name: importlib.import_module(f"tests.golden.compare.{name}") for name in FAMILIES}
"""Our names exist; the published code is imported only when it is needed."""
HALF = torch.tensor([1.0, -4.0, 2.0])


@pytest.mark.parametrize(
    ("got", "wanted", "off"),
    [
        (HALF, HALF, 0.0),
        (HALF + torch.tensor([0.0, 0.0, 0.5]), HALF, 0.125),
        ([HALF, HALF], torch.stack([HALF, HALF - 0.5]).numpy(), 0.5 / 4.5),
        (np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]), 0.25),
        (torch.tensor([True, False]), np.array([True, True]), 0.5),
        ([5], [5], 0.0),
        (torch.zeros(2), torch.zeros(2), 0.0),
        (HALF[:2], HALF, float("inf")),
        (HALF[:0], HALF[:0], float("inf")),
        (HALF * float("nan"), HALF, float("inf")),
    ],
)
def test_how_far_an_answer_is_off(got: object, wanted: object, off: float) -> None:
    assert Case("x", got, wanted).off == pytest.approx(off)


def test_the_table_counts_what_is_above_its_bar(capsys: pytest.CaptureFixture[str]) -> None:
    far = HALF + 4e-3
    assert told("some", iter([Case("same", HALF, HALF), Case("far", far, HALF), Case("near", far, HALF, 2e-3)])) == 1
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if "ABOVE" in line] == ["| far | 1.0e-03 | 2e-05 | ABOVE |"]
    assert "2 of 3 cases" in said


def test_every_family_has_its_cases() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - {"__main__", "table"} == set(FAMILIES)
    assert all(callable(module.cases) for module in MODULES.values())
