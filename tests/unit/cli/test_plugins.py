"""`walkgraph new component` and `walkgraph plugins`: files, lists, and what is told; pip is a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from walkgraph import components, plugins
from walkgraph.cli import packages
from walkgraph.settings import Settings, added_plugins, list_plugins

Call = Callable[..., int]
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(components, "_known", [])
    return tmp_path


@pytest.fixture
def pip(here: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Records the arguments of pip; an installation leaves what pip leaves."""
    called: list[tuple[str, ...]] = []
    site = here / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def run(*words: str) -> None:
        called.append(words)
        info = site / "walkgraph_photo-0.1.0.dist-info"
        if words[0] == "uninstall":
            for path in info.iterdir():
                path.unlink()
            info.rmdir()
            return
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walkgraph-photo\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text("[walkgraph.functions]\nphoto = walkgraph_photo\n")
        (info / "RECORD").write_text("_photo.pth,,\n")
        (site / "_photo.pth").write_text(f"{words[2]}\n")

    monkeypatch.setattr(packages, "_pip", run)
    return called


def told(capsys: Output) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_component_goes_from_nothing_to_the_palette_and_away(
    walkgraph: Call, capsys: Output, here: Path, pip: list[tuple[str, ...]]
) -> None:
    assert walkgraph("new", "component", "photo.soften", "--in", "mine", "--json") == 0
    made = told(capsys)
    assert made["component"] == "photo.soften"
    assert Path(made["file"]).is_file()
    assert walkgraph("new", "component", "photo.soften", "--in", "mine") == 1
    assert "exists already" in capsys.readouterr().err
    assert walkgraph("plugins", "add", "mine/photo") == 0
    assert pip[0][:3] == ("install", "--editable", str(here / "mine" / "photo"))
    assert capsys.readouterr().out == "photo is added: photo.soften\n"
    assert "photo.soften" in components.catalogue()
    assert walkgraph("plugins", "list", "--json") == 0
    [shown] = [one for one in told(capsys) if one["name"] == "photo"]
    assert (shown["listed"], shown["components"], shown["problem"]) == ("here", ["photo.soften"], None)
    assert walkgraph("plugins", "remove", "photo") == 0
    assert pip[1:] == [("uninstall", "--yes", "walkgraph-photo")]
    assert added_plugins(Settings().home) == ()
    assert components.renew()
    assert "photo.soften" not in components.catalogue()


def test_a_mistake_is_told_before_anything_is_installed(
    walkgraph: Call, capsys: Output, pip: list[tuple[str, ...]]
) -> None:
    assert walkgraph("new", "component", "photo.soften") == 0
    Path("photo/walkgraph_photo/__init__.py").write_text("def soften(x) -> str:\n    '''A.'''\n")
    capsys.readouterr()
    assert walkgraph("plugins", "add", "photo") == 1
    assert "walkgraph_photo/__init__.py:1: argument `x` has no type" in capsys.readouterr().err
    assert pip == []
    assert added_plugins(Settings().home) == ()


PROJECTS = {
    None: "is not there; name the plug-in's folder",
    "[project\n": "can't be read",
    "[project]\nname = 'a'\n": "names no plug-in; it needs",
    "[project.entry-points.'walkgraph.functions']\nmedia = 'a'\n": "as one of Walkgraph's families is",
}


@pytest.mark.parametrize(("text", "message"), PROJECTS.items())
def test_a_folder_that_is_no_plug_in_is_told(
    walkgraph: Call, capsys: Output, here: Path, text: str | None, message: str
) -> None:
    (here / "a").mkdir()
    if text is not None:
        (here / "a" / "pyproject.toml").write_text(text)
    assert walkgraph("plugins", "add", "a") == 1
    assert message in capsys.readouterr().err


def test_what_was_not_added_here_is_not_removed(
    walkgraph: Call, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert walkgraph("plugins", "remove", "photo") == 1
    assert "was not added here; see" in capsys.readouterr().err
    monkeypatch.setenv("WALKGRAPH_PLUGINS", '["photo"]')
    assert walkgraph("plugins", "remove", "photo") == 1
    assert "take it out of WALKGRAPH_PLUGINS" in capsys.readouterr().err
    list_plugins(Settings(), ["gone"])
    assert walkgraph("plugins", "list") == 0
    assert "the plug-in `gone` is not installed" in capsys.readouterr().out
    assert walkgraph("plugins", "remove", "gone") == 0


def test_a_component_is_not_named_as_a_family(walkgraph: Call, capsys: Output) -> None:
    assert plugins.names(plugins.MODELS)
    assert walkgraph("new", "component", "media.soften") == 1
    assert "one of Walkgraph's own families" in capsys.readouterr().err
    assert walkgraph("new", "shapes", "more") == 1
    assert "takes one name" in capsys.readouterr().err


def test_what_pip_says_is_told(walkgraph: Call, capsys: Output, here: Path) -> None:
    (here / "a").mkdir()
    (here / "a" / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'none'\nbackend-path = ['.']\n"
        "[project]\nname = 'a'\nversion = '1'\n[project.entry-points.'walkgraph.functions']\na_a = 'a'\n"
    )
    assert walkgraph("plugins", "add", "a") == 1
    assert "`pip install` failed" in capsys.readouterr().err
    assert added_plugins(Settings().home) == ()
