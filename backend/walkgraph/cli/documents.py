"""Documents given to a verb: a file, or the name of a bundled one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkgraph import resources
from walkgraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from walkgraph.service.deployments.task_graphs import KnownGraphs


def read(given: str, kind: resources.Kind) -> Any:
    """The value of a document. Raises NotFound for an unknown name, InvalidInput for a file that isn't JSON."""
    from walkgraph.graph.reading.guard import read_json

    path = Path(given)
    if not path.is_file():
        known = resources.stored_as_graphs() if kind == "graphs" else resources.bundled(kind)
        if given not in known:
            raise NotFound(f"`{given}` is neither a file nor one of the bundled {kind}: {', '.join(known)}")
        path = known[given]
    try:
        return read_json(path.read_bytes())
    except OSError:
        raise InvalidInput(f"`{path}` can't be read; check its permissions") from None


def callable_from(given: str, value: Any) -> KnownGraphs:
    """The graphs whose tasks a graph may call without a service: the bundled ones, and the files `NAME.json` beside
    it, which go first."""
    from walkgraph.graph.checks.called import called_graphs
    from walkgraph.service.deployments.task_graphs import KnownGraphs

    found: dict[str, Any] = {}
    left = called_graphs(value)
    bundled = resources.stored_as_graphs()
    while left:
        name, *_ = sorted(left)
        beside = Path(given).parent / f"{name}.json"
        path = str(beside) if Path(given).is_file() and beside.is_file() else name if name in bundled else None
        found[name] = read(path, "graphs") if path is not None else None
        left = (left | called_graphs(found[name])) - found.keys()
    return KnownGraphs({name: document for name, document in found.items() if document is not None})


def name_or_value(given: str, kind: resources.Kind) -> Any:
    """The argument for the service: the content of a file, or a name that the service knows. Raises like `read`."""
    if not Path(given).is_file() and (given.endswith(".json") or "/" in given):
        raise NotFound(f"there is no file `{given}`")
    return read(given, kind) if Path(given).is_file() else given
