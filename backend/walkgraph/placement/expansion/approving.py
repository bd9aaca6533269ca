"""The approvals of a task, as one request reaches them: where a person is asked, what is shown, what was decided."""

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

from walkgraph.errors import Conflict
from walkgraph.graph.document import ApproveStep, Task
from walkgraph.graph.steps import APPROVED, approvals_of, kept_results
from walkgraph.placement.moves import kept_name
from walkgraph.placement.tables import Binding, Branch, Decision, FromLatest, FromLiteral, FromStep, LegAnswer

Shown = tuple[tuple[str, Binding | None], ...]
"""`walk.result` -> the source of its value; None if there is none."""


class Approval(NamedTuple):
    """A place where a run waits for a person."""

    number: int
    """How many came before it in the run."""
    step: ApproveStep
    shown: Shown
    kept: tuple[tuple[FromStep, ...], ...]
    """The results that something behind it may take, each as the drafts of which the last that is taken is meant."""


Going = Generator[int | Approval, LegAnswer, None]
"""Yields where a leg ends: the choice whose verdict decides how the steps go on, -1 for none, or an approval. Takes the
verdict, or the person's decision."""


def replay(going: Going, answers: Sequence[LegAnswer]) -> None:
    """Go on to the approval that the last of these answers. Raises Conflict if they don't lead to one."""
    stop: int | Approval = -1
    try:
        for i in range(len(answers)):
            stop = going.send(answers[i - 1]) if i else next(going)
    except (StopIteration, IndexError, TypeError):
        stop = -1
    if answers and not (isinstance(stop, Approval) and isinstance(answers[-1], Decision)):
        raise Conflict("the steps of the task don't lead to where the run waits; send the request again")


class ReachedApproval(NamedTuple):
    """An approval among the steps that a request goes through."""

    step: ApproveStep
    shown: Shown
    cases: tuple[Branch, ...]
    ends: tuple[int, ...]
    words: tuple[str, ...]
    """The values by which it is chosen, as sentences about them."""
    untaken: str
    """The reason that another branch is taken, if a parameter decides it."""
    passes: tuple[int, ...]


class Approvals:
    """The approvals of a task while its steps are gone through."""

    def __init__(self, task: Task, texts: Mapping[str, str]) -> None:
        """`texts`: kept results as cases name them."""
        self.consulted: dict[str, str] = {}
        """Those of them by which the steps were decided: they are needed again to find the same place."""
        self._texts = texts
        self._task, self._all = task, {id(found.step): found for found in approvals_of(task)}
        self.names = {found.step.as_ for found in approvals_of(task) if found.step.as_ is not None}
        self.seen: list[ReachedApproval] = []
        self.reached = 0
        """The number of approvals so far."""
        self.certain = 0
        """The number of approvals since the last decision that are certain to come before the next step."""
        self.since = 0
        """The first draft behind the last decision."""
        self._decided: dict[str, tuple[int, Decision | None]] = {}
        """`as` name -> its latest approval, with the decision if there is one yet."""

    def kept(self, step: ApproveStep) -> tuple[str, ...]:
        """The results that something behind it may take; there may be literals among them."""
        return kept_results(self._task, self._all[id(step)])

    def pass_by(self, step: ApproveStep, words: tuple[str, ...], untaken: str, passes: tuple[int, ...]) -> None:
        self.seen.append(ReachedApproval(step, (), (), (), words, untaken, passes))

    def reach(
        self,
        step: ApproveStep,
        shown: Shown,
        cases: tuple[Branch, ...],
        ends: tuple[int, ...],
        words: tuple[str, ...],
        passes: tuple[int, ...],
    ) -> int:
        """Note an approval that is reached; returns its number."""
        self.seen.append(ReachedApproval(step, shown, cases, ends, words, "", passes))
        self.reached += 1
        if step.as_ is not None:
            self._decided[step.as_] = self.reached - 1, None
        return self.reached - 1

    def decide(self, number: int, step: ApproveStep, decision: LegAnswer, drafts: int) -> None:
        """Take a decision. `drafts`: the number of them so far."""
        if not isinstance(decision, Decision):
            raise TypeError("an approval takes a person's decision")
        self.since, self.certain = drafts, 0
        if step.as_ is not None:
            self._decided[step.as_] = number, decision

    def apart(self, sources: Sequence[FromStep]) -> tuple[tuple[FromStep, ...], str | None]:
        """The results of steps behind the last decision, and the text of what is kept of those before."""
        kept = kept_name([source for source in sources if source.step < self.since])
        if kept in self._texts:
            self.consulted[kept] = self._texts[kept]
        return tuple(source for source in sources if source.step >= self.since), self._texts.get(kept)

    def latest(self, name: str, since: int) -> Decision | None:
        """The latest decision under a name; None if there is none yet, or none since that approval."""
        number, decision = self._decided.get(name, (-1, None))
        return decision if number >= since else None

    def binding(self, name: str, result: str, since: int) -> Binding | None:
        """The value that a decision gives to a step; None if no such approval was reached since that one."""
        number, decision = self._decided.get(name, (-1, None))
        if number < since:
            return None
        if decision is None:
            # Unknown: all branches of a choice by it are shown.
            return FromLatest(())
        return FromLiteral(decision.approved if result == APPROVED else decision.note)
