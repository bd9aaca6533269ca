"""Messages between the ranks of a loop that spans devices.

worker -> worker    InboxesAt, LaunchedTo, RunRests, LeftLoop
"""

from walkgraph.ids import RunId
from walkgraph.wire.watching import Message


class Inbox(Message, frozen=True, tag="inbox"):
    """Where the values of a channel of a loop that spans devices are put: offsets in the device arena of who reads."""

    channel: int
    data: int
    number: int
    start: int
    """The number is more than this where a value is there."""
    nbytes: int


class OfLoop(Message, frozen=True):
    """Of one loop that spans devices, as all its ranks name it."""

    run: RunId
    step: int
    loop: str
    iteration: tuple[int, ...]
    """Indices of the loops around it."""


class InboxesAt(OfLoop, frozen=True, tag="inboxes"):
    """The receiver's values of a loop go here."""

    inboxes: tuple[Inbox, ...]


class LaunchedTo(OfLoop, frozen=True, tag="ride"):
    """The leader launches iterations up to this, counted from the loop's start: the others launch the same. It may not
    wait behind tensors."""

    upto: int


class RunRests(Message, frozen=True, tag="rest"):
    """The leader launches nothing more of a run before it is resumed."""

    run: RunId


class LeftLoop(OfLoop, frozen=True, tag="left"):
    """The sender writes nothing more into the receiver's inboxes for this loop."""


BetweenParts = InboxesAt | LaunchedTo | RunRests | LeftLoop
