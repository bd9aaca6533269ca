"""The studio's navigation."""

from pathlib import Path

import streamlit as st

from walkgraph_editor import session
from walkgraph_editor.views import editor, expressions, keys, library, models, playground, settings, start, trace

ASSETS = Path(__file__).with_name("assets")

st.set_page_config(page_title="Walkgraph", page_icon=ASSETS / "icon.png", layout="wide")
st.logo(ASSETS / "logo.svg", size="large", icon_image=ASSETS / "icon.png")
PAGES = {
    "start": st.Page(start.page, title="Start", icon=":material/home:", url_path="start", default=True),
    "editor": st.Page(editor.page, title="Editor", icon=":material/account_tree:", url_path="editor"),
    "playground": st.Page(playground.page, title="Playground", icon=":material/play_circle:", url_path="playground"),
    "trace": st.Page(trace.page, title="Trace", icon=":material/timeline:", url_path="trace"),
    "models": st.Page(models.page, title="Models", icon=":material/deployed_code:", url_path="models"),
    "library": st.Page(library.page, title="Library", icon=":material/folder_open:", url_path="library"),
    "expressions": st.Page(expressions.page, title="Expressions", url_path="expressions", visibility="hidden"),
    "keys": st.Page(keys.page, title="Keys", icon=":material/key:", url_path="keys"),
    "settings": st.Page(settings.page, title="Settings", icon=":material/settings:", url_path="settings"),
}
session.set_pages(PAGES)
st.navigation(list(PAGES.values()), position="top").run()
