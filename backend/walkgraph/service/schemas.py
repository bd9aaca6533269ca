"""Bodies of requests and answers, as pydantic models where FastAPI documents and checks them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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


class RankShown(Shown):
    rank: int
    device: str
    nodes: list[str]
    kv_bytes: int
    budget: dict[str, int]
    """Contributor -> bytes."""


class PlanShown(Shown):
    ok: bool
    deployable: bool
    problems: list[ProblemShown]
    """Pointers start with `/graph` or `/placement`."""
    placement: JsonObject | None
    """The placement that was planned."""
    ranks: list[RankShown]
    drawing: str | None
    """The plan as text, for a terminal."""
    digest: str | None


class DocumentShown(Shown):
    name: str
    etag: str
    bundled: bool
    updated_at: float
    description: str = ""


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


class RunRequest(Given):
    """A task's request, with what it is asked of."""

    deployment: DocumentName
    task: DocumentName
    request: JsonObject = Field(default_factory=dict)
    """As in the body of `POST /v1/tasks/{deployment}/{task}`."""


class CodeShown(Shown):
    code: str
    path: str
    """Of the studio, with the code: it lets one browser in, once."""
