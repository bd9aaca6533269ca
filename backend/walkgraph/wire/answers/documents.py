"""Answers about graphs and placements, and about their problems."""

from typing import Any, Literal, TypedDict

Kind = Literal["graph", "placement", "blueprint"]
JsonObject = dict[str, Any]


class Problem(TypedDict):
    code: str
    pointer: str
    message: str
    severity: Literal["error", "warning"]


class Check(TypedDict):
    ok: bool
    """True if it can be planned; there may be warnings."""
    problems: list[Problem]


class Document(TypedDict):
    name: str
    etag: str
    bundled: bool
    updated_at: float
    description: str
    tags: list[str]


class Version(TypedDict):
    id: int
    etag: str
    note: str
    created_at: float


class Edited(TypedDict):
    graph: JsonObject
    name: str
    """The blueprint that was made or copied; empty if none was."""


class Python(TypedDict):
    text: str
    """A program that makes the same graph."""


class GalleryTask(TypedDict):
    name: str
    label: str


class GalleryEntry(TypedDict):
    name: str
    description: str
    tasks: list[GalleryTask]
    modalities_in: list[str]
    modalities_out: list[str]
    starter: bool
    """All its weights come with Walkgraph."""
    deployable: bool
    why: str | None
    """The reason that it can't be deployed here, in a sentence; None if it can."""
    needs_gpu: bool
    """It can't be deployed here, but could be with a GPU of 80 GB."""
    random: bool
    """Some of its weights are random: its results mean nothing."""
    lacks: str | None
    """The lack that its calls to servers outside meet here, in a sentence; None if nothing is known to be missing."""
    tags: list[str]
    bundled: bool


class ComponentExample(TypedDict):
    note: str
    params: JsonObject
    inputs: JsonObject
    """Values as in JSON; media and large tensors are described in words."""
    outputs: JsonObject


class Component(TypedDict):
    name: str
    former: list[str]
    """Earlier names; documents that use them still load."""
    category: str
    """Its group in the palette."""
    description: str
    inputs: list[JsonObject]
    outputs: list[JsonObject]
    params: dict[str, JsonObject]
    states: list[JsonObject]
    cost: str
    weights: str | None
    families: list[str]
    """Families whose weights fit."""
    host: bool
    deterministic: bool
    """Equal inputs and parameters give equal outputs, so that a graph may keep them."""
    task: bool
    """It calls a task, whose declaration its own follows."""
    outside: bool
    """It calls a server outside, which the service does."""
    served: bool
    """It is about all runs of a deployment, so the service serves it."""
    available: bool
    examples: list[ComponentExample]
