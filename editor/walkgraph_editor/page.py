"""Streamlit's HTML page with a script of ours added: what to do when the service doesn't answer, and the theme."""

from __future__ import annotations

import html
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import file_util

from walkgraph.settings import Settings

_SCRIPT = Path(__file__).with_name("assets") / "connection.js"
_CONFIG = Path(__file__).parent / ".streamlit" / "config.toml"
_BASES = {"Light": 0, "Dark": 1}
"""Streamlit's numbers of the themes that ours change."""
_HEAD = "</head>"
_FILES = ("_stcore", "component", "media", "static")
"""First parts of paths that are files, not pages."""


def document(settings: Settings) -> str:
    """Streamlit's page with our script."""
    page = Path(file_util.get_static_dir(), "index.html").read_text("utf-8")
    given = {
        "command": start_command(settings),
        "port": Settings.model_fields["port"].default,
        "themes": json.dumps(themes()),
    }
    data = " ".join(f'data-{name}="{html.escape(str(value))}"' for name, value in given.items())
    return page.replace(_HEAD, f"<script {data}>{_SCRIPT.read_text('utf-8')}</script>{_HEAD}", 1)


def themes() -> dict[str, dict[str, Any]]:
    """The configured themes as Streamlit takes them from the page while it is open."""
    theme = tomllib.loads(_CONFIG.read_text("utf-8"))["theme"]
    shared = {name: value for name, value in theme.items() if not isinstance(value, dict)}
    return {name: {"base": base, **shared, **theme[name.lower()]} for name, base in _BASES.items()}


def start_command(settings: Settings) -> str:
    """The command that starts the service of this home again, without its port."""
    elsewhere = "home" in settings.model_fields_set
    return f"WALKGRAPH_HOME={shlex.quote(str(settings.home))} walkgraph up" if elsewhere else "walkgraph up"


class Pages:
    """Answers a browser's navigation to a page, and passes everything else to Streamlit."""

    def __init__(self, streamlit: ASGIApp, settings: Settings) -> None:
        self._streamlit = streamlit
        self._document = document(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = HTMLResponse(self._document, headers={"cache-control": "no-cache"}) if _is_page(scope) else None
        await (answer or self._streamlit)(scope, receive, send)


def _is_page(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in {"GET", "HEAD"}:
        return False
    name = scope["path"].removeprefix(scope.get("root_path", "")).strip("/")
    named = not any(sign in name for sign in "/.") and name not in _FILES
    return named and "text/html" in Headers(scope=scope).get("accept", "")
