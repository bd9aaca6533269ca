"""Events and commands of a conductor's core. The core gets the time as an argument and never reads a clock."""

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
    """The number of the rank's start that sent it."""
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
    code: int | None
    """Exit status; negative for a signal. None if nobody knows it."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


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
    """Kills the worker with SIGKILL, because it doesn't answer or must end now."""

    rank: Rank


@dataclass(frozen=True, slots=True)
class Tell:
    event: t.Any


@dataclass(frozen=True, slots=True)
class Rename:
    """Telemetry goes by this name from now on."""

    name: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The deployment has ended, and all of its workers are gone."""


Command = ToService | ToRank | Spawn | Kill | Tell | Rename | Exit
