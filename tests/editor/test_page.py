"""The page that Streamlit's frontend starts in: a browser gets ours, all else is Streamlit's."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from walkgraph.settings import Settings
from walkgraph_editor.page import Pages, document, start_command

BROWSER = {"accept": "text/html,application/xhtml+xml"}


async def _streamlit(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("Streamlit's own")


@pytest.fixture(scope="module")
def mounted() -> TestClient:
    streamlit = Starlette(routes=[Route("/{path:path}", _streamlit, methods=["GET", "POST"])])
    return TestClient(Starlette(routes=[Mount("/studio", Pages(streamlit, Settings()))]))


@pytest.mark.parametrize("path", ["", "editor", "editor?graph=shapes", "no_such_page"])
def test_a_browser_gets_the_page_with_our_script_before_all_modules(mounted: TestClient, path: str) -> None:
    answer = mounted.get(f"/studio/{path}", headers=BROWSER)
    assert answer.headers["cache-control"] == "no-cache"
    ours = answer.text.index("blockErrorDialogs")
    assert ours < answer.text.index("</head>")
    assert answer.text.count("</html>") == 1


@pytest.mark.parametrize("path", ["favicon.png", "static/js/index.js", "_stcore/health", "media/a1b2", "static"])
def test_files_and_calls_are_streamlits(mounted: TestClient, path: str) -> None:
    assert mounted.get(f"/studio/{path}", headers=BROWSER).text == "Streamlit's own"


def test_who_asks_for_no_page_gets_none(mounted: TestClient) -> None:
    assert mounted.get("/studio/editor", headers={"accept": "application/json"}).text == "Streamlit's own"
    assert mounted.post("/studio/editor", headers=BROWSER).text == "Streamlit's own"


def test_the_command_names_a_home_that_is_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WALKGRAPH_HOME", raising=False)
    assert start_command(Settings()) == "walkgraph up"
    home = tmp_path / "a home"
    assert start_command(Settings(home=home)) == f"WALKGRAPH_HOME='{home}' walkgraph up"
    assert f'data-command="WALKGRAPH_HOME=&#x27;{home}&#x27; walkgraph up"' in document(Settings(home=home))
