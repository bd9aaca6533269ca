"""Calls of tasks: a rank asks for one, the service runs it, and the rank gets its outputs.

worker ──CallTask──> conductor ──CallTask──> service ──Submit──> the called deployment
worker <──TaskPiece── conductor <──TaskPiece── service <──Output── the called deployment
worker <──TaskAnswer── conductor <──TaskAnswer── service <──Finished── the called deployment
"""

import msgspec

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank, RunId
from walkgraph.wire.values import Absent, Value
from walkgraph.wire.watching import Message


class TaskCall(Message, frozen=True):
    """Names one call of a run: the use, its iteration, and its rank."""

    run: RunId
    rank: Rank
    step: int
    use: int
    iteration: tuple[int, ...]


class CallTask(TaskCall, frozen=True, tag="call_task"):
    """A use asks for a task. Answered by `TaskAnswer`, unless the run ends before."""

    task: str
    """`graph/task`, or the name of a component that calls a server outside."""
    walk: str
    node: str
    name: str
    """Name of the use in its Walk."""
    seed: int
    """Used unless a value is given for `seed`."""
    params: dict[str, str | bool | int | float]
    """Those that the node sets."""
    outputs: tuple[str, ...]
    """Those that the answer has. All, where these and `pieces` are empty."""
    pieces: tuple[str, ...] = ()
    """Those whose values are passed on as they come."""
    value: Value = Absent()
    """`Named`: port -> value."""
    deadline: float | None = None
    """Seconds that are left to the run. The conductor fills it in."""


class TaskPiece(TaskCall, frozen=True, tag="task_piece"):
    """A value that a called task has sent. `TaskAnswer` follows."""

    output: str
    value: Value


class TaskAnswer(TaskCall, frozen=True, tag="task_answer"):
    """The end of a called task: its outputs, or its error."""

    outputs: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])
    """Output -> its value; outputs without a value are missing."""
    error: ErrorInfo | None = None
    called: str = ""
    """Id of the run that it was; empty if none began."""
    queued: float = 0.0
    """Seconds until that run was admitted."""
