"""The bundled documents: graphs, examples and placements, in a checkout and in a wheel alike."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent

Kind = Literal["graphs", "examples", "placements"]
"""`examples` are small graphs that show how to do something with the starters."""


def bundled(kind: Kind) -> dict[str, Path]:
    """Return the bundled documents of one kind by name (`shapes` -> `.../shapes.json`), sorted by name."""
    return {path.stem: path for path in sorted(_folder(kind).glob("*.json"))}


def stored_as_graphs() -> dict[str, Path]:
    """The bundled documents that the service keeps as graphs: graphs, and examples."""
    return bundled("graphs") | bundled("examples")


def _folder(kind: Kind) -> Path:
    if kind == "examples":
        return _folder("graphs") / "examples"
    # A wheel carries the folders inside the package; an editable install leaves them at the top of the checkout.
    installed = _PACKAGE / "_bundled" / kind
    return installed if installed.is_dir() else _CHECKOUT / kind
