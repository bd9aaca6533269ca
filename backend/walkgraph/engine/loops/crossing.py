"""What the lanes of one engine have to do with the other parts of loops that span ranks; for all others, nothing."""

from collections.abc import Sequence
from typing import Any

import torch

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.loops.lanes import Lane
from walkgraph.engine.loops.layout import channel_bytes
from walkgraph.engine.loops.riders import Rider
from walkgraph.engine.loops.spanning import Inbox, Key, Spans
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank


class Crossing:
    def __init__(self) -> None:
        self.spans: Spans | None = None
        """None where this rank has no memory for what other parts hand it."""

    @property
    def busy(self) -> bool:
        """Whether something ends by itself."""
        return self.spans is not None and self.spans.busy

    def begins(self, lane: Lane, call: LoopCall) -> bool:
        """Whether a loop may have a row now. Raises CallFailed where it never may."""
        if not lane.spans:
            return True
        if self.spans is None:
            raise CallFailed(f"`{call.loop}` has parts on other ranks, whose devices this one can't reach")
        return self.spans.begin(call, channel_bytes(lane.program.body)[0])

    def seat(self, lane: Lane, rider: Rider) -> None:
        """It has a row."""
        if lane.spans and self.spans is not None:
            follows = not rider.call.leads and rider.call.peers
            rider.linked, rider.rides = False, self.spans.rides if follows else None
            self.link(lane, rider)

    def link(self, lane: Lane, rider: Rider) -> None:
        """Fill in where its values go, if that is known. Raises CallFailed."""
        if self.spans is not None and not rider.linked and self.spans.linked(rider.call):
            with torch.inference_mode():
                links = self.spans.links(rider.call, channel_bytes(lane.program.body)[1])
                lane.program.link(rider.row, links)
            rider.linked = True

    def ride(self, lane: Lane, riders: Sequence[Rider]) -> None:
        """What they have `launched` is about to be."""
        if lane.spans and self.spans is not None:
            self.spans.ride(riders[0].call, riders[0].launched)

    def may_leave(self, call: LoopCall) -> bool:
        return self.spans is None or self.spans.may_leave(call)

    def owes(self, call: LoopCall) -> bool:
        return self.spans is not None and self.spans.owes(call)

    def end(self, call: LoopCall, mark: Any, *, halt: bool) -> None:
        if self.spans is not None:
            self.spans.end(call, mark, halt=halt)

    def cancel(self, run: str, mark: Any) -> None:
        if self.spans is not None:
            self.spans.cancel(run, mark)

    def hold(self, run: str) -> None:
        if self.spans is not None:
            self.spans.hold(run)

    def release(self, run: str) -> None:
        if self.spans is not None:
            self.spans.release(run)

    def poll(self) -> bool:
        """True if an inbox was given back."""
        return self.spans is not None and self.spans.poll()

    # ── what peers say: true where loops may go on that could not ──

    def told(self, rank: Rank, key: Key, inboxes: Sequence[Inbox]) -> bool:
        if self.spans is not None:
            self.spans.told(rank, key, inboxes)
        return True

    def ridden(self, key: Key, upto: int) -> bool:
        return self.spans is not None and self.spans.ridden(key, upto)

    def rested(self, run: str) -> bool:
        if self.spans is not None:
            self.spans.rested(run)
        return True

    def left(self, rank: Rank, key: Key) -> bool:
        return self.spans is not None and self.spans.left(rank, key)

    def gone(self, rank: Rank) -> bool:
        return self.spans is not None and self.spans.gone(rank)
