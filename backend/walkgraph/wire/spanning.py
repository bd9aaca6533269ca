"""Messages between the ranks of a loop that spans devices.

worker -> worker    InboxesAt, LaunchedTo, RunRests, LeftLoop
"""

from walkgraph.ids import RunId
from walkgraph.wire.watching import Message


class Inbox(Message, frozen=True, tag="inbox"):
    """Where the values of a channel go, in a device loop on several ranks: offsets in the reader's device arena."""

    channel: int
    data: int
    number: int
    start: int
    """A value has arrived once the number exceeds this."""
    nbytes: int


class OfLoop(Message, frozen=True):
    """A message about one device loop on several ranks, named alike by all of them."""

    run: RunId
    step: int
    loop: str
    iteration: tuple[int, ...]
    """Indices of the enclosing loops."""


class InboxesAt(OfLoop, frozen=True, tag="inboxes"):
    """Where to put the receiver's values of a loop."""

    inboxes: tuple[Inbox, ...]


class LaunchedTo(OfLoop, frozen=True, tag="ride"):
    """The leader launches iterations up to this one, counted from the loop's start, and the others launch the same. It
    must not queue behind tensors."""

    upto: int


class RunRests(Message, frozen=True, tag="rest"):
    """The leader launches nothing more of a run until it is resumed."""

    run: RunId


class LeftLoop(OfLoop, frozen=True, tag="left"):
    """The sender writes no more into the receiver's inboxes for this loop."""


BetweenParts = InboxesAt | LaunchedTo | RunRests | LeftLoop
