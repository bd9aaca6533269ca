"""The folders under the checkpoint roots as the service shows them. A folder is read anew when one of its files or this
machine has changed; only headers and configs are read."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from walkgraph.checkpoints.contents import read
from walkgraph.checkpoints.family import Published
from walkgraph.errors import InvalidInput
from walkgraph.graph.codec import dump, load
from walkgraph.importing.making import make
from walkgraph.importing.recognising import recognise
from walkgraph.importing.surveying import Surveyed, folder_of, folders, offered, signature, survey
from walkgraph.placement.hardware import Hardware, find_hardware
from walkgraph.store.tables import Document
from walkgraph.wire.answers.checkpoints import Checkpoint, Checkpoints, MadeDocuments, Offer, PublishedWeights

_SOURCE = "checkpoint:"


class CheckpointFolders:
    def __init__(self, roots: Sequence[Path]) -> None:
        """`roots`: the folders of `checkpoint:` sources."""
        self._roots = tuple(roots)
        self._known: dict[Path, tuple[object, Surveyed]] = {}

    def all(self, graphs: Iterable[Document]) -> Checkpoints:
        """Slow for folders that weren't read before: don't call it on the event loop."""
        hardware = find_hardware()
        found = [self._surveyed(path, hardware) for path in folders(self._roots)]
        here, users = {one.folder for one in found}, _users(graphs)
        return Checkpoints(
            roots=[str(root) for root in self._roots],
            found=[_shown(one, users.get(one.folder, [])) for one in found],
            offered=[_offer(one.title, one.graph, one.published, here) for one in offered()],
        )

    def made(self, folder: str) -> MadeDocuments:
        """The documents that serve a folder. Slow. Raises NotFound, Refused, InvalidInput as an import does."""
        found = recognise(read(folder_of(folder, self._roots)))
        problems = found.problems()
        if problems:
            raise InvalidInput(f"`{folder}` can't be served as it is: {'; '.join(problems)}")
        made = make(found, None, find_hardware())
        return MadeDocuments(
            graph=dump(load(made.graph)),
            placements=list(made.placements),
            unfit=dict(made.unfit),
            beside=dict(made.beside),
            warnings=list(made.warnings),
        )

    def _surveyed(self, path: Path, hardware: Hardware) -> Surveyed:
        # The folders next to it may hold what it needs beside its own.
        around = tuple(sorted(one.name for one in folders((path.parent,))))
        now = (signature(path), around, [(device.name, device.total) for device in hardware.devices])
        known = self._known.get(path)
        if known is None or known[0] != now:
            known = self._known[path] = now, survey(path, hardware)
        return known[1]


def _users(graphs: Iterable[Document]) -> dict[str, list[str]]:
    """Folder -> the graphs that read it."""
    found: dict[str, list[str]] = {}
    for row in graphs:
        value: Any = json.loads(row.text)
        weights: Any = cast(dict[str, Any], value).get("weights") if isinstance(value, dict) else None
        held = cast(dict[str, Any], weights).values() if isinstance(weights, dict) else ()
        sources = {cast(dict[str, Any], one).get("source") for one in held if isinstance(one, dict)}
        for source in sorted(source for source in sources if isinstance(source, str)):
            if source.startswith(_SOURCE):
                found.setdefault(source.removeprefix(_SOURCE), []).append(row.name)
    return found


def _shown(one: Surveyed, graphs: list[str]) -> Checkpoint:
    return Checkpoint(
        folder=one.folder,
        root=str(one.root),
        title=one.title,
        parameters=one.parameters,
        bytes=one.bytes,
        dtypes=dict(one.dtypes),
        problems=list(one.problems),
        graph=one.graph,
        fits=bool(one.placements),
        unfit=list(one.unfit),
        remarks=list(one.remarks),
        graphs=graphs,
    )


def _offer(title: str, graph: str, published: Iterable[Published], here: set[str]) -> Offer:
    rows = [
        PublishedWeights(
            repository=one.repository,
            folder=one.folder,
            bytes=one.bytes,
            files=list(one.files),
            note=one.note,
            here=one.folder in here,
        )
        for one in published
    ]
    return Offer(title=title, graph=graph, published=rows)
