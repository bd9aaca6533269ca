"""How the documentation is built: `./dev docs`. Needs no network, and imports no torch."""

import gc
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Looking for garbage among the pages again and again took two fifths of a build. It ends soon, with 0.7 GB.
gc.disable()

project = "Walkgraph"
author = "Walkgraph"
html_title = "Walkgraph"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "made"]
exclude_patterns = ["_build", "made"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.xref_ambiguous"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"source_edit_link": ""}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp, .go"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options: dict[str, Any] = {"members": True, "undoc-members": True}
python_use_unqualified_type_names = True
nitpick_ignore_regex = [("py:.*", ".*")]
"""Names of types in signatures; links between pages are all checked."""

_CODE = re.compile(r"^(async )?(with|for|def|class|import|from) .*|^[a-z_]+ = .*")


def _paragraphs(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return found


def _as_text(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings here are plain text; those of their paragraphs that are programs are shown as such."""
    shown: list[str] = []
    for part in filter(None, _paragraphs(lines)):
        program = all(line.startswith("    ") for line in part) or _CODE.match(part[0])
        if program and not (shown and shown[-2].startswith("    ")):
            shown += [".. code-block:: python", ""]
        shown += [*(("    " if program else "") + line for line in part), ""]
    lines[:] = shown


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _as_text)
