"""Which adapter a thing of a plug-in needs: none for an operator's class, others for functions, modules and files."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, Protocol, cast

from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.adapters.functions import FunctionNetwork
from walkgraph.adapters.reporting import Reporter
from walkgraph.errors import Refused, WalkgraphError


class Network(Protocol):
    """What a component's `network` stands for: it loads operators."""

    @property
    def options(self) -> tuple[str, ...]:
        """Parameters that `load` reads."""
        ...

    def load(self, context: LoadContext) -> Operator: ...


def adapted(module: str, attribute: str) -> Network:
    """Import a plug-in's module and give the network of one of its attributes. Raises Refused, with the plug-in's own
    file and line, if it can't be imported."""
    try:
        there = importlib.import_module(module)
        found: Any = getattr(there, attribute)
    except WalkgraphError:
        raise
    except (Exception, SystemExit) as raised:  # noqa: BLE001 (a plug-in's file may raise anything)
        raise Reporter(attribute, _package(module)).not_loaded(raised) from None
    if isinstance(found, type):
        return cast("Network", found)  # an operator's class
    if callable(found):
        return FunctionNetwork(there, attribute)
    raise Refused(f"`{attribute}` of `{module}` is neither an operator nor a function")


def _package(module: str) -> Path:
    """The folder, or the file, of the package that a module belongs to."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0] if places else (spec and spec.origin) or ".")
