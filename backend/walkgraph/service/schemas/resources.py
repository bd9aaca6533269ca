"""Bodies of requests and answers, as pydantic models where FastAPI documents and checks them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

DocumentName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_\-]{0,63}$")]
JsonObject = dict[str, Any]


class Given(BaseModel):
    """What a client sends; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemShown(Shown):
    code: str
    pointer: str
    message: str
    severity: Literal["error", "warning"]


class CheckShown(Shown):
    ok: bool
    """It can be planned; there may be warnings."""
    problems: list[ProblemShown]


class PlanRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""
    placement: DocumentName | JsonObject | None = None
    """None: everything on one rank, the GPU with the most free memory or the CPU."""
    hardware: Annotated[str, Field(max_length=40)] | None = None
    """GPUs that need not be here, all empty (`3x141GB`); None: this machine with what is free."""


class DeviceShown(Shown):
    name: str
    """`cpu` or `cuda:N`."""
    title: str
    """What its maker calls it."""
    total: int
    """Bytes."""
    free: int
    hypothetical: bool
    """Not in this machine."""


class RouteShown(Shown):
    """How an edge of a Walk, or a stream between two ranks, travels."""

    walk: str | None
    stream: str | None
    pointer: str
    """Into the graph as the author wrote it."""
    source: int
    """Rank; an end that is no use counts as on the other end's."""
    target: int
    transport: str


class HandedShown(Shown):
    """How a step's result travels to a later step."""

    task: str
    pointer: str
    """Of the later step's binding, in the graph."""
    result: str
    """`read.pixels`: Walk and result."""
    input: str
    """`see.image`: Walk and input."""
    source: int
    target: int
    transport: str


class CopyShown(Shown):
    """A state that changes rank."""

    state: str
    walk: str | None
    """In this Walk; None: between steps."""
    source: int
    target: int
    bytes: int
    """At most, in a request with default parameters; 0: not known."""
    largest: int
    """In one with the largest parameters."""


class LoopShown(Shown):
    """Where a loop of a Walk is iterated."""

    walk: str
    loop: str
    resident: bool
    """On the device, as a whole; otherwise call by call. In a Walk that a step runs per chunk: in such a step."""
    why: str
    """In a sentence."""
    within: str | None = None
    """The resident loop around it that it is unrolled in."""
    usual: list[int]
    """How often it goes where a task's parameters are its defaults; empty where that follows from something else."""


class RankShown(Shown):
    rank: int
    device: str
    nodes: list[str]
    kv_bytes: int
    budget: dict[str, int]
    """Contributor -> bytes: `weights NAME`, `kv STATE`, `arena` (tensors on their way to other GPUs), `workspace` and
    `margin` (driver, graphs, fragmentation)."""
    capacity: int
    """Bytes that the rank may fill."""


class PlanShown(Shown):
    ok: bool
    deployable: bool
    problems: list[ProblemShown]
    """Pointers start with `/graph` or `/placement`."""
    placement: JsonObject | None
    """The placement that was planned."""
    ranks: list[RankShown]
    """With what they need also where that doesn't fit; empty where the placement has no way to be laid out."""
    devices: list[DeviceShown]
    """What there is to place on, with what running deployments leave free."""
    routes: list[RouteShown]
    handed: list[HandedShown]
    copies: list[CopyShown]
    """Only of a placement that fits."""
    loops: list[LoopShown]
    """Likewise."""
    drawing: str | None
    """The plan as text, for a terminal."""
    digest: str | None


class PythonRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""


class PythonShown(Shown):
    text: str
    """A program that makes the same graph."""


class SimulateRequest(Given):
    graph: DocumentName | JsonObject
    """A stored graph's name, or a document."""
    task: Annotated[str, Field(max_length=64)]
    params: Annotated[dict[str, bool | int | float | str], Field(max_length=256)] = Field(default_factory=dict)
    inputs: Annotated[dict[str, int], Field(max_length=256)] = Field(default_factory=dict)
    """Input -> how many values it is given."""
    parts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(default_factory=list)
    """Modalities of the interleaved parts, in their order."""


class SimulationShown(Shown):
    ok: bool
    problems: list[ProblemShown]
    """Pointers start with `/graph`, or stand in the request (`/params/steps`, `/inputs/image`, `/parts/2`)."""
    params: dict[str, bool | int | float | str]
    """All of the task's, filled in."""
    lanes: list["LaneShown"]


class LaneShown(Shown):
    lane: str
    """Empty where the task has a single list of steps."""
    steps: list["StepShown"]


class StepShown(Shown):
    pointer: str
    """Relative to the task: `/steps/0/text/1`."""
    walk: str
    as_: str | None = Field(serialization_alias="as")
    part: "PartShown | None"
    taken: bool
    why: str
    loops: dict[str, int | None]
    """Loop -> how often it turns at most; null where that depends on the loop around it, or a stream ends it."""
    uses: list["UseShown"]
    """Of a step that is taken."""


class PartShown(Shown):
    modality: str
    index: int
    """Among the parts that are walked."""


class UseShown(Shown):
    use: str
    node: str
    taken: bool | None
    """null: in some iterations."""
    why: str
    iterations: int | None
    """How often it is called at most; null where that can't be worked out."""


class DocumentShown(Shown):
    name: str
    etag: str
    bundled: bool
    updated_at: float
    description: str = ""
    tags: list[str]


class GalleryTask(Shown):
    name: str
    label: str


class GalleryEntry(Shown):
    name: str
    description: str
    tasks: list[GalleryTask]
    modalities_in: list[str]
    modalities_out: list[str]
    starter: bool
    """All its weights come with Walkgraph."""
    deployable: bool
    why: str | None
    """It can't be deployed here; in a sentence."""
    tags: list[str]
    bundled: bool


class LeftOut(Shown):
    pointer: str
    """Into `request`."""
    bytes: int


class AskedShown(Shown):
    run: str
    deployment: str
    task: str
    request: JsonObject | None
    """As it was sent; values that were too large to be kept are null. null: all of it was."""
    left_out: list[LeftOut]


Tag = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=40, pattern=r"^[^\x00-\x1f\x7f]*$")
]


class TagsRequest(Given):
    tags: Annotated[list[Tag], Field(max_length=20)]


class VersionShown(Shown):
    id: int
    etag: str
    note: str
    created_at: float


class VersionRequest(Given):
    note: str = Field(default="", max_length=200)


class DeploymentRequest(Given):
    graph: DocumentName | JsonObject
    placement: DocumentName | JsonObject | None = None
    name: DocumentName | None = None
    """By default the graph's name."""


class SwitchRequest(Given):
    graph: DocumentName | JsonObject
    placement: DocumentName | JsonObject | None = None


class RunRequest(Given):
    """A task's request, with what it is asked of."""

    deployment: DocumentName
    task: DocumentName
    request: JsonObject = Field(default_factory=dict)
    """As in the body of `POST /v1/tasks/{deployment}/{task}`."""


class AccessShown(Shown):
    """How programs on the service's machine find it."""

    home: str
    own_home: bool
    """It isn't where programs look that are told nothing: they need `WALKGRAPH_HOME`."""
    token_file: str | None
    """null: whoever started the service gave it its token."""


class CodeShown(Shown):
    code: str
    path: str
    """Of the studio, with the code: it lets one browser in, once."""
