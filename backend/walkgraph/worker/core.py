"""A worker's core: events in, commands out. It owns the runs of its rank. It uses no sockets and no clock, and never
reads the contents of a tensor.

Started ──> LocalRun ──> Walker a step ──> Run / MoveState ──> CallDone ──> Send, Report
"""

from collections import OrderedDict
from collections.abc import Iterator

from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.ids import Rank, RunId
from walkgraph.placement.tables import Plan
from walkgraph.wire.standing import Standing
from walkgraph.wire.watching import Watch
from walkgraph.worker import events
from walkgraph.worker.events import Arrived, Command, Event, Release, Started
from walkgraph.worker.loops.entries import loop_templates
from walkgraph.worker.plan_variants import Variants
from walkgraph.worker.run_status import standing
from walkgraph.worker.walk.local_run import LocalRun

REMEMBERED = 4096
"""The most ended runs that are remembered, so that late messages for them are dropped."""
EARLY_RUNS = 1024
"""The most runs whose messages from peers are kept before the conductor's `Start`."""


class Core:
    def __init__(self, plan: Plan, rank: Rank, variants: Variants | None = None) -> None:
        """`variants`: those of this plan and rank, if they exist already."""
        self.plan = plan
        self.rank = rank
        self._walked = variants or Variants(plan, rank)
        self._watch = Watch()
        self._runs: dict[str, LocalRun] = {}
        self._early: OrderedDict[str, list[Arrived]] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    def loops(self) -> Iterator[LoopCall]:
        """The device loops that the engine can make ready before a run comes."""
        return loop_templates(self.plan, self.rank, self._walked.tables)

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def standing(self, run: str) -> Standing | None:
        """The status of a run here, with what it waits for."""
        found = self._runs.get(run)
        return standing(self.plan, found) if found else None

    def handle(self, event: Event) -> list[Command]:
        match event:
            case Started():
                return self._start(event)
            case events.Extended():
                run = self._runs.get(event.run)
                return run.extend(event.leg) if run else []
            case Arrived():
                return self._arrive(event)
            case events.CallBegun() | events.CallDone():
                run = self._runs.get(event.ref.run)
                return run.called(event) if run else []
            case events.PieceCame():
                run = self._runs.get(event.ref.run)
                return run.piece(event) if run else []
            case events.PartLeaves() | events.PartStored():
                run = self._runs.get(event.ref.run if isinstance(event, events.PartLeaves) else event.run)
                return run.parts.handle(event) if run else []
            case Items():
                run = self._runs.get(event.call.run)
                return run.items(event) if run else []
            case events.Cancelled():
                return self._cancel(event.run)
            case events.Gated():
                run = self._runs.get(event.gate.run)
                return run.obey(event.gate) if run else []
            case events.Watched():
                self._watch = event.watch
                for run in self._runs.values():
                    run.watch(event.watch)
                return []

    def _start(self, event: Started) -> list[Command]:
        if event.run in self._runs or event.run in self._ended:
            return []
        watched = bool(self._watch.taps or self._watch.breaks)
        run = LocalRun(*self._walked.of(event, watched=watched), self.rank, event, self._watch)
        self._runs[event.run] = run
        return run.begin(self._early.pop(event.run, []))

    def _arrive(self, event: Arrived) -> list[Command]:
        name = getattr(event.message, "run", None)
        if not isinstance(name, str) or name in self._ended:
            return []
        run = self._runs.get(name)
        if run is not None:
            return run.arrived(event)
        self._early.setdefault(name, []).append(event)
        if len(self._early) > EARLY_RUNS:
            self._early.popitem(last=False)
        return []

    def _cancel(self, run: RunId) -> list[Command]:
        self._runs.pop(run, None)
        self._early.pop(run, None)
        self._ended[run] = None
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        return [Release(run)]
