"""Chooses the adapter for an attribute of a plug-in: none for an operator, others for functions, modules and files."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from torch import nn

from walkgraph import wrap
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.adapters.functions import FunctionNetwork
from walkgraph.adapters.modules import ModuleNetwork
from walkgraph.adapters.onnx_models import OnnxNetwork
from walkgraph.adapters.pretrained import PretrainedNetwork
from walkgraph.adapters.reporting import Reporter
from walkgraph.errors import Refused, WalkgraphError
from walkgraph.functions.reading import declared


class Network(Protocol):
    """The meaning of a component's `network`: it loads operators."""

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
    if isinstance(found, type) and not issubclass(found, nn.Module):
        return cast("Network", found)  # an operator's class
    if not callable(found) and not isinstance(found, wrap.Transformers | wrap.Onnx):
        raise Refused(f"`{attribute}` of `{module}` is neither an operator, a function nor a wrapped model")
    return _read(there, attribute, found)


def _read(module: ModuleType, attribute: str, found: Any) -> Network:
    """The network of a thing whose ports are read from its source. Raises Unreadable, and Refused for a thing that is
    no component there."""
    path, package = _files(module)
    known = declared(path, path.relative_to(package.parent).as_posix(), module.__name__, package.stem)
    if attribute not in known:
        raise Refused(f"`{attribute}` is no component of `{path.name}` any more; restart the deployment with its graph")
    one = known[attribute]
    reporter = Reporter(attribute, package)
    match found:
        case wrap.Transformers():
            return PretrainedNetwork(one.signature, found, reporter)
        case wrap.Onnx():
            return OnnxNetwork(one.signature, found, reporter)
        case type():
            return ModuleNetwork(one, found, reporter)
        case _:
            batched = getattr(module, one.signature.batched) if one.signature.batched else None
            return FunctionNetwork(one.signature, found, batched, reporter)


def _files(module: ModuleType) -> tuple[Path, Path]:
    """The module's file, and the folder (or file) of the package that it belongs to."""
    path = Path(inspect.getfile(module))
    own = path.parent if path.name == "__init__.py" else path
    depth = module.__name__.count(".")
    return path, own.parents[depth - 1] if depth else own


def _package(module: str) -> Path:
    """The folder, or the file, of the package that a module belongs to."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0] if places else (spec and spec.origin) or ".")
