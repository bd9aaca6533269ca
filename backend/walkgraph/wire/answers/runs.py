"""Answers about runs: their progress, their requests, and the differences of two of them."""

from typing import Literal, TypedDict

from walkgraph.errors import ErrorCode
from walkgraph.wire.answers.documents import JsonObject

RunState = Literal["running", "waiting", "done", "failed", "cancelled"]


class NodeTime(TypedDict):
    """The time of a node; or, with `walk`, of a device loop, which includes the time of all its nodes."""

    node: str
    """Name of the node or loop."""
    rank: int
    calls: int
    """Calls, or iterations of a loop."""
    busy: float
    """Seconds."""
    queued: float
    """Seconds that calls were ready but not yet running."""
    walk: str
    """Walk of a loop; empty for a node."""
    inside: dict[str, int]
    """For a loop: node -> number of its calls."""
    spans: bool
    """The loop has parts on other ranks; its waits for them are included in its time."""
    kept: int
    """Calls that were not made: their outputs are those of earlier calls with the same inputs."""


class Held(TypedDict):
    """A call that a paused run is held before."""

    rank: int
    walk: str
    use: str
    node: str
    """Empty for a move of a state between ranks."""
    step: int
    iteration: list[int]
    loop: str
    """Name of a device loop; empty for a call of a node."""


class Paused(TypedDict):
    held: list[Held]
    breakpoint: str
    """Id of the breakpoint that was reached; empty if the run was paused on request, or stepped."""


class Error(TypedDict):
    """An error, possibly as a service of another version wrote it into the database."""

    code: ErrorCode | str
    message: str
    node: str | None
    port: str | None
    walk: str | None
    iteration: tuple[int, ...]
    """Loop indices of the failed call, outermost first."""
    rank: int | None
    retryable: bool


class Approval(TypedDict):
    """An approval that a run waits for."""

    number: int
    """How many approvals came before it in the run."""
    label: str
    """The question; may be empty."""
    goes_on: bool
    """A refused run goes on: later steps read the answer."""
    asked_at: float
    """Seconds since 1970."""
    expires_at: float
    """When the run ends unless somebody has answered."""
    shown: list[str]
    """The results that are shown, `walk.result`."""


class ApprovalShown(Approval):
    run: str
    values: JsonObject
    """Result -> its value; null if there is none."""


class Glimpse(TypedDict):
    """The start of what a run was given and has made."""

    said: str
    """Its client's texts, in one line."""
    wrote: str
    """The first output that is a text, in one line."""
    pictured: bool
    """An output is a picture; `/api/v1/runs/{run}/thumbnail` has it small."""


class Run(TypedDict):
    """A run without its outputs."""

    id: str
    deployment: str
    task: str
    state: RunState
    created_at: float
    """When it came, in seconds since 1970."""
    seconds: float | None
    """From arrival to end; None while it goes on."""
    queued: float | None
    """Seconds of these before it began."""
    seed: int | None
    """None until it is accepted."""
    params: JsonObject
    """The client's parameters."""
    error: Error | None
    times: list[NodeTime]
    paused: Paused | None
    """The calls that it is paused before; None: it goes on, or is over."""
    approval: Approval | None
    """The approval that it waits for; None: it waits for none."""
    caller: str | None
    """Id of the key that sent it; None: the service's own token, or the studio."""
    glimpse: Glimpse | None
    """None once the run can no longer be followed: texts and pictures are kept only in memory."""


QueuedState = Literal["running", "paused", "suspended", "waiting"]


class Queued(TypedDict):
    """A run that waits to begin, or goes on."""

    run: str
    task: str
    created_at: float
    """The time at which it came, in seconds since 1970."""
    state: QueuedState
    """`suspended`: it has begun, and made room for one of higher priority. `waiting`: it has not begun."""
    place: int | None
    """Its place in the deployment's queue, from 1; None if it isn't in there."""
    said: str
    """Its client's texts, in one line."""
    up: bool
    """It can exchange places with a run of the same caller before it."""
    down: bool
    """The same with one behind it."""


class Queue(TypedDict):
    """The caller's runs that have not ended, and the length of the queue."""

    deployment: str
    waiting: int
    """Runs in the queue, of all callers."""
    runs: list[Queued]
    """Those that go on first, then those of the queue in its order."""


class LeftOut(TypedDict):
    pointer: str
    """JSON pointer into `request`."""
    bytes: int


class Asked(TypedDict):
    run: str
    deployment: str
    task: str
    request: JsonObject | None
    """The request as it was sent, with None for values that were too large to keep. None: all of it was too large."""
    left_out: list[LeftOut]


class Steered(TypedDict):
    run: str
    paused: Paused | None
    """The pause before this action."""


class Numbers(TypedDict):
    """Statistics of a tensor's finite numbers."""

    count: int
    nan: int
    infinite: int
    low: float
    high: float
    mean: float
    std: float
    histogram: list[int]
    """Empty for recorded values, which have none."""
    every: int
    """All fields but `count` come from one number in this many."""


class Row(TypedDict):
    """A value that both runs made and that differs."""

    walk: str
    source: str
    step: int
    iteration: list[int]
    rank_a: int
    rank_b: int
    shape_a: list[int]
    shape_b: list[int]
    dtype_a: str
    dtype_b: str
    statistics_a: Numbers | None
    statistics_b: Numbers | None
    max_abs: float | None
    """From the numbers at up to 256 places; None if they can't be compared."""
    max_rel: float | None
    at_a: float
    """Seconds from the run's first recorded value."""
    at_b: float


class Missing(TypedDict):
    a: int
    b: int


class Output(TypedDict):
    name: str
    index: int
    equal: bool
    """Bitwise equal."""
    max_abs: float | None


class Differences(TypedDict):
    a: str
    b: str
    recorded: bool
    """False: neither run was recorded, so only their outputs are compared."""
    compared: int
    equal: int
    missing: Missing
    """Values recorded only in the other run, because they weren't made here or their sample was lost."""
    outputs: list[Output]
    """Outputs, if both runs can still be followed; otherwise none."""
    first: Row | None
    rows: list[Row]
    """The values that differ, in the order of a's times; at most 500."""
