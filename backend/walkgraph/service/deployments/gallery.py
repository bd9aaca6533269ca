"""The gallery: every stored graph with its tasks, and whether it could be deployed on this machine.

A graph is judged with everything on one rank of an otherwise idle machine. The result holds until the graph or the
components change, so it is cached by etag. Graphs without their weights, and those that call tasks of other graphs, are
judged each time: the weights may have arrived, and the called graphs may have changed.
"""

import json
from collections.abc import Iterable
from dataclasses import replace

from walkgraph.components import catalogue
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.checks.called import called_graphs
from walkgraph.graph.document import Graph
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.structure import structures
from walkgraph.placement.hardware import Hardware, find_hardware, with_gpus
from walkgraph.service.deployments.judging import Judged, deployable, judge
from walkgraph.service.deployments.task_graphs import NO_GRAPHS, KnownGraphs
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.outward.reachable import unreachable
from walkgraph.settings import Settings
from walkgraph.store.tables import Document
from walkgraph.wire.answers.documents import GalleryEntry, GalleryTask

_GPU_BYTES = 80_000_000_000


class Gallery:
    def __init__(self, settings: Settings) -> None:
        """`settings`: the folders of `checkpoint:` sources, and the servers that nodes may call."""
        self._settings = settings
        self._roots = tuple(settings.checkpoint_roots)
        self._known: dict[str, GalleryEntry] = {}
        """Entries by etag; name, tags and `bundled` are filled in from the row each time."""
        self._catalogue: Catalogue | None = None
        """The components that the entries were judged with."""

    def entries(self, rows: Iterable[Document], graphs: KnownGraphs) -> list[GalleryEntry]:
        """Slow for graphs that weren't judged before: don't call it on the event loop. `graphs`: those whose tasks
        others may call."""
        rows = list(rows)
        if self._catalogue is not catalogue():
            self._catalogue, self._known = catalogue(), {}
        host: Hardware | None = None
        known: dict[str, GalleryEntry] = {}
        found: list[GalleryEntry] = []
        for row in rows:
            entry = self._known.get(row.etag)
            remember = entry is not None
            if entry is None:
                host = host or _empty(find_hardware())
                entry, remember = self._judged(row.name, json.loads(row.text), host, graphs)
            if remember:
                known[row.etag] = entry
            found.append({**entry, "name": row.name, "tags": json.loads(row.tags), "bundled": row.bundled})
        self._known = known
        return found

    def _with_gpu(self, document: object, host: Hardware, graphs: KnownGraphs) -> bool:
        """True if one GPU is all that this machine lacks for it."""
        assumed = with_gpus(host, 1, _GPU_BYTES)
        return _fits(judge(document, None, (), self._roots, assumed, graphs))

    def _judged(self, name: str, document: object, host: Hardware, graphs: KnownGraphs) -> tuple[GalleryEntry, bool]:
        """The entry, and True if it can be cached."""
        calls = called_graphs(document)
        others = bool(calls - {name})
        known = graphs if others else KnownGraphs({name: document}) if calls else NO_GRAPHS
        judged = judge(document, None, (), self._roots, host, known)
        why, codes = None, set[str]()
        try:
            deployable(judged)
        except Unprocessable as error:
            why = error.faults[0].message if error.faults else str(error)
            codes = {fault.code for fault in error.faults}
        graph = judged.graph
        lacks = next((p.message for p in unreachable(graph, known.catalogue, self._settings)), None) if graph else None
        entry = GalleryEntry(
            name="",
            description=graph.description if graph else "",
            tasks=[GalleryTask(name=n, label=task.label or n) for n, task in graph.tasks.items()] if graph else [],
            modalities_in=_taken(graph) if graph else [],
            modalities_out=_given(graph, known.catalogue) if graph else [],
            starter=graph is not None and _is_starter(graph),
            deployable=why is None,
            why=why,
            needs_gpu=why is not None and self._with_gpu(document, host, known),
            random=graph is not None and any(one.source.startswith("random:") for one in graph.weights.values()),
            lacks=lacks,
            tags=[],
            bundled=False,
        )
        return entry, not others and lacks is None and "no_weights" not in codes


def _fits(judged: Judged) -> bool:
    try:
        deployable(judged)
    except Unprocessable:
        return False
    return True


def _empty(host: Hardware) -> Hardware:
    return replace(host, devices=tuple(replace(device, free=device.total) for device in host.devices))


def _is_starter(graph: Graph) -> bool:
    return bool(graph.weights) and all(weights.source.startswith("starter:") for weights in graph.weights.values())


def _taken(graph: Graph) -> list[str]:
    return list(dict.fromkeys(i.modality for task in graph.tasks.values() for i in task.inputs.values()))


def _given(graph: Graph, known: Catalogue) -> list[str]:
    """Modalities of the ports that the tasks' outputs come from."""
    wanted = {name for task in graph.tasks.values() for name in task.outputs}
    found: dict[str, None] = {}
    for walk in structures(graph).values():
        for route in walk.routes:
            source = route.source.entry
            if route.target.kind != "out" or route.target.name not in wanted or source is None:
                continue
            node = graph.nodes.get(source.node)
            component = component_of(known, node) if node else None
            output = component.output(route.source.port) if component else None
            if output is not None:
                found[output.type.modality] = None
    return list(found)
