"""All messages between processes: one tagged union per direction, msgpack on the wire, unknown tags and fields refused.

    service -> conductor    Submit, Abort, TaskPiece, TaskAnswer, Steer, Watch, AskSessions, AskQueue, TakeUp,
                            Drain, Stop
    conductor -> service    Status, Accepted, Rejected, Output, CallTask, Paused, Resumed, SessionsTold, QueueTold,
                            TakenUp, Waits, Finished
    conductor -> worker     Load, Peers, Start, Extend, Cancel, Suspend, Resume, TaskPiece, TaskAnswer, Watch, Gate,
                            Ping, Probe, Stop
    worker -> conductor     Hello, Progress, Ready, Connected, LoadFailed, Faulted, Parted, Emit, Sent, CallTask,
                            Halted, LegResult, LegDone, RankDone, RankFailed, Suspended, Released, Pong, Probed
    worker -> worker        Deliver, StatePart, PartTaken, Until, Chosen, Counted, ItemDone, StepChosen, StreamItem,
                            StreamDone, Credit, Freed, Greet, Greeted, Opened, InboxesAt, LaunchedTo, RunRests, LeftLoop

Small values travel inside a message; larger tensors stay in the sender's arena, and a `Ticket` travels. A large output
is posted to the service, and `Posted` travels.
"""

from typing import Literal

import msgspec

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.placement.selection import Selection
from walkgraph.placement.tables import Itinerary, Plan, Scalar
from walkgraph.wire.calling import CallTask, TaskAnswer, TaskPiece
from walkgraph.wire.legs import Approval, Asked, Decided, Extend, LegDone, LegResult, Resumption, ShownValue
from walkgraph.wire.processes.host_clocks import Ping, Pong
from walkgraph.wire.questions import AskQueue, AskSessions, QueueTold, SessionsTold
from walkgraph.wire.spanning import BetweenParts, PartTaken, StatePart
from walkgraph.wire.spec import RankStatus, Status, TakenUp, TakeUp
from walkgraph.wire.standing import Probe, Probed
from walkgraph.wire.totals import LoopEnd, NodeTime, Played
from walkgraph.wire.values import (
    Absent,
    Blob,
    Conversation,
    InlineTensor,
    Many,
    Named,
    Part,
    Posted,
    Small,
    TensorHeader,
    Ticket,
    ToolCall,
    Turn,
    Value,
)
from walkgraph.wire.watching import Gate, Halted, Message, Paused, Resumed, Steer, Watch

__all__ = [
    "Absent",
    "Asked",
    "Blob",
    "Conversation",
    "Decided",
    "InlineTensor",
    "LoopEnd",
    "Many",
    "Named",
    "NodeTime",
    "Played",
    "Posted",
    "RankStatus",
    "ShownValue",
    "Small",
    "TensorHeader",
    "Ticket",
    "ToolCall",
    "Turn",
]

# ── service and conductor ───────────────────────────────────────────────────────────────────────


class Submit(Message, frozen=True, tag="submit"):
    run: RunId
    task: str
    params: dict[str, Scalar]
    """As the client gave them; the conductor fills in defaults and checks bounds."""
    inputs: dict[str, tuple[Value, ...]]
    """Input -> its values; several where the task says `many`."""
    parts: tuple[Part, ...] = ()
    """The interleaved form, for tasks that go through `parts`."""
    outputs: tuple[str, ...] | None = None
    """The requested outputs; None for all."""
    selected: dict[str, Selection] = msgspec.field(default_factory=dict[str, Selection])
    """The values that leave of these outputs; of the others all do."""
    priority: int = 0
    """Higher first."""
    deadline: float | None = None
    """Seconds from arrival."""
    session: str | None = None
    depth: int = 0
    """How many runs wait for it, one for the other: 0 for a client's run."""
    record: bool = False
    """Report every value of its Walks as a `Sample` with a digest. Its loops are stepped."""
    hold: bool = False
    """Pause it before its first calls. Its loops are stepped."""
    salt: str = ""
    """Whose run it is: the access key's id. It finds pages and kept outputs of runs with the same one."""
    resumed: Resumption | None = None
    """It is the rest of a run that waited for a person."""


