"""Answers about the folders of weights on the service's machine, and about weights that can be had."""

from typing import TypedDict

from walkgraph.wire.answers.documents import JsonObject


class Checkpoint(TypedDict):
    folder: str
    """Its name under a checkpoint root: `checkpoint:<folder>` in graphs."""
    root: str
    title: str
    """The model family's title; empty if it isn't known."""
    parameters: int
    bytes: int
    dtypes: dict[str, int]
    """Type -> number of tensors."""
    problems: list[str]
    """The faults, in sentences; with any, it can't be imported."""
    graph: str
    """The name of the graph that an import makes; empty if it can't be imported."""
    fits: bool
    """A placement of that graph fits this machine."""
    unfit: list[str]
    """Why others don't, in sentences."""
    remarks: list[str]
    graphs: list[str]
    """The stored graphs that read it."""


class PublishedWeights(TypedDict):
    repository: str
    """Its name where it is published."""
    folder: str
    """The name of the folder for it, under a checkpoint root."""
    bytes: int
    """About how much there is to download."""
    files: list[str]
    note: str
    here: bool
    """The folder is there already."""


class Offer(TypedDict):
    title: str
    graph: str
    """The bundled graph that serves it; empty for weights that are used beside another family's."""
    published: list[PublishedWeights]


class Checkpoints(TypedDict):
    roots: list[str]
    """The folders in the setting `checkpoint_roots`."""
    found: list[Checkpoint]
    offered: list[Offer]


class MadeDocuments(TypedDict):
    """The documents that an import would store."""

    graph: JsonObject
    placements: list[JsonObject]
    """Those that fit this machine, the recommended one first."""
    unfit: dict[str, str]
    """Placement -> why it doesn't fit."""
    beside: dict[str, str]
    """Weight set -> the folder found for it."""
    warnings: list[str]
