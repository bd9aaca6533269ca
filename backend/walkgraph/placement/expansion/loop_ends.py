"""Ends of the loops of a task's steps in one request, for the same reasons as loops in Walks."""

from collections.abc import Sequence
from typing import NamedTuple

from walkgraph.graph.document import LoopStep, Task
from walkgraph.graph.steps import loops_of
from walkgraph.placement.moves import ChoiceDraft, Draft
from walkgraph.placement.tables import BOUND, STOP, FromStep, flag_beside


class LoopEnded(NamedTuple):
    """The end of a loop of steps: its passes and the reason."""

    passes: int
    """Summed over all its entries."""
    reason: str
    """The end of its last entry."""


class PassEnd(NamedTuple):
    """The end of a pass of a loop, by a result."""

    drafts: range
    """Those of the pass."""
    choice: int


class LoopEnds:
    def __init__(self, task: Task) -> None:
        self.passes: list[PassEnd] = []
        self.ended: dict[str, LoopEnded] = {}
        """Loops that have ended since a person last decided, by their names. Known leg by leg."""
        self._names = {id(found.step): found.name for found in loops_of(task)}

    def end(self, step: LoopStep, passes: int, reason: str) -> None:
        """Note the end of one entry of a loop."""
        name = self._names[id(step)]
        before = self.ended[name].passes if name in self.ended else 0
        self.ended[name] = LoopEnded(before + passes, reason)


def reasons_of(drafts: Sequence[Draft], sources: Sequence[FromStep]) -> tuple[str, ...]:
    """The flags that may say why one of these results ends a loop."""
    found = (drafts[source.step].facts.reasons.get(source.result, ()) for source in sources)
    return tuple(dict.fromkeys(flag for flags in found for flag in flags))


def beside(sources: Sequence[FromStep], flag: str) -> tuple[FromStep, ...]:
    """The results for a flag beside these."""
    return tuple(FromStep(source.step, flag_beside(source.result, flag)) for source in sources)


def reason_of(choice: ChoiceDraft, verdict: int) -> str:
    """Why a pass was the last, by the verdict of the choice that ends it; `bound` if it need not be."""
    return (STOP, BOUND, *choice.reasons)[verdict] if verdict >= 0 else BOUND


def verdict_of(reasons: Sequence[str], reason: str) -> int:
    """The verdict that a choice with these flags gives for a reason; -1 for `bound`."""
    return {BOUND: -1, STOP: 0}.get(reason, 2 + reasons.index(reason) if reason in reasons else -1)
