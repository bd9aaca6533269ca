"""Orders the outputs of several ranks by their steps. Pure.

Each rank goes through a run's steps at its own pace. Outputs of a later step wait here until the steps before it, in
the same list, have sent all of theirs.
"""

from collections import defaultdict
from collections.abc import Sequence

from walkgraph.placement.tables import Turns
from walkgraph.wire.messages import Emit


class _Line:
    """One output, sent by one list of steps."""

    def __init__(self, turns: Turns) -> None:
        self._steps = turns.steps
        self._turn = 0
        self._over: set[int] = set()
        """Steps that have sent all of their outputs."""
        self._waiting: dict[int, list[Emit]] = defaultdict(list)

    def emit(self, message: Emit) -> list[Emit]:
        if message.step == self._steps[self._turn]:
            return [message]
        self._waiting[message.step].append(message)
        return []

    def sent(self, step: int) -> list[Emit]:
        self._over.add(step)
        found: list[Emit] = []
        while self._steps[self._turn] in self._over and self._turn + 1 < len(self._steps):
            self._turn += 1
            found += self._waiting.pop(self._steps[self._turn], [])
        return found


class OrderedOutputs:
    """The outputs of one run."""

    def __init__(self, turns: Sequence[Turns]) -> None:
        lines = [(one, _Line(one)) for one in turns]
        self._by_output = {(one.output, step): line for one, line in lines for step in one.steps}
        self._by_step: dict[int, list[_Line]] = defaultdict(list)
        for (_, step), line in self._by_output.items():
            self._by_step[step].append(line)

    def emit(self, message: Emit) -> list[Emit]:
        """The outputs that can be sent now."""
        line = self._by_output.get((message.name, message.step))
        return [message] if line is None else line.emit(message)

    def sent(self, step: int) -> list[Emit]:
        """The outputs that can be sent once a step has sent all of its own."""
        return [message for line in self._by_step.get(step, ()) for message in line.sent(step)]
