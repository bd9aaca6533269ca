"""A deployment without processes: the cores and engines of all ranks in this one, messages passed as values."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.support.commands import performed
from tests.support.ticking import Ticking
from walkgraph.components import catalogue
from walkgraph.engine.device.outside import Firsthand
from walkgraph.engine.engine import Begun, Done, Engine, LoopDone
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank, RunId
from walkgraph.placement.capacity.facts import Facts
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Placement
from walkgraph.placement.expansion.legs import Legs
from walkgraph.placement.itinerary import expanded_request, legs_of
from walkgraph.placement.request import fill_params, name_inputs, task_of
from walkgraph.placement.tables import RankPlan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Gate, Halted
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    ABSENT,
    Arrived,
    Cancelled,
    Command,
    Extended,
    Gated,
    Observe,
    Report,
    Send,
    Started,
)
from walkgraph.worker.interfaces import called
from walkgraph.worker.io.moving import StateMoves
from walkgraph.worker.plan_variants import Variants


class LocalDeployment:
    engine_type: type[Engine] = Engine

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        threads: int | None = None,
        kv_bytes: int = 64 * 2**20,
        roots: Sequence[Path] = (),
        *,
        resident: bool = True,
        fused: bool = False,
        options_of: Callable[[RankPlan], Mapping[str, Any]] = lambda rank: {},
        **engine: Any,
    ) -> None:
        """`roots`: folders of weights that `checkpoint:` sources name. `resident` false: every loop is stepped.
        `fused`: chains of small nodes are one call. `engine`: options of the engines, which have a clock of their own
        unless `outside` is among them; `options_of`: more for that of a rank. Ranks that repeat what the first shard
        does are left out."""
        self.graph = graph
        tables = assemble(Assignment(graph, placement), catalogue(), resident=resident)
        self.plan = replace(tables, ranks=tuple(replace(rank, kv_bytes=kv_bytes) for rank in tables.ranks))
        # What is played as it comes is put off or hurried by the time. By the machine's own clock, its load would
        # decide which runs share a batch, and thus the last bits of what they give.
        engine = {"threads": threads, "outside": Firsthand(Ticking()), **engine}
        serving = [rank for rank in self.plan.ranks if not rank.repeats]
        self.cores = {
            rank.rank: Core(self.plan, rank.rank, Variants(self.plan, rank.rank, fused=fused)) for rank in serving
        }
        self.engines = {
            rank.rank: self.engine_type(
                self.plan, rank.rank, weights_roots=roots, threaded=False, **{**engine, **options_of(rank)}
            )
            for rank in serving
        }
        for one in self.engines.values():
            one.load()
        self.failed: dict[str, Any] = {}
        self.moves = self._moves()
        self.sends: list[Send] = []
        """The messages that went from rank to rank."""
        self.outputs: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.observed: list[Observe] = []
        self.halted: list[Halted] = []
        self.times: dict[str, list[m.NodeTime]] = defaultdict(list)
        self.ends: dict[str, list[m.RankDone]] = defaultdict(list)
        self._sent: deque[tuple[Rank, Arrived | Extended]] = deque()
        self._legs: dict[str, tuple[Sequence[Rank], Legs]] = {}
        self._ended: dict[str, set[Rank]] = defaultdict(set)

    def submit(
        self,
        run: str,
        task: str,
        params: Mapping[str, Any],
        inputs: Mapping[str, Sequence[Any]] | None = None,
        parts: Sequence[Any] = (),
        outputs: Sequence[str] | None = None,
        alternative: int = 0,
        **how: Any,
    ) -> None:
        """`alternative`: the replicas on which it goes. `how`: `stepped`, `record`, `hold`, `session`."""
        declared = task_of(self.graph, task)
        filled = fill_params(declared, {"seed": 0, **params})
        given = name_inputs(declared, inputs or {}, parts)
        facts = Facts(self.plan, alternative)
        found = expanded_request(facts, declared, filled, given, outputs)
        itinerary, legs = legs_of(facts, declared, filled, given, found)
        if legs is not None:
            self._legs[run] = itinerary.ranks, legs
        values = {one.name: one.value for one in given}
        for rank in itinerary.ranks:
            self._begin(rank, Started(RunId(run), itinerary, filled, values, **how))

    def _begin(self, rank: Rank, event: Started) -> None:
        self._perform(rank, self.cores[rank].handle(event))

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """Take all messages, and step each engine once. True if anything was done."""
        busy = False
        while self._sent:
            rank, event = self._sent.popleft()
            self._perform(rank, self.cores[rank].handle(event))
            busy = True
        for rank, engine in self.engines.items():
            if engine.idle:
                continue
            busy = True
            for event in engine.step():
                told = called(event) if isinstance(event, Begun | Done | LoopDone) else event
                self._perform(rank, self.cores[rank].handle(told))
            for event in self.moves[rank].grown():
                self._perform(rank, self.cores[rank].handle(event))
        return busy

    def _moves(self) -> dict[Rank, StateMoves]:
        return {
            rank: StateMoves(one.transfers, lambda run: False, self.failed.__setitem__)
            for rank, one in self.engines.items()
        }

    def gate(self, rank: Rank, order: Gate) -> None:
        self._perform(rank, self.cores[rank].handle(Gated(order)))

    def release(self, run: str) -> None:
        for rank, core in self.cores.items():
            self._perform(rank, core.handle(Cancelled(RunId(run))))

    def _perform(self, rank: Rank, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Report):
                self._report(command)
            else:
                self._command(rank, self.engines[rank], command)

    def _command(self, rank: Rank, engine: Engine, command: Command) -> None:
        events = performed(command, engine, self.moves[rank])
        for event in events or ():
            self._perform(rank, self.cores[rank].handle(event))
        match command:
            case Send():
                self.sends.append(command)
                self._sent.append((command.rank, Arrived(command.message, command.value)))
            case Observe():
                self.observed.append(command)
            case _:
                assert events is not None, f"the worker has a command that is not known here: {command}"

    def _report(self, report: Report) -> None:
        match report.message:
            case m.Emit() as emit:
                if report.value is not ABSENT:
                    self.outputs[emit.run][emit.name].append(report.value)
            case m.RankFailed() as failed:
                self.failed[failed.run] = failed.error
            case Halted() as halted:
                self.halted.append(halted)
            case m.LegDone() as ended:
                self._leg_done(ended)
            case m.RankDone() as done:
                self.times[done.run].extend(done.times)
                self.ends[done.run].append(done)
            case _:
                pass

    def _leg_done(self, message: m.LegDone) -> None:
        ranks, legs = self._legs[message.run]
        self._ended[message.run].add(message.rank)
        if len(self._ended[message.run]) == len(ranks):
            self._ended[message.run].clear()
            leg = legs.next(message.verdict)
            self._sent.extend((rank, Extended(message.run, leg)) for rank in ranks)


def node_calls(times: Iterable[m.NodeTime]) -> Counter[str]:
    """How often each node was called, by the host or by a loop on the device."""
    found: Counter[str] = Counter()
    for one in times:
        found.update(one.inside if one.walk else {one.node: one.calls})
    return +found
