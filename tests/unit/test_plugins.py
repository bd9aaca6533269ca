"""Plugins are listed from file names and imported one at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from walkgraph import components, plugins
from walkgraph.errors import Conflict, NotFound, Refused


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


def test_a_file_of_a_plugin_that_is_a_folder_is_loaded_by_its_dotted_name(family: str, tmp_path: Path) -> None:
    (tmp_path / family / "folder" / "part.py").write_text("WORD = 'part'\n")
    assert plugins.load(family, "folder.part", "WORD") == "part"
    with pytest.raises(NotFound, match=r"no `prat` in `plugin_family\.folder`.* `part`"):
        plugins.load(family, "folder.prat", "WORD")
    with pytest.raises(NotFound, match="is not a package"):
        plugins.load(family, "fixed.part", "WORD")


def test_plugins_that_have_a_file_are_listed_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("folders_of_a_test", "folders_of_a_test/one", "folders_of_a_test/two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "folders_of_a_test" / "two" / "part.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.having("folders_of_a_test", "part") == ("two",)
    assert not [name for name in sys.modules if name.startswith("folders_of_a_test.")]
    monkeypatch.delitem(sys.modules, "folders_of_a_test")


def test_what_a_plugin_does_not_have_is_its_fault_or_the_default(family: str) -> None:
    assert plugins.load(family, "sliding", "NONE", 3) == 3
    with pytest.raises(AttributeError):
        plugins.load(family, "sliding", "NONE")


def test_an_unknown_name_says_what_there_is_and_what_is_nearest(family: str) -> None:
    with pytest.raises(NotFound) as caught:
        plugins.load(family, "fixd", "WORD")
    assert str(caught.value) == (
        f"no `fixd` in `{family}`; there are [broken, fixed, folder, sliding]; did you mean `fixed`?"
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


# ── of other packages ──


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are installed in."""
    found = tmp_path / "site"
    found.mkdir()
    monkeypatch.syspath_prepend(found)
    before = set(sys.modules)
    yield found
    for name in set(sys.modules) - before:
        if name.startswith("pack_"):
            del sys.modules[name]


def install(site: Path, package: str, plugin: str, declared: str) -> None:
    (site / package).mkdir()
    (site / package / "__init__.py").write_text("")
    (site / package / "declared.py").write_text(declared)
    (site / package / "operators.py").write_text("class Blur:\n    pass\n")
    info = site / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{plugin} = {package}.declared\n")


BLUR = """
from walkgraph.graph.catalogue import Component
COMPONENTS = (Component(name="{name}", description="Blurs.", network="pack_blur.operators:Blur"),)
"""


def catalogue(monkeypatch: pytest.MonkeyPatch, listed: str) -> set[str]:
    monkeypatch.setenv("WALKGRAPH_PLUGINS", listed)
    monkeypatch.setattr(components, "_known", [])
    return set(components.catalogue())


def test_what_is_installed_is_used_only_where_it_is_listed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pack_blur", "blur", BLUR.format(name="blur.gauss"))
    assert "blur" in plugins.installed()
    assert "pack_blur" not in sys.modules
    assert "blur.gauss" not in catalogue(monkeypatch, "[]")
    assert "pack_blur" not in sys.modules
    assert {"blur.gauss", "media.picture_in"} <= catalogue(monkeypatch, '["blur"]')
    assert "pack_blur.operators" not in sys.modules
    plugins.require_listed(("blur",), "pack_blur.operators")


@pytest.mark.parametrize("module", ["os", "os.path", "walkgraph.settings", "pack_blurred.operators"])
def test_no_other_module_may_be_loaded_for_a_plug_in(site: Path, module: str) -> None:
    install(site, "pack_blur", "blur", BLUR.format(name="blur.gauss"))
    with pytest.raises(Refused, match="no plug-in"):
        plugins.require_listed(("blur",), module)
    with pytest.raises(Refused, match="no plug-in"):
        plugins.require_listed((), "pack_blur.operators")


@pytest.mark.parametrize("name", ["media.picture_in", "other.gauss", "blur"])
def test_a_plug_in_takes_no_name_but_its_own(site: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install(site, "pack_blur", "blur", BLUR.format(name=name))
    with pytest.raises(Conflict, match="begin with `blur"):
        catalogue(monkeypatch, '["blur"]')


def test_a_plug_in_is_not_named_as_a_family(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pack_blur", "media", BLUR.format(name="media.gauss"))
    with pytest.raises(Conflict, match="rename its entry point"):
        catalogue(monkeypatch, '["media"]')


def test_two_packages_with_one_name_are_told(site: Path) -> None:
    install(site, "pack_blur", "blur", BLUR.format(name="blur.gauss"))
    install(site, "pack_two", "blur", BLUR.format(name="blur.gauss"))
    with pytest.raises(Conflict, match="uninstall one"):
        plugins.installed()


def test_what_is_listed_and_can_not_be_had_is_told(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pack_blur", "blur", "raise RuntimeError('secret')")
    with pytest.raises(NotFound, match="did you mean `blur`"):
        catalogue(monkeypatch, '["blurr"]')
    with pytest.raises(Refused, match="RuntimeError") as told:
        catalogue(monkeypatch, '["blur"]')
    assert "secret" not in str(told.value)
