"""The library of blueprints, and what makes, opens and copies them in a graph."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from fastapi import APIRouter

from walkgraph.errors import InvalidInput
from walkgraph.graph.blueprints import library
from walkgraph.graph.blueprints.packing import pack, pack_walk, unpack
from walkgraph.graph.catalogue import Catalogue, blueprint_of
from walkgraph.graph.codec import dump
from walkgraph.graph.document import Graph
from walkgraph.graph.language.shaping import component_of
from walkgraph.service.deployments import documents
from walkgraph.service.deployments.judging import check_graph, off_loop, resolve
from walkgraph.service.deployments.task_graphs import KnownGraphs
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.http.problems import Fault, Unprocessable
from walkgraph.service.schemas.answers import Answer
from walkgraph.service.schemas.resources import EntryRequest, PackRequest, TakeRequest, UnpackRequest
from walkgraph.store import queries
from walkgraph.wire.answers.documents import Edited

T = TypeVar("T")
router = APIRouter(route_class=StrictRoute)
_extra = APIRouter(prefix="/api/v1/blueprints", tags=["blueprints"], route_class=StrictRoute)


class _Given(NamedTuple):
    document: Any
    known: KnownGraphs


@_extra.post("/pack")
async def make(services: ServicesDep, request: PackRequest) -> Answer[Edited]:
    """Make a blueprint of some items of a Walk; a node in their place stands for it. Stores nothing. Raises
    Unprocessable where they can't be taken out."""

    def made(graph: Graph, catalogue: Catalogue) -> Edited:
        types = _Types(graph, catalogue)
        return _edited(pack(graph, request.walk, request.items, request.name, types), request.name)

    return await _changed(services, request.graph, made)


@_extra.post("/unpack")
async def open_(services: ServicesDep, request: UnpackRequest) -> Answer[Edited]:
    """Put a copy of its blueprint in the place of a node. Stores nothing. Raises Unprocessable where the copy couldn't
    be drawn."""
    return await _changed(services, request.graph, lambda graph, _: _edited(unpack(graph, request.node), ""))


@_extra.post("/take")
async def take(services: ServicesDep, request: TakeRequest) -> Answer[Edited]:
    """Copy a blueprint into a graph, from the library or a file, or update a copy: wires that still fit stay. Stores
    nothing."""
    value, version = request.blueprint, None
    if isinstance(value, str):
        row = await services.store.read(queries.get_document, "blueprint", value)
        value, version = (await resolve(services.store, "blueprint", value)).value, row.etag
    return await _changed(
        services, request.graph, lambda graph, _: _edited(*library.take(graph, value, version, request.replaces))
    )


@_extra.post("/entry")
async def entry(services: ServicesDep, request: EntryRequest) -> dict[str, Any]:
    """A blueprint of a graph, or one of its Walks, as a document for the library or a file. Stores nothing."""

    def made(graph: Graph, catalogue: Catalogue) -> dict[str, Any]:
        if request.walk is None:
            return library.entry(graph, request.blueprint or "")
        blueprint = pack_walk(graph, request.walk, _Types(graph, catalogue))
        return library.written(request.walk, blueprint, graph.blueprints)

    return await _changed(services, request.graph, made)


async def _changed(services: ServicesDep, given: Any, change: Callable[[Graph, Catalogue], T]) -> T:
    found = await resolve(services.store, "graph", given)
    known = await services.task_graphs.around(found.value)
    return await off_loop(_judged, _Given(found.value, known), change)


def _judged(given: _Given, change: Callable[[Graph, Catalogue], T]) -> T:
    report = check_graph(given.document, given.known)
    if report.written is None:
        faults = [Fault("/graph" + p.pointer, p.code, p.message) for p in report.problems]
        raise Unprocessable("this needs a well-formed graph; fix what `errors` lists", faults)
    try:
        return change(report.written, given.known.catalogue)
    except InvalidInput as error:
        raise Unprocessable(str(error), [Fault(error.pointer, error.code, str(error))]) from None


def _edited(graph: Graph, name: str) -> Edited:
    return Edited(graph=dump(graph), name=name)


class _Types:
    """The types of the input ports of a graph's nodes."""

    def __init__(self, graph: Graph, catalogue: Catalogue) -> None:
        self._graph, self._catalogue = graph, catalogue

    def __call__(self, node: str, port: str) -> str | None:
        named = self._graph.nodes.get(node)
        if named is None:
            return None
        blueprint = self._graph.blueprints.get(blueprint_of(named.component))
        if blueprint is not None:
            return blueprint.inputs.get(port)
        component = component_of(self._catalogue, named)
        found = component.input(port) if component is not None else None
        return str(found.type) if found is not None else None


router.include_router(_extra)
router.include_router(documents.router("blueprint"))
