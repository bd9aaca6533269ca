"""The files of a new plug-in make a component and a graph that fit each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.functions.reading import declared
from walkgraph.functions.template import files, named
from walkgraph.graph.check import check


@pytest.mark.parametrize("given", ["photo.sharpen", "sharpen", "a1.b_2"])
def test_the_graph_uses_the_component(tmp_path: Path, given: str) -> None:
    name = named(given)
    for path, text in files(name).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    path = tmp_path / name.package / "__init__.py"
    found = declared(path, path.name, name.package, name.plugin)
    assert list(found) == [name.function]
    known = {**catalogue(), name.component: found[name.function].component}
    assert check(json.loads((tmp_path / f"{name.function}.json").read_text()), known).problems == ()


def test_no_word_of_the_template_is_left() -> None:
    for text in files(named("photo.sharpen")).values():
        assert not {"PLUGIN", "FUNCTION", "PACKAGE"} & set(text.replace("`", " ").replace(".", " ").split())


@pytest.mark.parametrize("given", ["", "Photo", "1a", "a.b.c", "a b", "../a", "a.class", "a" * 41, "a-b"])
def test_what_is_no_name_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="can't be a component's name"):
        named(given)
