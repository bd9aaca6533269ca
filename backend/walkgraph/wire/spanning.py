"""Messages between ranks about what spans them: device loops, and states that leave in parts while they grow.

worker -> worker    InboxesAt, LaunchedTo, RunRests, LeftLoop, StatePart, PartTaken
"""

from walkgraph.ids import Rank, RunId
from walkgraph.wire.values import Value
from walkgraph.wire.watching import Message


class Inbox(Message, frozen=True, tag="inbox"):
    """The place of a channel's values, in a device loop on several ranks: offsets in the reader's device arena."""

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
    """The places for the receiver's values of a loop."""

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


class StatePart(Message, frozen=True, tag="state_part"):
    """The next part of a state that is on its way to another rank while it grows. The last one is the value of the
    move's edge (`Deliver`). Answered by `PartTaken`."""

    run: RunId
    step: int
    """The step that moves the state."""
    state: int
    rank: Rank
    """The sender."""
    number: int
    """Counts the parts of this move, from 0."""
    value: Value


class PartTaken(Message, frozen=True, tag="part_taken"):
    """The receiver has stored a part of a state, so that another one may leave."""

    run: RunId
    step: int
    held: int
    """Tokens of a sequence that the receiver has now. The answer to an offer, which brings the names of tokens: those
    that it has already need not be sent."""
