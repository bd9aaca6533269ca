"""What goes into a conductor's core and what comes out of it. Time is an argument, never read."""

from dataclasses import dataclass

from walkgraph.ids import Rank
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m


@dataclass(frozen=True, slots=True)
class FromService:
    message: m.ToConductor


@dataclass(frozen=True, slots=True)
class FromRank:
    rank: Rank
    start: int
    """Which start of the rank has sent it."""
    message: m.FromWorker


@dataclass(frozen=True, slots=True)
class Spawned:
    rank: Rank
    start: int
    pid: int


@dataclass(frozen=True, slots=True)
class Died:
    rank: Rank
    start: int
    code: int
    """Exit status; negative for a signal."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has gone on."""


Event = FromService | FromRank | Spawned | Died | Tick


@dataclass(frozen=True, slots=True)
class ToService:
    message: m.FromConductor


@dataclass(frozen=True, slots=True)
class ToRank:
    rank: Rank
    message: m.ToWorker


@dataclass(frozen=True, slots=True)
class Spawn:
    """Answered by `Spawned`, and later by `Died`."""

    rank: Rank
    start: int


@dataclass(frozen=True, slots=True)
class Kill:
    """With SIGKILL: it doesn't answer."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Tell:
    event: t.Any


@dataclass(frozen=True, slots=True)
class Exit:
    """The deployment is over and everything of it gone."""


Command = ToService | ToRank | Spawn | Kill | Tell | Exit
