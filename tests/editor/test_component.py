"""The component as pages mount it: its data, its state, and nothing that changes between reruns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import walkgraph_editor
from walkgraph_editor import component

MANIFEST = Path(walkgraph_editor.__file__).with_name("pyproject.toml")


class Mounted:
    """Stands for Streamlit's mount callable: remembers how it was called."""

    def __init__(self, doc: Any = None) -> None:
        self.doc = doc
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **given: Any) -> Any:
        self.calls.append(given)
        return self


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> Mounted:
    found = Mounted()
    monkeypatch.setattr(component, "_component", lambda: found)
    return found


def test_the_document_is_given_by_name_alone(mounted: Mounted) -> None:
    assert component.graph_editor("editor", "shapes", tab="deploy", load=2) is None
    (call,) = mounted.calls
    assert call["key"] == "editor"
    assert call["data"] == {"v": 1, "mode": "edit", "graph": "shapes", "tab": "deploy", "load": 2, "report": True}
    assert callable(call["on_doc_change"]), "without a callback Streamlit keeps no state"


def test_what_is_no_tab_is_left_out(mounted: Mounted) -> None:
    component.graph_editor("editor", "shapes", tab="<script>")
    assert mounted.calls[0]["data"]["tab"] is None


def test_equal_calls_give_equal_bytes(mounted: Mounted) -> None:
    for _ in range(2):
        component.graph_editor("editor", "shapes")
    first, second = (json.dumps(call["data"]) for call in mounted.calls)
    assert first == second


def test_how_the_document_stands_comes_back(mounted: Mounted) -> None:
    mounted.doc = {"name": "shapes", "rev": 3, "etag": '"e"', "dirty": False, "errors": 1, "warnings": 0}
    assert component.graph_editor("editor", "shapes") == mounted.doc


def test_the_playground_is_given_a_deployment(mounted: Mounted) -> None:
    component.playground("playground", "shapes")
    assert mounted.calls[0]["data"] == {"v": 1, "mode": "play", "deployment": "shapes", "load": 0}


def test_the_trace_is_given_a_deployment(mounted: Mounted) -> None:
    component.trace("trace", "shapes")
    assert mounted.calls[0]["data"] == {"v": 1, "mode": "trace", "deployment": "shapes", "load": 0}


def test_the_bundle_is_the_one_that_the_manifest_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(component, "component", lambda name, **given: asked.update(name=name, **given))
    component._component.__wrapped__()
    assert asked == {"name": "walkgraph-editor.editor", "js": "index-*.js"}
    assert 'name = "walkgraph-editor"' in MANIFEST.read_text()
    assert 'name = "editor"' in MANIFEST.read_text()


def test_a_page_mounts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a script run, with Streamlit's own component machinery and a module in place of the bundle."""
    import streamlit as st

    made = st.components.v2.component("editor_for_a_test", js="export default function () {\n  return () => {}\n}")
    monkeypatch.setattr(component, "_component", lambda: made)

    def script() -> None:
        import streamlit

        from walkgraph_editor.component import graph_editor

        streamlit.write(repr(graph_editor("editor", "shapes")))

    app = AppTest.from_function(script).run()
    assert not app.exception
    (element,) = app.get("bidi_component")
    assert json.loads(element.proto.json)["graph"] == "shapes"
    assert app.markdown[0].value == "None"
