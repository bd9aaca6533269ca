"""The start page, the library, and the two pages that hold the component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from tests.support.studio import FakeClient
from walkgraph.client import Unreachable
from walkgraph.graph.language.syntax import FUNCTIONS
from walkgraph_editor import session
from walkgraph_editor.views.start import PICTURES

SCRIPT = """
import streamlit as st
from walkgraph_editor import session
from walkgraph_editor.views import {page}
session.set_pages({{name: name for name in ("start", "editor", "playground", "library")}})
st.switch_page = lambda page, query_params: st.session_state.update(went=(page, query_params))
st.page_link = lambda page, **words: st.session_state.update(link=page)
{page}.page()
"""
Opener = Callable[[str, Any], AppTest]


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Opener:
    def open_with(page: str, client: Any) -> AppTest:
        monkeypatch.setattr(session, "client", client if not isinstance(client, FakeClient) else lambda: client)
        app = AppTest.from_string(SCRIPT.format(page=page), default_timeout=300).run()
        assert not app.exception
        return app

    return open_with


def press(app: AppTest, key: str) -> AppTest:
    found = next(button for button in app.button if key in (button.key, button.label))
    app = found.click().run()
    assert not app.exception
    return app


def test_the_start_page_offers_what_runs_here(studio: Opener) -> None:
    client = FakeClient("shapes", "other", deployed=("shapes",))
    app = studio("start", client)
    assert [button.key for button in app.button if button.key and button.key.startswith(("try.", "go."))] == [
        "try.shapes",
        "go.other",
    ]
    app = press(app, "try.shapes")
    assert app.session_state["went"] == ("playground", {"deployment": "shapes"})
    app = press(app, "go.other")
    assert client.calls == [("deploy", "other")]
    assert app.session_state["went"] == ("playground", {"deployment": "other"})


def test_the_start_page_shows_examples_below_the_graphs(studio: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient("an_example", "mine", "other")
    tags = {"an_example": (True, ["example"]), "mine": (False, ["example"]), "other": (True, [])}
    entries = [
        {**entry, "bundled": tags[entry["name"]][0], "tags": tags[entry["name"]][1]} for entry in client.gallery()
    ]
    monkeypatch.setattr(client, "gallery", lambda: entries)
    app = studio("start", client)
    assert [head.value for head in app.subheader] == ["Examples"]
    opened = [button.key for button in app.button if button.key and button.key.startswith("open.")]
    assert opened == ["open.mine", "open.other", "open.an_example"]


def test_the_start_page_says_where_a_deployment_is_called(studio: Opener) -> None:
    app = studio("start", FakeClient("shapes", "other", deployed=("shapes",)))
    assert [code.value for code in app.code] == ["http://127.0.0.1:8421/v1/tasks/shapes"]
    assert [caption.value for caption in app.caption if "OpenAI" in caption.value] == [
        "Also over the OpenAI API: edits"
    ]


def test_a_refused_deploy_says_why(studio: Opener) -> None:
    app = press(studio("start", FakeClient("refused")), "go.refused")
    assert app.error[0].value == "there is no room for it"
    assert "went" not in app.session_state


@pytest.mark.parametrize(("name", "word"), [("1st", "starts with a letter"), ("shapes", "already")])
def test_a_new_graph_needs_a_name_of_its_own(studio: Opener, name: str, word: str) -> None:
    client = FakeClient("shapes")
    app = studio("start", client)
    app.text_input(key="new_name").set_value(name)
    app = press(app, "Create graph")
    assert word in app.error[0].value
    assert client.calls == []


def test_a_new_graph_opens_in_the_editor(studio: Opener) -> None:
    client = FakeClient("shapes")
    app = studio("start", client)
    app.text_input(key="new_name").set_value("mine")
    app = press(app, "Create graph")
    assert client.calls == [("put", "graph", "mine", {"format": "walkgraph/graph@1", "name": "mine"})]
    assert app.session_state["went"] == ("editor", {"graph": "mine"})


def test_one_press_draws_what_was_just_typed(studio: Opener) -> None:
    """The browser sends a field that is being typed into with its form's button alone, and by Enter."""
    app = studio("start", FakeClient("shapes"))
    field = app.text_input(key="new_name").proto
    button = next(button for button in app.button if button.label == "Create graph").proto
    assert field.form_id
    assert button.form_id == field.form_id
    assert not button.disabled


