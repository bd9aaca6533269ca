"""Answers about runs: how they are, what they were asked, and what two of them differ by."""

from typing import Literal, TypedDict

from walkgraph.errors import ErrorCode
from walkgraph.wire.answers.documents import JsonObject

RunState = Literal["running", "done", "failed", "cancelled"]


class NodeTime(TypedDict):
    """Of a node; or, with `walk`, of a loop that its device ran whole, which has all of its nodes' time."""

    node: str
    """Or the loop."""
    rank: int
    calls: int
    """Or iterations."""
    busy: float
    """Seconds."""
    queued: float
    """Seconds that calls were ready, and not yet running."""
    walk: str
    """Of a loop."""
    inside: dict[str, int]
    """Of a loop: how often it has called its nodes."""
    spans: bool
    """The loop has parts on other ranks: what it waited for them is in its time."""


class Held(TypedDict):
    """A call that a run is paused before."""

    rank: int
    walk: str
    use: str
    node: str
    """Empty for a move of a state between ranks."""
    step: int
    iteration: list[int]
    loop: str
    """Of a loop that the device runs whole: its name."""


class Paused(TypedDict):
    held: list[Held]
    breakpoint: str
    """Id of the one that it came to; empty where it was asked for, or stepped."""


class Error(TypedDict):
    """Also as a service of another version wrote it into the database."""

    code: ErrorCode | str
    message: str
    node: str | None
    port: str | None
    walk: str | None
    iteration: tuple[int, ...]
    """Loop indices, outermost first, of the call that failed."""
    rank: int | None
    retryable: bool


class Run(TypedDict):
    """A run without its outputs."""

    id: str
    deployment: str
    task: str
    state: RunState
    created_at: float
    """When it came, in seconds since 1970."""
    seconds: float | None
    """From its arrival to its end; None: it goes on."""
    queued: float | None
    """Of these, until it was begun."""
    seed: int | None
    """None until it is accepted."""
    params: JsonObject
    """As its client gave them."""
    error: Error | None
    times: list[NodeTime]
    paused: Paused | None
    """What it is paused before; None: it goes on, or is over."""
    caller: str | None
    """The id of the key that it came with; None: the service's own token, or the studio."""


class LeftOut(TypedDict):
    pointer: str
    """Into `request`."""
    bytes: int


class Asked(TypedDict):
    run: str
    deployment: str
    task: str
    request: JsonObject | None
    """As it was sent; values that were too large to be kept are None. None: all of it was."""
    left_out: list[LeftOut]


class Steered(TypedDict):
    run: str
    paused: Paused | None
    """As it was before this."""


class Numbers(TypedDict):
    """Of a tensor's finite numbers."""

    count: int
    nan: int
    infinite: int
    low: float
    high: float
    mean: float
    std: float
    histogram: list[int]
    """Empty: of recorded values none is made."""
    every: int
    """All but `count` are of one number in so many."""


class Row(TypedDict):
    """A value that both runs made, and that differs."""

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
    """Of the numbers at up to 256 places; None where they can't be compared."""
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
    """To the last bit."""
    max_abs: float | None


class Differences(TypedDict):
    a: str
    b: str
    recorded: bool
    """False: neither run was recorded, only their outputs are compared."""
    compared: int
    equal: int
    missing: Missing
    """Values that were recorded of the other run only, because they weren't made here or their sample was lost."""
    outputs: list[Output]
    """Of runs that can be followed both; otherwise none."""
    first: Row | None
    rows: list[Row]
    """In the order of a's times; those that differ only, and at most 500."""
