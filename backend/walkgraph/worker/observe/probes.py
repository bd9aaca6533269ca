"""Answers the conductor's probes about runs that make no progress."""

from typing import Protocol

from msgspec.structs import replace

from walkgraph.ids import Rank
from walkgraph.wire.messages import Probed
from walkgraph.wire.standing import Probe, Standing
from walkgraph.worker.interfaces import CoreLike
from walkgraph.worker.io.pending import HeldMessages
from walkgraph.worker.io.reports import Reports
from walkgraph.worker.suspension import Suspension


class ProbedLinks(Protocol):
    """The links, as far as probes need them."""

    conductor: Reports
    held: HeldMessages

    def sends(self, run: str) -> bool: ...


class Probes:
    def __init__(self, rank: Rank, core: CoreLike, links: ProbedLinks, suspension: Suspension) -> None:
        self._rank, self._core, self._links, self._suspension = rank, core, links, suspension
        self._asked: Probe | None = None

    def ask(self, probe: Probe) -> None:
        """Take a probe, to be answered at the end of the turn, when all messages that have come are handled."""
        self._asked = probe

    def answer(self) -> None:
        if self._asked is None:
            return
        probe, self._asked = self._asked, None
        found = [one for run in probe.runs if (one := self._standing(run)) is not None]
        self._links.conductor.send(Probed(rank=self._rank, number=probe.number, runs=tuple(found)))

    def _standing(self, run: str) -> Standing | None:
        found = self._core.standing(run)
        if found is None:
            return None
        held = self._links.held.of(run)
        return replace(
            found,
            busy=found.busy or self._suspension.away(run) or self._links.sends(run),
            sent=found.sent - len(held),
            held=held,
        )
