"""Messages about runs that make no progress: the conductor asks how they stand, each rank answers for its part.

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
    """A use that can't go on, and what it lacks."""

    walk: str
    use: str
    iteration: tuple[int, ...]
    port: str
    """Its input that has no value yet; empty where it waits for something else."""
    source: str
    """Where that comes from, as edges name it: `use.port`, `@in.name`, `@stream.name`."""


class Held(Message, frozen=True, tag="held"):
    """A message that was not sent, for its rank is not known to the sender."""

    to: Rank
    edge: str
    """Where it would go: `use.port -> use.port`, `@stream.name`; empty where it goes along none."""


class Standing(Message, frozen=True, tag="standing"):
    """One run on one rank."""

    run: RunId
    busy: bool
    """Something of it is computed here, or waits for its turn or to be sent."""
    sent: int
    """Messages about it to other ranks, so far; those that are held were not sent."""
    received: int
    waits: tuple[Wait, ...] = ()
    """Where it isn't busy."""
    held: tuple[Held, ...] = ()


class Probed(Message, frozen=True, tag="probed"):
    rank: Rank
    number: int
    runs: tuple[Standing, ...]
    """Those that are known here."""