class Abort(Message, frozen=True, tag="abort"):
    run: RunId
    reason: Literal["cancelled", "disconnected", "deadline_exceeded"] = "cancelled"


class Drain(Message, frozen=True, tag="drain"):
    """Finish active runs, and accept no new ones."""


class Stop(Message, frozen=True, tag="stop"):
    pass


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
    """Modality of the source port; it identifies a client's value whose bytes don't."""
    passes: tuple[int, ...] = ()
    """The pass of each loop of steps around its step, outermost first."""


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
    """How many of those tokens were found in pages of earlier runs."""
    played: Played | None = None
    """None if nothing of it is played."""
    unknown_words: tuple[str, ...] = ()
    """Words of the request that a starter has not learned. The service adds them."""


class Waits(Message, frozen=True, tag="waits"):
    """Terminal, in place of `Finished`: the run waits for a person, and holds nothing any more."""

    run: RunId
    approval: Approval
    rest: Resumption
    """The run up to here; its `answers` lack the person's decision."""
    end: Finished
    """Its times so far."""


# ── conductor and worker ────────────────────────────────────────────────────────────────────────


class Peer(Message, frozen=True, tag="peer"):
    """The address where a worker takes messages from its peers, and handles for what it puts into its transports."""

    address: str
    start: int
    """Counts starts of this deployment's workers; messages of an older start of a rank are dropped."""
    handles: dict[str, bytes] = msgspec.field(default_factory=dict[str, bytes])
    """Transport -> the argument of its `connect`."""
    port: int = 0
    """The TCP port of its host for peers on other hosts; 0: it has none."""


class Load(Message, frozen=True, tag="load"):
    """Load what a plan needs. A rank that has loaded one already drops it first, except for the operators that both
    have."""

    plan: Plan
    peers: dict[Rank, Peer]
    number: int = 0
    """Repeated by `Ready` and `LoadFailed`."""
    telemetry_name: str = ""
    """The name in telemetry; empty: the spec's."""
    shards: dict[Rank, int] = msgspec.field(default_factory=dict[Rank, int])
    """The starts of the ranks that hold shards of this one's nodes, its own among them."""


class Peers(Message, frozen=True, tag="peers"):
    """A rank was restarted: these are the peers from now on; messages to and from older ones are lost."""

    peers: dict[Rank, Peer]


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
    number: int = 0
    """Number of its `Load`."""


class Connected(Message, frozen=True, tag="connected"):
    """The peers that have answered this rank's `Greet`: messages between them and it flow both ways."""

    rank: Rank
    peers: dict[Rank, int]
    """Rank -> the count of its start."""


class LoadFailed(Message, frozen=True, tag="load_failed"):
    rank: Rank
    error: ErrorInfo
    number: int = 0
    """Number of its `Load`."""


class Faulted(Message, frozen=True, tag="faulted"):
    """The worker can't go on and exits: its last message."""

    rank: Rank
    error: ErrorInfo


class Parted(Message, frozen=True, tag="parted"):
    """The worker has lost its connection with a peer on another host, and perhaps messages to it."""

    rank: Rank
    peer: Rank
    start: int
    """The peer's."""


class Start(Message, frozen=True, tag="start"):
    run: RunId
    itinerary: Itinerary
    params: dict[str, Scalar]
    """Resolved parameters, `seed` included."""
    inputs: dict[str, Value]
    """Only the inputs that this rank's steps read."""
    session: str | None = None
    priority: int = 0
    stepped: bool = False
    """Its loops are stepped on all its ranks."""
    record: bool = False
    hold: bool = False
    salt: str = ""
    selected: dict[str, Selection] = msgspec.field(default_factory=dict[str, Selection])


class Cancel(Message, frozen=True, tag="cancel"):
    """End a run and free everything it holds here; answered by `Released`, even for an unknown run."""

    run: RunId


class Suspend(Message, frozen=True, tag="suspend"):
    """Free a run's pages without losing their content; answered by `Suspended`, even for an unknown run. Its session's
    states stay."""

    run: RunId


class Resume(Message, frozen=True, tag="resume"):
    """Continue a suspended run; its pages are free again."""

    run: RunId


