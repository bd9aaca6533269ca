"""Answers about plans and simulated requests; nothing of them runs."""

from typing import Literal, TypedDict

from walkgraph.wire.answers.documents import JsonObject, Problem

Scalar = bool | int | float | str


class Device(TypedDict):
    host: str
    name: str
    """`cpu` or `cuda:N`."""
    title: str
    """The maker's name for it."""
    total: int
    """Bytes."""
    free: int
    hypothetical: bool
    """Not in this host."""
    numa: int | None
    """The NUMA node of a GPU; None on a machine with one node, and where it isn't known."""


class Link(TypedDict):
    """The way between two GPUs of a host."""

    host: str
    first: str
    """`cuda:N`."""
    second: str
    kind: Literal["nvlink", "pcie", "bridge", "node", "system"]
    """Over NVLink; below one PCIe switch or several; over a PCIe host bridge; within a NUMA node; between NUMA
    nodes."""
    peers: bool
    """Each reads and writes the other's memory."""


class HostLink(TypedDict):
    """The way between two hosts, as it was measured when the later one joined the cluster."""

    first: str
    second: str
    bandwidth: float
    """Bytes a second, in the slower direction."""
    latency: float
    """Seconds from one to the other, which each value takes at least."""


class PlannedRank(TypedDict):
    rank: int
    host: str
    device: str
    nodes: list[str]
    kv_bytes: int
    budget: dict[str, int]
    """Entry -> bytes: `weights NAME`, `kv STATE`, `arena` (tensors on their way to other GPUs), `workspace` and
    `margin` (driver, graphs, fragmentation)."""
    capacity: int
    """Bytes that the rank may fill."""
    unpinned: bool
    """The placement leaves its host to the plan (`any`), which has chosen this one."""


class Route(TypedDict):
    """The transport of a Walk's edge, or of a stream between two ranks."""

    walk: str | None
    stream: str | None
    pointer: str
    """JSON pointer into the author's graph."""
    source: int
    """Rank; an end that isn't a use counts as on the other end's rank."""
    target: int
    transport: str


class Handed(TypedDict):
    """The transport of a step's result to a later step."""

    task: str
    pointer: str
    """JSON pointer to the later step's binding in the graph."""
    result: str
    """`read.pixels`: Walk and result."""
    input: str
    """`see.image`: Walk and input."""
    source: int
    target: int
    transport: str


class Copy(TypedDict):
    """A state that moves to another rank."""

    state: str
    walk: str | None
    """The Walk in which it moves; None: between steps."""
    source: int
    target: int
    bytes: int
    """The most bytes in a request with default parameters; 0: unknown."""
    largest: int
    """The most bytes in a request with the largest parameters."""
    seconds: float | None
    """Time that `bytes` take between two hosts. None: it stays on one, or that isn't known."""
    transport: str
    parts: bool
    """True if it leaves in parts while it grows; otherwise whole."""


class Loop(TypedDict):
    """How a loop of a Walk is run."""

    walk: str
    loop: str
    resident: bool
    """True if it runs whole on the device; otherwise it is stepped, call by call. In a Walk that a step runs per chunk,
    this describes such a step."""
    why: str
    """The reason, in a sentence."""
    within: str | None
    """The enclosing resident loop that this one is unrolled in."""
    usual: list[int]
    """Its counts where a task's parameters are at their defaults; empty if they depend on something else."""


class Plan(TypedDict):
    ok: bool
    deployable: bool
    problems: list[Problem]
    """Pointers start with `/graph` or `/placement`."""
    placement: JsonObject | None
    """The placement that was planned."""
    ranks: list[PlannedRank]
    """Ranks with their needs, even where they don't fit; empty if the placement can't be laid out."""
    devices: list[Device]
    """The devices to place on, with the memory that running deployments leave free; those of the host that plans are
    first."""
    links: list[Link]
    """The ways between GPUs of one host, as far as the driver knows them."""
    host_links: list[HostLink]
    """The ways between hosts, as far as they are measured."""
    routes: list[Route]
    handed: list[Handed]
    copies: list[Copy]
    """Only for a placement that fits."""
    loops: list[Loop]
    """Only for a placement that fits."""
    drawing: str | None
    """The plan as text, for a terminal."""
    digest: str | None


class Part(TypedDict):
    modality: str
    index: int
    """Position among the parts; inside a turn, among that turn's."""


class Turn(TypedDict):
    role: str
    index: int


class Use(TypedDict):
    use: str
    node: str
    taken: bool | None
    """None: in some iterations only."""
    why: str
    iterations: int | None
    """The most calls; None if that can't be computed."""


class HostCost(TypedDict):
    """Values of an edge, a state or a result that go from one host to another in a step."""

    pointer: str
    """JSON pointer into the graph; empty for a state."""
    what: str
    """`use.port -> use.port`, or the state's name."""
    source: str
    """Host."""
    target: str
    times: int | None
    """The most values; None if that can't be computed."""
    bytes: int | None
    """Bytes of each value; of a state the most with default parameters. None: not known."""
    seconds: float | None
    """Latency and bytes over bandwidth of all of them, one after the other; without `bytes`, of the latency alone.
    None: the link isn't measured, or `times` isn't known."""


# A call, as `as` can't name a field in a class.
Step = TypedDict(
    "Step",
    {
        # Relative to the task: `/steps/0/text/1`.
        "pointer": str,
        "walk": str,
        "as": str | None,
        "part": Part | None,
        # The turn of a conversation that it is taken for.
        "turn": Turn | None,
        "taken": bool | None,
        "why": str,
        # Loop -> the most iterations; None where that depends on the loop around it, or a stream ends it.
        "loops": dict[str, int | None],
        # The uses of a step that is taken.
        "uses": list[Use],
        # The most passes of loops of steps in which it is taken; None outside such loops.
        "passes": int | None,
        # What it sends from host to host, with the request's placement.
        "host_costs": list[HostCost],
    },
)


class Lane(TypedDict):
    lane: str
    """Empty where the task has a single list of steps."""
    steps: list[Step]


class Simulation(TypedDict):
    ok: bool
    problems: list[Problem]
    """Pointers start with `/graph`, or point into the request (`/params/steps`, `/inputs/image`, `/parts/2`)."""
    params: dict[str, Scalar]
    """All parameters of the task, filled in."""
    lanes: list[Lane]
    between_hosts: float | None
    """Seconds of all `host_costs` that are known; None where none is."""
