"""Documents given to a verb: a file, or the name of a bundled one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from walkgraph import resources
from walkgraph.errors import InvalidInput, NotFound


def read(given: str, kind: resources.Kind) -> Any:
    """The value of a document. Raises NotFound for an unknown name, InvalidInput for a file that isn't JSON."""
    from walkgraph.graph.reading.guard import read_json

    path = Path(given)
    if not path.is_file():
        known = resources.bundled(kind)
        if given not in known:
            raise NotFound(f"`{given}` is neither a file nor one of the bundled {kind}: {', '.join(known)}")
        path = known[given]
    try:
        return read_json(path.read_bytes())
    except OSError:
        raise InvalidInput(f"`{path}` can't be read; check its permissions") from None


def name_or_value(given: str, kind: resources.Kind) -> Any:
    """The argument for the service: the content of a file, or a name that the service knows. Raises like `read`."""
    if not Path(given).is_file() and (given.endswith(".json") or "/" in given):
        raise NotFound(f"there is no file `{given}`")
    return read(given, kind) if Path(given).is_file() else given
