"""Request bodies, as pydantic models for FastAPI's validation and OpenAPI document."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from walkgraph.graph.conversation import Role
from walkgraph.service.http import limits
from walkgraph.wire.answers.documents import JsonObject
from walkgraph.wire.answers.plans import Scalar

DocumentName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")]


class Given(BaseModel):
    """Base of request bodies; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PlanRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""
    placement: DocumentName | JsonObject | None = None
    """None: everything on one rank, the GPU with the most free memory or the CPU."""
    hardware: Annotated[str, Field(max_length=40)] | None = None
    """The hardware to assume, all empty: GPUs (`3x141GB`), hosts with GPUs (`2 hosts x 3x141GB`), or `cluster`, the
    hosts of the service's cluster. None: those hosts, or the service's machine, with their free memory."""


class PythonRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""


class PackRequest(Given):
    graph: DocumentName | JsonObject
    walk: Annotated[str, Field(max_length=64)]
    items: Annotated[list[Annotated[str, Field(max_length=400)]], Field(min_length=1, max_length=2000)]
    """Pointers in the Walk, as `/body/0`."""
    name: DocumentName


class UnpackRequest(Given):
    graph: DocumentName | JsonObject
    node: DocumentName


class TakeRequest(Given):
    graph: DocumentName | JsonObject
    blueprint: DocumentName | JsonObject
    """A name in the library, or a document."""
    replaces: DocumentName | None = None
    """The blueprint of the graph to update; None: add a copy."""


class EntryRequest(Given):
    graph: DocumentName | JsonObject
    blueprint: DocumentName | None = None
    walk: DocumentName | None = None
    """Instead of a blueprint: the Walk to make one of."""


class SimulatedTurn(Given):
    role: Role
    parts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(default_factory=list)
    """Modalities of its parts, in order."""


Pointer = Annotated[str, Field(max_length=400)]


class SimulateRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""
    task: Annotated[str, Field(max_length=64)]
    params: Annotated[dict[str, Scalar], Field(max_length=256)] = Field(default_factory=dict)
    inputs: Annotated[dict[str, int], Field(max_length=256)] = Field(default_factory=dict)
    """Number of values by input."""
    parts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(default_factory=list)
    """Modalities of the interleaved parts, in order."""
    turns: Annotated[list[SimulatedTurn], Field(max_length=64)] = Field(default_factory=list[SimulatedTurn])
    """The turns of a conversation, for each value of an input that takes messages."""
    placement: DocumentName | JsonObject | None = None
    """To see what goes between hosts; None: everything is on one."""
    hardware: Annotated[str, Field(max_length=40)] | None = None
    """The hosts of the placement, as for a plan."""
    sizes: Annotated[dict[Pointer, Annotated[int, Field(ge=0)]], Field(max_length=2000)] = Field(default_factory=dict)
    """Bytes of the values of edges, by the edge's pointer in the graph, as a plan's routes have it."""


Tag = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=40, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class TagsRequest(Given):
    tags: Annotated[list[Tag], Field(max_length=20)]


class VersionRequest(Given):
    note: str = Field(default="", max_length=200)


class DeploymentRequest(Given):
    graph: DocumentName | JsonObject
    placement: DocumentName | JsonObject | None = None
    name: DocumentName | None = None
    """Name of the deployment; by default the graph's."""


class SwitchRequest(Given):
    graph: DocumentName | JsonObject
    placement: DocumentName | JsonObject | None = None


class DecisionRequest(Given):
    """A person's answer to a run that waits for one."""

    approved: bool
    note: Annotated[str, Field(max_length=limits.NOTE_CHARACTERS)] = ""
    """The person's comment; later steps may read it."""
    number: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """The approval that is meant, so that an answer given twice doesn't count for the next one. null: the one that
    waits."""


class MoveRequest(Given):
    direction: Literal["up", "down"]
    """`up`: towards the front of the queue."""


class RunRequest(Given):
    """A task's request, with the deployment and task to run."""

    deployment: DocumentName
    task: DocumentName
    request: JsonObject = Field(default_factory=dict)
    """The body of `POST /v1/tasks/{deployment}/{task}`."""
