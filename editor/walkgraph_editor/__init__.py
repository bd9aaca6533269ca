"""The node editor: a Streamlit shell around one React Flow component."""