class Emit(Message, frozen=True, tag="emit"):
    rank: Rank
    run: RunId
    name: str
    value: Value
    iteration: tuple[int, ...]
    modality: str = ""
    step: int = 0
    passes: tuple[int, ...] = ()


class Sent(Message, frozen=True, tag="sent"):
    """A step sends no more outputs from this rank. Only for steps that take turns."""

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
    """Like `Finished.read` and `Finished.found`."""
    found: int = 0
    played: Played | None = None


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


# ── worker and worker ───────────────────────────────────────────────────────────────────────────


class Deliver(Message, frozen=True, tag="deliver"):
    """A value on an edge between two ranks; or a step's result, where `edge` is the result's."""

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
    """Indices of the enclosing loops, and of the iteration judged."""
    stop: bool
    closing: bool = False
    """For the loop `chunk`: the iteration's chunk has no new items."""


class Chosen(Message, frozen=True, tag="chosen"):
    """The verdict of a choice in a Walk."""

    run: RunId
    step: int
    choice: int
    key: tuple[int, ...]
    """Indices of the loops around the choice."""
    branch: int
    """-1: none."""


class Counted(Message, frozen=True, tag="counted"):
    """The number of a map's items."""

    run: RunId
    step: int
    loop: int
    key: tuple[int, ...]
    """Indices of the loops around the map."""
    items: int


class ItemDone(Message, frozen=True, tag="item_done"):
    """An item of a map is done on the sending rank."""

    run: RunId
    step: int
    loop: int
    key: tuple[int, ...]
    """Indices of the loops around the map, and of the item."""


class StepChosen(Message, frozen=True, tag="step_chosen"):
    """The verdict of a choice among a run's steps."""

    run: RunId
    choice: int
    branch: int


class StreamItem(Message, frozen=True, tag="stream_item"):
    run: RunId
    stream: int
    step: int
    """The step that produces it."""
    index: int
    """Index of the first item within the step."""
    value: Value
    """For several items: a tensor whose first axis counts them, or a list."""
    count: int = 1


class StreamDone(Message, frozen=True, tag="stream_done"):
    """A step produces no more items for a stream."""

    run: RunId
    stream: int
    step: int
    count: int
    """Count of the step's items."""


class Credit(Message, frozen=True, tag="credit"):
    run: RunId
    stream: int
    rank: Rank
    """The consumer."""
    consumed: int
    """Count of the receiver's items that it has released."""
    left: bool = False
    """The consumer reads no more, so that nothing waits for it."""


class Freed(Message, frozen=True, tag="freed"):
    ticket: int


class Greet(Message, frozen=True, tag="greet"):
    """The first message to a peer; answered by `Greeted` once the receiver knows the sender."""


class Greeted(Message, frozen=True, tag="greeted"):
    pass


class Opened(Message, frozen=True, tag="opened"):
    """The sender can read what the other puts into this transport. Tickets of a transport that is declared `confirmed`
    are sent only after this."""

    transport: str


Questions = AskSessions | AskQueue
ToConductor = Submit | Abort | TaskPiece | TaskAnswer | Steer | Watch | Questions | TakeUp | Drain | Stop
Answered = SessionsTold | QueueTold | TakenUp
FromConductor = Status | Accepted | Rejected | Output | CallTask | Paused | Resumed | Answered | Waits | Finished
Answers = TaskPiece | TaskAnswer
ToWorker = Load | Peers | Start | Extend | Cancel | Suspend | Resume | Answers | Watch | Gate | Ping | Probe | Stop
OfRank = Hello | Progress | Ready | Connected | LoadFailed | Faulted | Parted | Pong | Probed
OfLeg = LegResult | LegDone
FromWorker = OfRank | Emit | Sent | CallTask | Halted | OfLeg | RankDone | RankFailed | Suspended | Released
OfStates = StatePart | PartTaken
OfRun = Deliver | OfStates | Until | Chosen | Counted | ItemDone | StepChosen | StreamItem | StreamDone | Credit
BetweenWorkers = OfRun | Freed | Greet | Greeted | Opened | BetweenParts
