"""Messages about the legs of a run: steps that its ranks get once all of them have ended those before."""

from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Leg
from walkgraph.wire.watching import Message


class Extend(Message, frozen=True, tag="extend"):
    """The next leg of a run, whose ranks have all ended the one before."""

    run: RunId
    leg: Leg


class LegDone(Message, frozen=True, tag="leg_done"):
    """All steps of a leg are done here, and the verdict that decides on the next leg is known."""

    rank: Rank
    run: RunId
    verdict: int = -1
    """The branch of the leg's choice `by`; -1 if it has none."""
