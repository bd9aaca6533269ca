"""Plug-ins of functions: found and read without importing them, read again when they change, kept when they break."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from walkgraph import components, plugins
from walkgraph.errors import Conflict, NotFound, Refused
from walkgraph.functions.finding import source_file
from walkgraph.functions.source import Unreadable
from walkgraph.service.deployments.judging import judge_anew
from walkgraph.service.deployments.task_graphs import NO_GRAPHS
from walkgraph.settings import Settings, added_plugins, list_plugins

SIDE_EFFECT = "import pathlib\npathlib.Path(__file__).with_name('imported').touch()\nraise SystemExit(9)\n"
FUNCTION = 'def {name}(text: str, *, k: int = {default}) -> str:\n    """Says it."""\n    return text\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that packages are installed in; the palette of the other tests is left alone."""
    found = tmp_path / "site"
    found.mkdir()
    monkeypatch.syspath_prepend(found)
    monkeypatch.setattr(components, "_known", [])
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WALKGRAPH_PLUGINS", '["say"]')
    yield found
    assert not [name for name in sys.modules if name.startswith("pack_say")], "it was imported"


def install(site: Path, code: str, *, plugin: str = "say", editable: bool = False, module: str = "pack_say") -> Path:
    """Install a package; returns its file."""
    folder = site.parent / "source" if editable else site
    file = folder / module.replace(".", "/") / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text(code)
    for parent in file.parent.relative_to(folder).parents[:-1]:
        (folder / parent / "__init__.py").write_text(SIDE_EFFECT)
    info = site / f"pack_{plugin}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pack_{plugin}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{plugins.FUNCTIONS}]\n{plugin} = {module}\n")
    if editable:
        (site / "_pack.pth").write_text(f"import sys\n{folder}\n")
        (info / "RECORD").write_text(f"_pack.pth,,\npack_{plugin}-1.dist-info/METADATA,,\n")
    return file


@pytest.mark.parametrize("editable", [False, True])
@pytest.mark.parametrize("module", ["pack_say", "pack_say.inner"])
def test_no_file_of_it_is_imported(site: Path, editable: bool, module: str) -> None:
    file = install(site, SIDE_EFFECT + FUNCTION.format(name="loud", default=1), editable=editable, module=module)
    made = components.catalogue()["say.loud"]
    assert made.network == f"{module}:loud"
    assert components.renew() is False
    with file.open("a") as code:
        code.write(FUNCTION.format(name="soft", default=1))
    assert components.renew() is True
    assert "say.soft" in components.catalogue()
    assert not list(site.parent.rglob("imported"))


def test_what_has_changed_is_read_again(site: Path) -> None:
    file = install(site, FUNCTION.format(name="loud", default=1))
    before = components.catalogue()
    assert before["say.loud"].params["k"].default == 1
    file.write_text(FUNCTION.format(name="loud", default=25))
    assert components.catalogue() is before
    assert components.renew()
    assert components.catalogue()["say.loud"].params["k"].default == 25
    assert not components.renew()


def test_one_that_breaks_stays_as_it_was_and_is_told_to_those_who_use_it(site: Path) -> None:
    file = install(site, FUNCTION.format(name="loud", default=1))
    assert NO_GRAPHS.catalogue is components.catalogue()
    file.write_text("def loud(text) -> str:\n    pass\n")
    assert components.renew()
    assert components.catalogue()["say.loud"].params["k"].default == 1
    with pytest.raises(Unreadable, match=r"pack_say/__init__.py:1: argument `text` has no type"):
        judge_anew({"nodes": {"a": {"component": "say.loud"}}}, None, ())
    for other in ({"nodes": {"a": {"component": "media.picture_in"}}}, {"nodes": {"a": 3}}, {"nodes": []}, 3):
        assert judge_anew(other, None, ()).plan is None
    file.write_text(FUNCTION.format(name="loud", default=2))
    assert components.renew()
    assert components.faults() == {}
    assert NO_GRAPHS.catalogue is components.catalogue()


MODEL = """
from walkgraph import wrap
embed = wrap.transformers(
    "BertModel",
    inputs={"input_ids": "tokens: int[n]"},
    outputs={"pooler_output": "features: float[c]"},
    description="A.",
)
"""


def test_text_nodes_read_the_tokenizer_of_a_wrapped_model(site: Path) -> None:
    file = install(site, FUNCTION.format(name="loud", default=1))
    assert "say_embed" not in components.catalogue()["text.tokenizer"].fitting
    file.write_text(MODEL)
    assert components.renew()
    assert components.catalogue()["say.embed"].fitting == ("say_embed",)
    assert components.families()["say_embed"].components == {"say.embed": ("weights",)}
    assert "say_embed" in components.catalogue()["text.tokenizer"].fitting


def test_one_that_can_not_be_read_at_the_start_is_told(site: Path) -> None:
    install(site, "x = 1\n")
    with pytest.raises(Unreadable, match="there is no component"):
        components.catalogue()


def test_one_whose_file_is_gone_is_told(site: Path) -> None:
    file = install(site, FUNCTION.format(name="loud", default=1))
    file.unlink()
    with pytest.raises(Unreadable, match="no file of it is installed"):
        source_file(plugins.installed()["say"])


def test_one_with_the_name_of_a_family_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, FUNCTION.format(name="loud", default=1), plugin="media")
    monkeypatch.setenv("WALKGRAPH_PLUGINS", '["media"]')
    with pytest.raises(Conflict, match="rename its entry point"):
        components.catalogue()


def test_the_homes_list_counts_too(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, FUNCTION.format(name="loud", default=1))
    monkeypatch.setenv("WALKGRAPH_PLUGINS", "[]")
    assert "say.loud" not in components.catalogue()
    settings = Settings()
    list_plugins(settings, ["say"])
    assert added_plugins(settings.home) == settings.all_plugins() == ("say",)
    assert components.renew()
    assert "say.loud" in components.catalogue()
    list_plugins(settings, ["say", "none"])
    assert components.renew()
    assert isinstance(components.faults()["none"], NotFound)
    assert "say.loud" in components.catalogue()


def test_a_list_that_is_damaged_later_changes_nothing(site: Path) -> None:
    install(site, FUNCTION.format(name="loud", default=1))
    before = components.catalogue()
    (Settings().home).mkdir()
    (Settings().home / "plugins.json").write_text("{")
    assert not components.renew()
    assert components.catalogue() is before


@pytest.mark.parametrize("text", ["", "{", "3", '{"say": 1}', "[3]"])
def test_a_damaged_list_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "plugins.json").write_text(text)
    with pytest.raises(Refused, match="must be a JSON list of names"):
        added_plugins(tmp_path)
