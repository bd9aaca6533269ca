"""A page's acts on a simulated deployment besides asking for runs: it draws another graph, and moves its runs in the
queue."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from walkgraph.ids import RunId
from walkgraph.simulation.asked_run import AskedRun
from walkgraph.simulation.person import SimulatedPerson, ended_by_a_change
from walkgraph.simulation.scenarios import Scenario
from walkgraph.simulation.simulator import Simulator
from walkgraph.wire import messages as m
from walkgraph.wire.questions import Move, QueuedRun

Pair = tuple[RunId, RunId]
DIED_SECONDS = 0.002
"""Longest time from the death of a process until the conductor can see it."""


class Page(NamedTuple):
    """The acts of a page in a world."""

    others: tuple[Scenario, ...] = ()
    """Scenarios with the same processes, whose graphs it draws."""
    keeps: bool = False
    """The processes keep the outputs of calls, as those of a scratch deployment do."""
    moves: int = 0
    """Number of its moves of runs in the queue. One run is admitted at a time then."""


NO_PAGE = Page()


class Drawing:
    """The graph that is drawn, and served. While another one is taken up, no run is requested."""

    def __init__(
        self,
        first: Scenario,
        others: Sequence[Scenario],
        simulator: Simulator,
        send: Callable[[m.ToConductor], None],
    ) -> None:
        self.served = first
        self.changes = 0
        """Counts the changes, also those that failed: sessions end with each."""
        self._others, self._simulator, self._send = others, simulator, send
        self._wanted: Scenario | None = None
        self._since = 0.0

    @property
    def changing(self) -> bool:
        return self._wanted is not None

    def change(self) -> None:
        """Draws another graph, and asks for it to be served."""
        self._simulator.counts["changes of the graph asked"] += 1
        self._wanted = wanted = self._simulator.chance.choice(self._others)
        self._since = self._simulator.now
        self.changes += 1
        name = f"drawn {self.changes}"
        self._send(m.TakeUp(number=self.changes, graph=wanted.document, plan=wanted.plan, telemetry_name=name))

    def told(self, message: m.TakenUp, *, lost: Sequence[float], failed: bool, stopping: bool) -> None:
        """Checks the answer. `lost`: times at which ranks were lost; `failed`: the deployment has."""
        wanted, self._wanted = self._wanted, None
        if wanted is None or message.number != self.changes:
            raise self._simulator.fail(f"change {message.number} is answered, which nobody waits for")
        if message.error is None:
            self._simulator.counts["changes of the graph"] += 1
            self.served = wanted
            return
        counts = self._simulator.counts
        unloadable = counts["plans that can't be loaded"] > 0
        fitting = {
            "worker_lost": unloadable
            or counts["processes that can't load"] > 0
            or any(at + DIED_SECONDS >= self._since for at in lost),
            "out_of_memory": unloadable or counts["processes that can't load"] > 0,
            "refused": failed or stopping,
        }
        if not fitting.get(message.error.code, False):
            raise self._simulator.fail(f"a change ends with `{message.error.code}`: {message.error.message}")
        self._simulator.counts["changes of the graph taken back"] += 1


class Reordering:
    """Moves runs in the queue. It is told the queue before and after, between which nothing else happens."""

    def __init__(self, simulator: Simulator, send: Callable[[m.ToConductor], None]) -> None:
        self._simulator, self._send = simulator, send
        self._numbers = 0
        self._asked: dict[int, Move] = {}
        self._before: m.QueueTold | None = None

    def move(self, runs: Sequence[RunId]) -> None:
        """Moves one of these runs, some of which belong to its owner."""
        chance = self._simulator.chance
        run = chance.choice(runs)
        own = tuple(one for one in runs if one == run or chance.random() < 0.7)
        self._numbers += 2
        wanted = self._asked[self._numbers] = Move(run=run, among=own, up=chance.random() < 0.5)
        self._send(m.AskQueue(number=self._numbers - 1))
        self._send(m.AskQueue(number=self._numbers, move=wanted))

    def told(self, message: m.QueueTold) -> None:
        move = self._asked.pop(message.number, None)
        if move is None:
            self._before = message
            return
        before, self._before = self._before, None
        if before is None or before.number != message.number - 1:
            raise self._simulator.fail("the queue is told in another order than it was asked for", move.run)
        pair = _by_the_book(before.runs, move)
        queue = [one.run for one in before.runs]
        if pair is not None:
            first, second = map(queue.index, pair)
            queue[first], queue[second] = queue[second], queue[first]
            self._simulator.counts["runs moved in the queue"] += 1
        found = [one.run for one in message.runs]
        if (found, message.moved) != (queue, pair is not None):
            raise self._simulator.fail(f"the queue is {found} after a move, by the book {queue}", move.run)


def _by_the_book(queue: Sequence[QueuedRun], move: Move) -> Pair | None:
    """The two that exchange their places: the run, and its owner's next one that waits. Only equals do, and none passes
    a run of its session."""
    own: Collection[str] = {move.run, *move.among}
    waiting = [one for one in queue if one.run in own and not one.suspended]
    for before, behind in pairwise(waiting):
        if move.run == (behind if move.up else before).run:
            equals = before.priority == behind.priority and before.depth == behind.depth
            between = queue[queue.index(before) : queue.index(behind) + 1]
            others = [one for one in between if one.session is not None and not one.suspended]
            passes = any(
                one.session == end.session and one.run != end.run for end in (before, behind) for one in others
            )
            return (before.run, behind.run) if equals and not passes else None
    return None


class SimulatedPage:
    """Draws and moves as it is told to."""

    def __init__(
        self,
        does: Page,
        first: Scenario,
        runs: Mapping[str, AskedRun],
        person: SimulatedPerson,
        simulator: Simulator,
        send: Callable[[m.ToConductor], None],
        lost: Sequence[float],
    ) -> None:
        """`first`: the scenario that is served at the start. `lost`: times at which ranks were lost."""
        self.does = does
        self.drawing = Drawing(first, does.others, simulator, send)
        self._reordering = Reordering(simulator, send)
        self._runs, self._person, self._chance, self._lost = runs, person, simulator.chance, lost

    def acts(self) -> list[Callable[[], None]]:
        """Its acts in a world, each at some time."""
        changes = self._chance.choice((1, 1, 2, 3)) if self.does.others else 0
        return [self._change] * changes + [self._move] * self.does.moves

    def _change(self) -> None:
        """Draws another graph. The runs that go on are cancelled, and those that wait for a person end."""
        if self.drawing.changing:
            return
        self.drawing.change()
        for run in self._runs.values():
            if not run.over:
                run.changed = True
            if run.waits:
                self._person.end(run, ended_by_a_change())

    def _move(self) -> None:
        runs = [run.submit.run for run in self._runs.values() if run.submit is not None and not run.over]
        if runs and not self.drawing.changing:
            self._reordering.move(runs)

    def told(self, message: m.Answered, *, failed: bool, stopping: bool) -> None:
        """Takes an answer. `failed`, `stopping`: the state of the deployment."""
        match message:
            case m.TakenUp():
                self.drawing.told(message, lost=self._lost, failed=failed, stopping=stopping)
            case m.QueueTold():
                self._reordering.told(message)
            case m.SessionsTold():
                pass