def test_a_graph_that_is_refused_is_not_opened(studio: Opener) -> None:
    app = studio("start", FakeClient("shapes"))
    app.text_input(key="new_name").set_value("refused")
    app = press(app, "Create graph")
    assert app.error[0].value == "there is no room for it"
    assert "went" not in app.session_state


def test_the_library_undeploys_and_filters(studio: Opener) -> None:
    client = FakeClient("shapes", "other", deployed=("shapes",))
    app = studio("library", client)
    assert app.dataframe[0].value["name"].tolist() == ["shapes", "other"]
    app = app.text_input[0].set_value("oth").run()
    assert app.dataframe[0].value["name"].tolist() == ["other"]
    app = app.text_input[0].set_value("nothing like it").run()
    assert "Nothing here" in app.info[0].value
    app = app.segmented_control[0].set_value("Deployments").run()
    app = press(app, "undeploy.shapes")
    assert client.calls == [("undeploy", "shapes")]
    assert "Nothing is deployed" in app.info[0].value


def test_the_models_page_imports_what_is_whole_and_says_what_is_missing(studio: Opener) -> None:
    client = FakeClient("shapes")
    app = studio("models", client)
    assert [warning.value for warning in app.warning] == ["`bad` lacks `x`"]
    assert [button.key for button in app.button] == ["import.good"]
    assert any("name" in caption.value and "folder" in caption.value for caption in app.caption)
    app = press(app, "import.good")
    assert [call[:3] for call in client.calls] == [("put", "graph", "good"), ("put", "placement", "good_one_cpu")]
    assert app.session_state["went"] == ("editor", {"graph": "good"})


def test_a_copy_gets_a_name_of_its_own_and_opens(studio: Opener) -> None:
    client = FakeClient("shapes", "shapes_copy")
    press(app := studio("start", client), "copy.shapes")
    assert [call[1:3] for call in client.calls] == [("graph", "shapes_copy_2")]
    assert client.calls[0][3]["name"] == "shapes_copy_2"
    assert app.session_state["went"] == ("editor", {"graph": "shapes_copy_2"})


def test_cards_have_pictures_of_results_and_true_badges(studio: Opener) -> None:
    client = FakeClient("shapes", "large", "drawn")
    rows = {row["name"]: row for row in client.gallery()}
    rows["large"] |= {"deployable": False, "needs_gpu": True, "random": True, "why": "it needs 29 GB"}
    rows["drawn"] |= {"deployable": False, "why": "it has no networks"}
    client.gallery = lambda: list(rows.values())  # type: ignore[method-assign]
    app = studio("start", client)
    said = [text.value for text in app.markdown]
    for words in ("runs here", "needs a GPU", "random weights", "doesn't run here"):
        assert sum(words in text for text in said) == 1, words
    pictures = {path.stem: path.stat().st_size for path in PICTURES.glob("*.png")}
    assert {"shapes", "reach", "world"} <= pictures.keys()
    assert max(pictures.values()) < 20_000


def test_the_page_of_expressions_gives_every_function_with_its_value(studio: Opener) -> None:
    app = studio("expressions", FakeClient())
    said = " ".join(text.value for text in app.markdown)
    assert all(f"{name}(" in said for name in FUNCTIONS)
    assert "| `flow_time(1, 5, 3.0)` | `0.8999999761581421` |" in said


def test_the_editor_without_a_graph_is_the_start_page(studio: Opener) -> None:
    app = studio("editor", FakeClient("shapes"))
    assert "open.shapes" in [button.key for button in app.button]


@pytest.mark.parametrize("page", ["playground", "trace"])
def test_a_page_of_deployments_leads_to_the_start_page_without_one(studio: Opener, page: str) -> None:
    app = studio(page, FakeClient("shapes"))
    assert app.session_state["link"] == "start"


@pytest.mark.parametrize("page", ["start", "editor", "playground", "trace", "models", "library", "keys"])
def test_without_a_service_a_page_says_what_to_do(studio: Opener, page: str) -> None:
    def none() -> None:
        raise Unreachable("no Walkgraph service is running; start one with `walkgraph up`")

    assert "walkgraph up" in studio(page, none).error[0].value
