"""Watching of one run on one rank: the values that are probed, and the gate that its calls pass."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan, StepPlan
from walkgraph.wire.watching import Gate as Order
from walkgraph.wire.watching import Watch
from walkgraph.worker.events import Command, Ref, RunCall, Started
from walkgraph.worker.observe.gate import Gate
from walkgraph.worker.observe.observing import Observed


class Control:
    def __init__(
        self, plan: Plan, rank: Rank, event: Started, watch: Watch, loops: Callable[[], Iterable[Ref]]
    ) -> None:
        """`loops`: gives the device loops that have not ended."""
        self._plan, self._rank, self._record, self._loops = plan, rank, event.record, loops
        self._run: RunId = event.run
        self.steps: list[StepPlan] = [*event.itinerary.steps]
        """The run's steps, of all legs so far."""
        self._walks = {plan.walks[walk].name for walk in event.itinerary.walks}
        self._observed: Observed | None = None
        self._gate: Gate | None = None
        self._number = 0
        """Number of the last order obeyed; later reports carry it, from whichever gate."""
        if event.hold:
            self.obey(Order(run=self._run, mode="close"))
        self.watch(watch)

    @property
    def needless(self) -> bool:
        """True if no value is probed and all calls pass."""
        return self._observed is None and self._gate is None

    def watch(self, watch: Watch) -> None:
        taps = [tap for tap in watch.taps if tap.run in (None, self._run) and tap.walk in self._walks]
        breaks = tuple(one for one in watch.breaks if one.run in (None, self._run) and one.walk in self._walks)
        here = self._plan, self._rank, self._run, self.steps
        self._observed = Observed(*here, taps, record=self._record) if taps or self._record else None
        if breaks or self._gate is not None:
            gate = self._gate or Gate(*here, self._loops, self._number)
            gate.breaks = breaks
            self._gate = None if gate.needless else gate

    def obey(self, order: Order) -> list[Command]:
        gate = self._gate or Gate(self._plan, self._rank, self._run, self.steps, self._loops)
        self._number = order.number
        out = gate.obey(order)
        self._gate = None if gate.needless else gate
        return out

    def take(self, commands: list[Command]) -> list[Command]:
        """The commands that may be performed now. Outputs that are probed count as read, so that a call whose tokens
        are found computes them."""
        if self._observed is not None:
            for command in commands:
                if isinstance(command, RunCall):
                    command.call.answered, command.call.read = True, None
        return commands if self._gate is None else self._gate.take(commands)

    def outputs(self, ref: Ref, outputs: Mapping[str, Any]) -> Iterable[Command]:
        """Probes of the outputs of a successful call."""
        return () if self._observed is None else self._observed.outputs(ref.step, ref.use, ref.iteration, outputs)

    def input(self, step: int, name: str, value: Any) -> Iterable[Command]:
        """Probes of a Walk's input."""
        return () if self._observed is None else self._observed.input(step, name, value)

    def edges(self, step: int) -> frozenset[int]:
        """Indices of the edges that are probed."""
        return frozenset() if self._observed is None else self._observed.edges(step)

    def passing(self, step: int, edge: int, at: tuple[int, ...], value: Any) -> Iterable[Command]:
        """Probes of a value that passes over one of them."""
        return () if self._observed is None else self._observed.passing(step, edge, at, value)
