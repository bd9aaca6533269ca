"""Answers about plans and simulated requests: nothing of them runs."""

from typing import TypedDict

from walkgraph.wire.answers.documents import JsonObject, Problem

Scalar = bool | int | float | str


class Device(TypedDict):
    name: str
    """`cpu` or `cuda:N`."""
    title: str
    """What its maker calls it."""
    total: int
    """Bytes."""
    free: int
    hypothetical: bool
    """Not in this machine."""


class PlannedRank(TypedDict):
    rank: int
    device: str
    nodes: list[str]
    kv_bytes: int
    budget: dict[str, int]
    """Contributor -> bytes: `weights NAME`, `kv STATE`, `arena` (tensors on their way to other GPUs), `workspace` and
    `margin` (driver, graphs, fragmentation)."""
    capacity: int
    """Bytes that the rank may fill."""


class Route(TypedDict):
    """How an edge of a Walk, or a stream between two ranks, travels."""

    walk: str | None
    stream: str | None
    pointer: str
    """Into the graph as the author wrote it."""
    source: int
    """Rank; an end that is no use counts as on the other end's."""
    target: int
    transport: str


class Handed(TypedDict):
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


class Copy(TypedDict):
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


class Loop(TypedDict):
    """Where a loop of a Walk is iterated."""

    walk: str
    loop: str
    resident: bool
    """On the device, as a whole; otherwise call by call. In a Walk that a step runs per chunk: in such a step."""
    why: str
    """In a sentence."""
    within: str | None
    """The resident loop around it that it is unrolled in."""
    usual: list[int]
    """How often it goes where a task's parameters are its defaults; empty where that follows from something else."""


class Plan(TypedDict):
    ok: bool
    deployable: bool
    problems: list[Problem]
    """Pointers start with `/graph` or `/placement`."""
    placement: JsonObject | None
    """The placement that was planned."""
    ranks: list[PlannedRank]
    """With what they need also where that doesn't fit; empty where the placement has no way to be laid out."""
    devices: list[Device]
    """What there is to place on, with what running deployments leave free."""
    routes: list[Route]
    handed: list[Handed]
    copies: list[Copy]
    """Only of a placement that fits."""
    loops: list[Loop]
    """Likewise."""
    drawing: str | None
    """The plan as text, for a terminal."""
    digest: str | None


class Part(TypedDict):
    modality: str
    index: int
    """Among the parts that are walked."""


class Use(TypedDict):
    use: str
    node: str
    taken: bool | None
    """None: in some iterations."""
    why: str
    iterations: int | None
    """How often it is called at most; None where that can't be worked out."""


# A call, as `as` can't name a field in a class.
Step = TypedDict(
    "Step",
    {
        # Relative to the task: `/steps/0/text/1`.
        "pointer": str,
        "walk": str,
        "as": str | None,
        "part": Part | None,
        "taken": bool,
        "why": str,
        # Loop -> how often it turns at most; None where that depends on the loop around it, or a stream ends it.
        "loops": dict[str, int | None],
        # Of a step that is taken.
        "uses": list[Use],
    },
)


class Lane(TypedDict):
    lane: str
    """Empty where the task has a single list of steps."""
    steps: list[Step]


class Simulation(TypedDict):
    ok: bool
    problems: list[Problem]
    """Pointers start with `/graph`, or stand in the request (`/params/steps`, `/inputs/image`, `/parts/2`)."""
    params: dict[str, Scalar]
    """All of the task's, filled in."""
    lanes: list[Lane]
