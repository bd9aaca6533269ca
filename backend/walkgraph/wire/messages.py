"""Every message between processes: one tagged union a direction, msgpack on the wire, unknown tags and fields refused.

    service -> conductor    Submit, Abort, Steer, Watch, AskSessions, Drain, Stop
    conductor -> service    Status, Accepted, Rejected, Output, Paused, Resumed, SessionsTold, Finished
    conductor -> worker     Load, Peers, Start, Cancel, Suspend, Resume, Watch, Gate, Ping, Probe, Stop
    worker -> conductor     Hello, Progress, Ready, Connected, LoadFailed, Faulted, Emit, Sent, Halted, RankDone,
                            RankFailed, Suspended, Released, Pong, Probed
    worker -> worker        Deliver, Until, StreamItem, StreamDone, Credit, Freed, Greet, Greeted, Opened, InboxesAt,
                            LaunchedTo, RunRests, LeftLoop

Values ride inside a message while they are tiny; larger tensors stay in the sender's arena, and a `Ticket` travels.
"""

from typing import Literal

import msgspec

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Itinerary, Plan, Scalar
from walkgraph.wire.sessions import AskSessions, SessionsTold
from walkgraph.wire.spanning import BetweenParts
from walkgraph.wire.standing import Probe, Probed
from walkgraph.wire.watching import Gate, Halted, Message, Paused, Resumed, Steer, Watch

# ── values ──────────────────────────────────────────────────────────────────────────────────────


class Absent(Message, frozen=True, tag="absent"):
    """A value that is explicitly not there: a skipped use, a finished stream."""


class Small(Message, frozen=True, tag="small"):
    value: str | bool | int | float


class Blob(Message, frozen=True, tag="blob"):
    """Encoded media."""

    data: bytes


class TensorHeader(Message, frozen=True):
    dtype: Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    shape: tuple[int, ...]


class InlineTensor(TensorHeader, frozen=True, tag="tensor"):
    data: bytes


class Ticket(TensorHeader, frozen=True, tag="ticket"):
    """`nbytes` at `offset` of the sender's arena; the receiver answers `Freed(ticket=id)` once it has taken it."""

    id: int
    owner: Rank
    transport: str
    """The name of the sender's."""
    offset: int
    nbytes: int


class Many(Message, frozen=True, tag="many"):
    """A list: values that differ in shape."""

    items: tuple["Value", ...]


class Named(Message, frozen=True, tag="named"):
    """A mapping: the tensors of a state."""

    items: dict[str, "Value"]


Value = Absent | Small | Blob | InlineTensor | Ticket | Many | Named


# ── service and conductor ───────────────────────────────────────────────────────────────────────


class Part(Message, frozen=True, tag="part"):
    modality: str
    value: Value


class Submit(Message, frozen=True, tag="submit"):
    run: RunId
    task: str
    params: dict[str, Scalar]
    """As the client gave them; the conductor fills in defaults and checks bounds."""
    inputs: dict[str, tuple[Value, ...]]
    """Named inputs; several values where the task says `many`."""
    parts: tuple[Part, ...] = ()
    """The interleaved form, for tasks that walk `parts`."""
    outputs: tuple[str, ...] | None = None
    """Wanted outputs; None for all."""
    priority: int = 0
    """Higher first."""
    deadline: float | None = None
    """Seconds from arrival."""
    session: str | None = None
    record: bool = False
    """Tell every value of its Walks as a `Sample`, with its digest; it is stepped."""
    hold: bool = False
    """Pause it before its first calls; it is stepped."""


class Abort(Message, frozen=True, tag="abort"):
    run: RunId
    reason: Literal["cancelled", "disconnected", "deadline_exceeded"] = "cancelled"


class Drain(Message, frozen=True, tag="drain"):
    """Finish what runs, take nothing new."""


class Stop(Message, frozen=True, tag="stop"):
    pass


class RankStatus(Message, frozen=True, tag="rank_status"):
    rank: Rank
    state: Literal["starting", "loading", "warming", "ready", "lost", "failed"]
    phase: str = ""
    fraction: float = 0.0
    pid: int | None = None
    restarts: int = 0
    reason: str | None = None


class Status(Message, frozen=True, tag="status"):
    """Sent on every change."""

    state: Literal["starting", "ready", "degraded", "draining", "failed", "stopped"]
    ranks: tuple[RankStatus, ...]
    running: int = 0
    waiting: int = 0
    reason: str | None = None


