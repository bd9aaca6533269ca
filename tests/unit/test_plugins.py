"""Plugins are listed from file names and imported one at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from walkgraph import plugins
from walkgraph.errors import NotFound


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "plugin_family"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name in ("base", "_private", "sliding", "fixed"):
        (package / f"{name}.py").write_text(f"WORD = {name!r}\n")
    (package / "broken.py").write_text("raise RuntimeError('imported')\n")
    (package / "folder").mkdir()
    (package / "folder" / "__init__.py").write_text("WORD = 'folder'\n")
    (package / "notes.txt").write_text("not a plugin")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield package.name
    for name in set(sys.modules) - before:
        if name.startswith(package.name):
            del sys.modules[name]


def test_names_lists_files_and_folders_without_importing(family: str) -> None:
    assert plugins.names(family) == ("broken", "fixed", "folder", "sliding")
    assert not [name for name in sys.modules if name.startswith(f"{family}.")]


def test_load_imports_exactly_one(family: str) -> None:
    assert plugins.load(family, "sliding", "WORD") == "sliding"
    assert [name for name in sys.modules if name.startswith(f"{family}.")] == [f"{family}.sliding"]


def test_what_a_plugin_does_not_have_is_its_fault_or_the_default(family: str) -> None:
    assert plugins.load(family, "sliding", "NONE", 3) == 3
    with pytest.raises(AttributeError):
        plugins.load(family, "sliding", "NONE")


def test_an_unknown_name_says_what_there_is_and_what_is_nearest(family: str) -> None:
    with pytest.raises(NotFound) as caught:
        plugins.load(family, "fixd", "WORD")
    assert str(caught.value) == (
        f"no `fixd` in `{family}`; have [broken, fixed, folder, sliding]; did you mean `fixed`?"
    )


def test_a_name_like_no_other_gets_no_guess(family: str) -> None:
    with pytest.raises(NotFound) as caught:
        plugins.load(family, "carrier_pigeon", "WORD")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["base", "_private", "../sliding", "folder.x", ""])
def test_what_is_not_listed_is_not_loaded(family: str, name: str) -> None:
    with pytest.raises(NotFound):
        plugins.load(family, name, "WORD")


def test_a_fault_inside_a_plugin_passes_through(family: str) -> None:
    with pytest.raises(RuntimeError, match="imported"):
        plugins.load(family, "broken", "WORD")


@pytest.mark.parametrize("package", ["no_such_package", "json.decoder"])
def test_a_package_that_is_none(package: str) -> None:
    with pytest.raises(NotFound, match="is not a package of plugins"):
        plugins.names(package)
