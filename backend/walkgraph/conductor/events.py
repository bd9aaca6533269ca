"""Events and commands of a conductor's core. The core gets the time as an argument and never reads a clock."""

from msgspec import Struct

from walkgraph.ids import Rank
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m


class FromService(Struct, frozen=True):
    message: m.ToConductor


class FromRank(Struct, frozen=True):
    rank: Rank
    start: int
    """The number of the rank's start that sent it."""
    message: m.FromWorker


class Spawned(Struct, frozen=True):
    rank: Rank
    start: int
    pid: int


class Died(Struct, frozen=True):
    rank: Rank
    start: int
    code: int | None
    """Exit status; negative for a signal. None if nobody knows it."""
    reason: str = ""
    """The reason that it could not be started now, where the server that starts workers gives one."""


class Parted(Struct, frozen=True):
    """The connection with a worker on another host is lost, unless it has not said hello yet."""

    rank: Rank
    start: int


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = FromService | FromRank | Spawned | Parted | Died | Tick


class ToService(Struct, frozen=True):
    message: m.FromConductor


class ToRank(Struct, frozen=True):
    rank: Rank
    message: m.ToWorker


class Spawn(Struct, frozen=True):
    """Answered by `Spawned`, and later by `Died`."""

    rank: Rank
    start: int


class Kill(Struct, frozen=True):
    """Kills the worker with SIGKILL, because it doesn't answer or must end now."""

    rank: Rank


class Tell(Struct, frozen=True):
    event: t.Any


class Rename(Struct, frozen=True):
    """Telemetry goes by this name from now on."""

    name: str


class Exit(Struct, frozen=True):
    """The deployment has ended, and all of its workers are gone."""


Command = ToService | ToRank | Spawn | Kill | Tell | Rename | Exit