class Accepted(Message, frozen=True, tag="accepted"):
    run: RunId
    seed: int


class Rejected(Message, frozen=True, tag="rejected"):
    run: RunId
    error: ErrorInfo
    pointer: str = ""


class Output(Message, frozen=True, tag="output"):
    """One value for the client; `index` counts from 0 for each output name."""

    run: RunId
    name: str
    index: int
    value: Value
    iteration: tuple[int, ...] = ()
    modality: str = ""
    """Of the port it comes from; a client's value is told by it where its bytes don't say."""


class NodeTime(Message, frozen=True, tag="node_time"):
    """Where a run's time went on one rank: seconds, calls, and seconds spent ready but not yet running. Of a node, or,
    with `walk`, of a loop that its device ran whole: nothing tells apart what its nodes took."""

    node: str
    """Or the loop."""
    rank: Rank
    calls: int
    """Or iterations."""
    busy: float
    queued: float
    walk: str = ""
    """Of a loop."""
    inside: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Of a loop: how often it has called its nodes."""
    spans: bool = False
    """The loop has parts on other ranks, which wait for each other on the devices: their times are in its own."""


class LoopEnd(Message, frozen=True, tag="loop_end"):
    """How a loop with an `until` ended in one run."""

    walk: str
    loop: str
    iterations: int
    """Over all times that it was entered."""
    stopped: bool
    """The last time by its `until`, not by its count."""


class Finished(Message, frozen=True, tag="finished"):
    """Terminal, exactly once for an accepted run, after everything it held is freed or its ranks are gone."""

    run: RunId
    error: ErrorInfo | None = None
    seconds: float = 0.0
    queued: float = 0.0
    times: tuple[NodeTime, ...] = ()
    loops: tuple[LoopEnd, ...] = ()
    read: int = 0
    """Tokens that calls outside loops added to paged states: of texts, pictures, sounds."""
    found: int = 0
    """Of those, what pages of earlier runs held already."""


# ── conductor and worker ────────────────────────────────────────────────────────────────────────


class Peer(Message, frozen=True, tag="peer"):
    """Where a worker takes messages from its peers, and by what they find what it puts into its transports."""

    address: str
    start: int
    """Counts this deployment's worker starts; what an older start of a rank has sent is dropped."""
    handles: dict[str, bytes] = msgspec.field(default_factory=dict[str, bytes])
    """Transport -> what its `connect` takes."""


class Load(Message, frozen=True, tag="load"):
    plan: Plan
    peers: dict[Rank, Peer]


class Peers(Message, frozen=True, tag="peers"):
    """A rank was started anew: these are the peers from now on; what was under way to or from an older one is lost."""

    peers: dict[Rank, Peer]


class Start(Message, frozen=True, tag="start"):
    run: RunId
    itinerary: Itinerary
    params: dict[str, Scalar]
    """Resolved, `seed` included."""
    inputs: dict[str, Value]
    """Only what this rank's steps read."""
    session: str | None = None
    priority: int = 0
    stepped: bool = False
    """Its loops are run call by call, on all its ranks."""
    record: bool = False
    hold: bool = False


class Cancel(Message, frozen=True, tag="cancel"):
    """End a run and free all it holds here; answered by `Released`, also for an unknown run."""

    run: RunId


class Suspend(Message, frozen=True, tag="suspend"):
    """Free the pages of a run, but lose nothing; answered by `Suspended`, also for an unknown run. What its session
    keeps stays."""

    run: RunId


class Resume(Message, frozen=True, tag="resume"):
    """Go on with a suspended run, for which its pages are free again."""

    run: RunId


class Ping(Message, frozen=True, tag="ping"):
    """Answered by `Pong` between two steps of the engine."""

    number: int


class Hello(Message, frozen=True, tag="hello"):
    rank: Rank
    peer: Peer


class Progress(Message, frozen=True, tag="progress"):
    rank: Rank
    phase: Literal["load", "warm", "capture"]
    fraction: float


class PoolSize(Message, frozen=True, tag="pool"):
    """Paged states that share memory on a rank."""

    states: tuple[str, ...]
    pages: int
    page_tokens: int
    page_bytes: int


