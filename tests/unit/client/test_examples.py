"""The notebooks of `examples/` are kept with what their cells showed, and nothing of where they ran."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from tests.support import notebooks

NAMES = notebooks.names()
MOST_BYTES = 300_000
PRIVATE = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|usr|var|work|opt)/|wg_[0-9a-f]{8}|Bearer |127\.0\.0\.1:|site-packages"
)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_of_these_cells(name: str) -> None:
    notebook = notebooks.read(name)
    assert notebook.metadata[notebooks.KEPT]["sources"] == notebooks.sources(notebook), (
        "run `python -m tests.support.notebooks` against a service, and commit what it writes"
    )
    shown = notebooks.kinds(notebook)
    assert sum(map(bool, shown)) >= 3
    assert "error" not in {kind for kinds in shown for kind in kinds}
    assert notebook.cells[0].cell_type == "markdown"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_the_machine_is_kept(name: str) -> None:
    path = notebooks.FOLDER / f"{name}.ipynb"
    assert path.stat().st_size < MOST_BYTES
    assert PRIVATE.findall(notebooks.texts(notebooks.read(name))) == []
    assert set(notebooks.read(name).metadata) == {"kernelspec", "language_info", notebooks.KEPT}


@pytest.mark.parametrize(
    "planted", ["/home" + "/me/x.png", "key wg_0123abcd_x", "http://127.0.0.1:8421/v1", "(/tmp/a)"]
)
def test_a_planted_place_is_found(planted: str) -> None:
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", name="stdout", text=planted)])
    assert PRIVATE.search(notebooks.texts(nbformat.v4.new_notebook(cells=[cell])))
    assert not PRIVATE.search("/params/steps - the model's x/y")


def test_a_cell_that_was_changed_is_found() -> None:
    notebook = notebooks.read(NAMES[0])
    before = notebooks.sources(notebook)
    notebook.cells[1].source += " "
    assert notebooks.sources(notebook) != before


def test_each_has_its_line(repository: Path) -> None:
    text = (repository / "examples" / "README.md").read_text()
    assert sorted(re.findall(r"\]\((\w+)\.ipynb\)", text)) == NAMES
    assert len(NAMES) == 5
