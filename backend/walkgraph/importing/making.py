"""The graph that serves a recognized checkpoint, and the placements that fit this machine."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkgraph import resources
from walkgraph.checkpoints.contents import Contents, read
from walkgraph.checkpoints.family import Companion, Document, Family
from walkgraph.components import catalogue, families
from walkgraph.errors import InvalidInput, WalkgraphError
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.importing.recognising import Recognised, companion, misfits_of
from walkgraph.placement.document import decode
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.sizes import find_sizes

_FOLDER = re.compile(r"[\w\-.]+\Z")
_NAME = 64
_STEP = 64 * 2**20
"""Memory in placements is rounded up to a multiple of this."""


@dataclass(frozen=True)
class Made:
    graph: Document
    placements: tuple[Document, ...]
    """Placements that fit, the recommended one first."""
    unfit: Mapping[str, str]
    """Placement -> why it doesn't fit, in a sentence."""
    beside: Mapping[str, str]
    """Weight set -> the folder found for it."""
    warnings: tuple[str, ...]


def make(found: Recognised, name: str | None, hardware: Hardware) -> Made:
    """Make the documents. Raises InvalidInput as `drawn_up` does, and for sizes that no graph can serve."""
    contents, family = found.contents, found.family
    document, remarks = drawn_up(family, contents, name)
    warnings: list[str] = []
    beside: dict[str, str] = {}
    for key, wanted in family.beside.items():
        folder, fault = _beside(contents.folder, companion(wanted.family))
        if folder is None:
            warnings.append(f"{fault}; so {wanted.without}" if fault else wanted.without)
        else:
            beside[key] = folder
            document["weights"][key]["source"] = f"checkpoint:{folder}"
    graph = checked(document, contents)
    placements, unfit = _placements(graph, family.graph, contents.folder.parent, hardware)
    return Made(document, placements, unfit, beside, (*warnings, *remarks))


def drawn_up(family: Family, contents: Contents, name: str | None = None) -> tuple[Document, tuple[str, ...]]:
    """The bundled graph with these weights and sizes, and remarks for the user. Raises InvalidInput for a folder whose
    name a graph can't hold."""
    if not _FOLDER.match(contents.name):
        raise InvalidInput(
            f"`{contents.name}` can't be named in a graph: rename the folder to letters, digits, `-`, `_` and `.`"
        )
    document: Document = json.loads(resources.bundled("graphs")[family.graph].read_text(encoding="utf-8"))
    document["name"] = name or graph_name(contents.name)
    document["description"] = f"{family.title}, with the weights of `{contents.name}`."
    document["weights"][family.weights]["source"] = f"checkpoint:{contents.name}"
    return document, tuple(family.adapt(document, contents))


def checked(document: Document, contents: Contents) -> Graph:
    """The document as a graph; raises InvalidInput with its first problem."""
    report = check(document, catalogue())
    if report.graph is None or not report.ok:
        first = next(problem for problem in report.problems if problem.severity == "error")
        raise InvalidInput(f"no graph can serve the config of `{contents.name}`: {first.message}")
    return report.graph


def graph_name(folder: str) -> str:
    """`BAGEL-7B-MoT` -> `bagel_7b_mot`."""
    text = re.sub(r"[^a-z0-9]+", "_", folder.lower()).strip("_")
    return (text if text[:1].isalpha() else f"model_{text}")[:_NAME]


def _beside(folder: Path, wanted: Companion) -> tuple[str | None, str | None]:
    """The folder of the other weights; or else why the one found can't be served, in a sentence."""
    fault: str | None = None
    for path in sorted(folder.parent.iterdir()):
        if path == folder or not (path / "config.json").is_file() or not _FOLDER.match(path.name):
            continue
        try:
            contents = read(path)
        except WalkgraphError:
            continue  # not the other weights, as far as can be seen
        if not wanted.recognises(contents):
            continue
        try:
            found = [misfits_of(part, contents) for part in wanted.parts(contents)]
            faults = [line for misfits in found for line in misfits.sentences()]
        except WalkgraphError as error:
            faults = [str(error)]
        if not faults:
            return path.name, None
        fault = fault or f"`{path.name}` is {wanted.title}, and can't be served as it is: {faults[0]}"
    return None, fault