class Ready(Message, frozen=True, tag="ready"):
    rank: Rank
    seconds: float
    pools: tuple[PoolSize, ...] = ()


class Connected(Message, frozen=True, tag="connected"):
    """The peers that have answered this rank's `Greet`: messages go both ways between them and it."""

    rank: Rank
    peers: dict[Rank, int]
    """Rank -> its start."""


class LoadFailed(Message, frozen=True, tag="load_failed"):
    rank: Rank
    error: ErrorInfo


class Faulted(Message, frozen=True, tag="faulted"):
    """The worker can't go on and ends itself: its last message."""

    rank: Rank
    error: ErrorInfo


class Emit(Message, frozen=True, tag="emit"):
    rank: Rank
    run: RunId
    name: str
    value: Value
    iteration: tuple[int, ...]
    modality: str = ""
    step: int = 0


class Sent(Message, frozen=True, tag="sent"):
    """A step sends no more outputs from this rank. Told of steps that have a turn alone."""

    rank: Rank
    run: RunId
    step: int


class RankDone(Message, frozen=True, tag="rank_done"):
    """All steps of this run are done here; its states stay until `Cancel`, for a peer may still copy from them."""

    rank: Rank
    run: RunId
    times: tuple[NodeTime, ...]
    loops: tuple[LoopEnd, ...] = ()
    read: int = 0
    """As `Finished` has both."""
    found: int = 0


class RankFailed(Message, frozen=True, tag="rank_failed"):
    rank: Rank
    run: RunId
    error: ErrorInfo


class Suspended(Message, frozen=True, tag="suspended"):
    """Nothing of the run is launched here and its pages are free, until `Resume`."""

    rank: Rank
    run: RunId
    pages_free: int


class Released(Message, frozen=True, tag="released"):
    rank: Rank
    run: RunId
    pages_free: int
    pages_total: int


class Pong(Message, frozen=True, tag="pong"):
    rank: Rank
    number: int


# ── worker and worker ───────────────────────────────────────────────────────────────────────────


class Deliver(Message, frozen=True, tag="deliver"):
    """A value on an edge whose ends are on two ranks; or a step's result, `edge` being that of the result."""

    run: RunId
    step: int
    edge: int
    key: tuple[int, ...]
    value: Value


class Until(Message, frozen=True, tag="until"):
    run: RunId
    step: int
    loop: int
    key: tuple[int, ...]
    """Indices of the loop's parents and the iteration judged."""
    stop: bool
    closing: bool = False
    """Of the loop `chunk`: the iteration's chunk has no new items."""


class StreamItem(Message, frozen=True, tag="stream_item"):
    run: RunId
    stream: int
    step: int
    """The step that gives it."""
    index: int
    """Of the first item, among those of the step."""
    value: Value
    """Of several items: a tensor whose first axis counts them, or a list."""
    count: int = 1


class StreamDone(Message, frozen=True, tag="stream_done"):
    """A step gives no more items to a stream."""

    run: RunId
    stream: int
    step: int
    count: int
    """Of the step's items."""


class Credit(Message, frozen=True, tag="credit"):
    run: RunId
    stream: int
    rank: Rank
    """The consumer."""
    consumed: int
    """Of the receiver's items, how many it holds no longer."""


class Freed(Message, frozen=True, tag="freed"):
    ticket: int


class Greet(Message, frozen=True, tag="greet"):
    """The first message to a peer; answered by `Greeted` once the receiver knows the sender."""


class Greeted(Message, frozen=True, tag="greeted"):
    pass


class Opened(Message, frozen=True, tag="opened"):
    """The sender can read what the other has put into this transport. Before that no ticket of it is sent there, where
    the transport is declared `confirmed`."""

    transport: str


ToConductor = Submit | Abort | Steer | Watch | AskSessions | Drain | Stop
FromConductor = Status | Accepted | Rejected | Output | Paused | Resumed | SessionsTold | Finished
ToWorker = Load | Peers | Start | Cancel | Suspend | Resume | Watch | Gate | Ping | Probe | Stop
OfRank = Hello | Progress | Ready | Connected | LoadFailed | Faulted | Pong | Probed
FromWorker = OfRank | Emit | Sent | Halted | RankDone | RankFailed | Suspended | Released
BetweenWorkers = Deliver | Until | StreamItem | StreamDone | Credit | Freed | Greet | Greeted | Opened | BetweenParts
