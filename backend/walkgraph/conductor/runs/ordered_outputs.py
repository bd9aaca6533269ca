"""Orders the outputs of several ranks by their steps, and within a step by their iterations. Pure.

Each rank goes through a run's steps at its own pace. Outputs of a later step wait here until the steps before it, in
the same list, have sent all of theirs. Several ranks may send one output in one step, from exclusive branches: each
also reports the iterations in which it has none, and an output waits until the others have reported its iteration.
"""

from collections import defaultdict
from collections.abc import Sequence

from walkgraph.ids import Rank
from walkgraph.placement.tables import SendOrder
from walkgraph.wire.messages import Absent, Emit


class _Senders:
    """One output in one step."""

    def __init__(self) -> None:
        self.ranks: set[Rank] = set()
        self._at: dict[Rank, tuple[int, ...]] = {}
        """The latest iteration that a rank has reported."""
        self._over: set[Rank] = set()
        """Ranks that have sent all of their outputs."""
        self._waiting: list[Emit] = []

    @property
    def over(self) -> bool:
        return self._over >= self.ranks

    def emit(self, message: Emit) -> list[Emit]:
        if len(self.ranks) == 1:
            return [message]
        self._at[message.rank] = message.iteration
        if not isinstance(message.value, Absent):
            self._waiting.append(message)
        return self._ready()

    def sent(self, rank: Rank) -> list[Emit]:
        self._over.add(rank)
        return self._ready()

    def _ready(self) -> list[Emit]:
        self._waiting.sort(key=lambda message: message.iteration)
        count = 0
        while count < len(self._waiting) and self._first(self._waiting[count]):
            count += 1
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def _first(self, message: Emit) -> bool:
        """True if no other rank can send anything of an earlier iteration."""
        others = self.ranks - self._over - {message.rank}
        return all(self._passed(rank, message.iteration) for rank in others)

    def _passed(self, rank: Rank, key: tuple[int, ...]) -> bool:
        at = self._at.get(rank)
        return at is not None and (at >= key or at == key[: len(at)])


class _Line:
    """One output, sent by one list of steps."""

    def __init__(self, order: SendOrder) -> None:
        self._steps = tuple(dict.fromkeys(order.steps))
        self._at = 0
        self._senders: dict[int, _Senders] = defaultdict(_Senders)
        for step, rank in zip(order.steps, order.ranks, strict=True):
            self._senders[step].ranks.add(rank)
        self._waiting: dict[int, list[Emit]] = defaultdict(list)

    def emit(self, message: Emit) -> list[Emit]:
        return self._in_order(message.step, self._senders[message.step].emit(message))

    def sent(self, step: int, rank: Rank) -> list[Emit]:
        found = self._in_order(step, self._senders[step].sent(rank))
        while self._senders[self._steps[self._at]].over and self._at + 1 < len(self._steps):
            self._at += 1
            found += self._waiting.pop(self._steps[self._at], [])
        return found

    def _in_order(self, step: int, ready: list[Emit]) -> list[Emit]:
        if step == self._steps[self._at]:
            return ready
        self._waiting[step] += ready
        return []


class OrderedOutputs:
    """The outputs of one run."""

    def __init__(self, orders: Sequence[SendOrder]) -> None:
        lines = [(one, _Line(one)) for one in orders]
        self._by_output = {(one.output, step): line for one, line in lines for step in one.steps}
        self._by_step: dict[int, list[_Line]] = defaultdict(list)
        for (_, step), line in self._by_output.items():
            self._by_step[step].append(line)

    def emit(self, message: Emit) -> list[Emit]:
        """The outputs that can be sent now."""
        line = self._by_output.get((message.name, message.step))
        if line is None:
            return [] if isinstance(message.value, Absent) else [message]
        return line.emit(message)

    def sent(self, step: int, rank: Rank) -> list[Emit]:
        """The outputs that can be sent once a rank has sent all of its own in a step."""
        return [message for line in self._by_step.get(step, ()) for message in line.sent(step, rank)]
