"""Drawings of whatever a draft holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkgraph_editor import dot

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["nodes", "walks", "edges", "body", "from", "to", "component", "as", "use"]) | st.text(),
            inner,
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("name", ["shapes", "bagel", "qwen3_omni", "synthetic_loops"])
def test_bundled_graphs_show_every_node(repository: Path, name: str) -> None:
    document = json.loads((repository / "graphs" / f"{name}.json").read_text())
    drawn = dot.draw(document)
    for node in document["nodes"]:
        assert f'"{node}" [label=' in drawn
    for walk in document["walks"]:
        assert dot.draw(document, walk).count(" -> ") <= drawn.count(" -> ")


def test_uses_with_names_of_their_own_stand_for_their_node() -> None:
    walk = {"body": [{"use": "a", "as": "first"}, "b"], "edges": [["first.x", "b.x"], ["@loop.index", "b.i"]]}
    drawn = dot.draw({"nodes": {"a": {}, "b": {}}, "walks": {"w": walk}})
    assert '"a" -> "b";' in drawn
    assert "@loop" not in drawn


@given(JSON)
def test_any_draft_can_be_drawn(document: object) -> None:
    drawn = dot.draw(document if isinstance(document, dict) else {"nodes": document, "walks": document})
    assert drawn.startswith("digraph {")


@given(st.text())
def test_a_name_never_leaves_its_quotes(name: str) -> None:
    inside = dot.quoted(name)[1:-1]
    assert not inside.replace("\\\\", "").replace('\\"', "").count('"')
    assert not inside.replace("\\\\", "").endswith("\\")