def _placements(
    graph: Graph, template: str, root: Path, hardware: Hardware
) -> tuple[tuple[Document, ...], dict[str, str]]:
    """`template`: the bundled graph; its placements are tried too."""
    fitting: list[Document] = []
    unfit: dict[str, str] = {}
    for document in _candidates(graph, template, hardware):
        sized, reason = _sized(graph, document, root, hardware)
        if reason is None:
            fitting.append(sized)
        else:
            unfit[document["name"]] = reason
    return tuple(fitting), unfit


def _candidates(graph: Graph, template: str, hardware: Hardware) -> Iterable[Document]:
    """One GPU first, then those that need several; on a machine without GPUs, its CPU."""
    gpus = [device.name for device in hardware.devices if device.name.startswith("cuda:")]
    if not gpus:
        yield _one(graph.name, "one_cpu", "cpu")
        return
    free = {device.name: device.free for device in hardware.devices}
    yield _one(graph.name, "one_gpu", max(gpus, key=lambda gpu: free[gpu]), _share(template))
    for published in _bundled():
        if published.get("graph") != template:
            continue
        document = _of_nodes(published, frozenset(graph.nodes))
        wanted = [rank["device"] for rank in document["ranks"]]
        if len(wanted) > 1 and set(wanted) <= set(gpus):
            name = graph.name + document["name"].removeprefix(template)
            yield {**document, "name": name[:_NAME], "graph": graph.name}


def _of_nodes(document: Document, nodes: frozenset[str]) -> Document:
    """The placement of a graph with these nodes alone, as an import may leave some out: without the others, and
    without ranks that would have none."""
    groups: list[Document] = []
    for group in document["groups"]:
        left = [name for name in group["nodes"] if name in nodes or "*" in name]
        if left:
            groups.append({**group, "nodes": left})
    used = {rank for group in groups for rank in group["ranks"]}
    return {**document, "groups": groups, "ranks": [rank for rank in document["ranks"] if rank["rank"] in used]}


def _bundled() -> list[Document]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in resources.bundled("placements").values()]


def _share(template: str) -> str | None:
    """The memory that the bundled placement of that graph on one GPU takes."""
    named = f"{template}_one_gpu"
    return next((found["groups"][0].get("memory") for found in _bundled() if found["name"] == named), None)


def _one(graph: str, suffix: str, device: str, memory: str | None = None) -> Document:
    group: dict[str, Any] = {"nodes": ["*"], "ranks": [0], **({"memory": memory} if memory else {})}
    name = f"{graph[: _NAME - len(suffix) - 1]}_{suffix}"
    ranks = [{"rank": 0, "device": device}]
    return {"format": "walkgraph/placement@1", "name": name, "graph": graph, "groups": [group], "ranks": ranks}


def _sized(graph: Graph, document: Document, root: Path, hardware: Hardware) -> tuple[Document, str | None]:
    """The placement with memory that fits its needs, and None; or why it doesn't fit."""
    made = _planned(graph, document, root, hardware)
    (first, *others) = document["groups"]
    if others or ("memory" in first and made.plan is not None):
        return document, _reason(made)
    bare = {**document, "groups": [{key: value for key, value in first.items() if key != "memory"}]}
    made = _planned(graph, bare, root, hardware)
    if made.plan is None:
        return document, _reason(made)
    need = sum(size for _, size in made.plan.ranks[0].budget)
    device = hardware.device(made.plan.ranks[0].device)
    rounded = -(-need // _STEP) * _STEP
    memory = f"{rounded // 2**20}MiB" if device is not None and rounded <= device.free else need
    sized = {**bare, "groups": [{**bare["groups"][0], "memory": memory}]}
    return sized, _reason(_planned(graph, sized, root, hardware))


def _planned(graph: Graph, document: Document, root: Path, hardware: Hardware) -> PlanResult:
    return plan(graph, decode(document), hardware, catalogue(), find_sizes(families(), (root,)))


def _reason(made: PlanResult) -> str | None:
    """The reason that it doesn't fit; None if it does."""
    if made.plan is not None and made.deployable:
        return None
    errors = [problem.message for problem in made.problems if problem.severity == "error"] or [
        problem.message for problem in made.problems
    ]
    return errors[0] if errors else "it can't be deployed here"
