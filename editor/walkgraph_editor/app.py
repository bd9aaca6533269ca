"""The studio: navigation and nothing else."""

from pathlib import Path

import streamlit as st

from walkgraph_editor.pages import playground

ASSETS = Path(__file__).with_name("assets")

st.set_page_config(page_title="Walkgraph", page_icon=ASSETS / "icon.png", layout="wide")
st.logo(ASSETS / "logo.svg", size="large", icon_image=ASSETS / "icon.png")
st.navigation(
    [st.Page(playground.page, title="Playground", icon=":material/play_circle:", url_path="playground", default=True)],
    position="top",
).run()
