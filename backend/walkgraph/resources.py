"""The bundled documents: graphs and placements, in a checkout and in a wheel alike."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent

Kind = Literal["graphs", "placements"]


def bundled(kind: Kind) -> dict[str, Path]:
    """Return the bundled documents of one kind by name (`shapes` -> `.../shapes.json`), sorted by name."""
    return {path.stem: path for path in sorted(_folder(kind).glob("*.json"))}


def _folder(kind: Kind) -> Path:
    # A wheel carries the folders inside the package; an editable install leaves them at the top of the checkout.
    installed = _PACKAGE / "_bundled" / kind
    return installed if installed.is_dir() else _CHECKOUT / kind
