"""Messages about runs that make no progress: the conductor asks for their state, and each rank answers for its part.

conductor -> worker    Probe
worker -> conductor    Probed
"""

from walkgraph.ids import Rank, RunId
from walkgraph.wire.watching import Message


class Probe(Message, frozen=True, tag="probe"):
    """Answered by `Probed` between two steps of the engine."""

    number: int
    runs: tuple[RunId, ...]


class Wait(Message, frozen=True, tag="wait"):
    """A use that can't go on, and what it is waiting for."""

    walk: str
    use: str
    iteration: tuple[int, ...]
    port: str
    """The input without a value; empty if it waits for something else."""
    source: str
    """The source of that value, as edges name it: `use.port`, `@in.name`, `@stream.name`."""


class Held(Message, frozen=True, tag="held"):
    """A message that was not sent, as the sender doesn't know the target rank yet."""

    to: Rank
    edge: str
    """The edge it would take: `use.port -> use.port`, `@stream.name`; empty if none."""


class Standing(Message, frozen=True, tag="standing"):
    """One run on one rank."""

    run: RunId
    busy: bool
    """Part of it is being computed here, or waits for its turn or for sending."""
    sent: int
    """Count of messages about it to other ranks; held ones are not included."""
    received: int
    waits: tuple[Wait, ...] = ()
    """The value that it waits for, if it isn't busy."""
    held: tuple[Held, ...] = ()


class Probed(Message, frozen=True, tag="probed"):
    rank: Rank
    number: int
    runs: tuple[Standing, ...]
    """The runs known here."""
