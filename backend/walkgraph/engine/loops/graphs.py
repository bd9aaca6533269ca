"""Device loops on a GPU or CPU: the tables of their slots, the CUDA graphs of their launches, and what a launch gives
the host.

Implements the protocols of `loop_runs` that the scheduler uses.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.calls.readback import WalkUse
from walkgraph.engine.device.capture import Capturer, bucket
from walkgraph.engine.device.clocks import Stopwatch
from walkgraph.engine.device.cuda_streams import SettledCopies, listed
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.failures import Failures
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.slot_pages import table_bytes
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.body import Bodies, Body, Form, Forms, Loaded, Made
from walkgraph.engine.loops.loop_peers import SLOTS as PEER_SLOTS
from walkgraph.engine.loops.loop_runs import BatchGroup, LoopRun
from walkgraph.engine.loops.loop_slots import LoopSlots
from walkgraph.engine.loops.program import Buffers, Program
from walkgraph.engine.loops.slot_tables import SlotTables, slot_bytes
from walkgraph.engine.loops.spec import LoopCall, Place
from walkgraph.errors import ErrorInfo
from walkgraph.layers import invariance

SLOTS = 64
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Batch sizes that are captured if no step names its own; a batch is padded to the next size."""
REGION_SECONDS = 0.05
"""The longest launch of more than one iteration, in seconds: a cancelled run leaves only when its launch is over."""
WORTH_SECONDS = 0.01
"""The longest launch, in seconds, for a count of iterations that no loop is expected to have. The host prepares a
launch in about 0.2 ms while the previous one runs. Beyond this, more iterations gain nothing, and capturing them takes
as long as all shorter counts together."""
HIDDEN_SECONDS = 0.0005
"""The longest launch of a loop with an `until`, in seconds: iterations launched after its end do nothing."""
LONG_SECONDS = 0.04
"""Seconds of an iteration from which on the host's work between launches doesn't matter, and a cancel shouldn't wait
for two launches."""
SLOW_SECONDS = 0.005
"""From this many seconds per iteration on, only few batch sizes are captured ahead."""
MOST_ITERATIONS = 64
"""The most iterations of one launch."""
TABLE_BYTES = 256 << 20
"""The most bytes of the values and the wide states' page tables in the slots of one group. Loops without wide states
always get slots for one full batch."""
CONTEXT_BYTES = 6 << 30
"""The most bytes of the dense contexts of all graphs; the least recently used go first."""


class GraphKey(NamedTuple):
    """Names a captured graph."""

    form: Form
    batch: int
    iterations: int
    capacities: tuple[int, ...]
    """Capacities of its dense contexts, in tokens."""

    @property
    def alone(self) -> "GraphKey":
        """The key of one iteration; graphs of all counts share its index map and dense contexts."""
        return self._replace(iterations=1)


@dataclass(slots=True, eq=False)
class LoopGraph:
    buffers: Buffers
    replay: Callable[[], None]
    nbytes: int
    """Bytes of its dense contexts."""
    shown: list[Hashable]
    """The slots in its index map, and their contexts. Graphs that share these share the list."""


class ContextBudget:
    """Graphs with dense contexts, least recently used first, within a budget. Without it, every context length ever
    used would keep memory."""

    def __init__(self, budget: int = CONTEXT_BYTES) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[tuple[LoopGraphs, GraphKey], int] = OrderedDict()

    def use(self, graphs: "LoopGraphs", key: GraphKey, nbytes: int) -> None:
        """Note that a graph is used, or about to be made; others are dropped to make space. `key`: that of one
        iteration."""
        if not nbytes:
            return
        if (graphs, key) not in self._kept:
            while self._kept and self._used + nbytes > self._budget:
                (old, which), size = self._kept.popitem(last=False)
                self._used -= size
                old.graphs = {key: graph for key, graph in old.graphs.items() if key.alone != which}
            self._kept[graphs, key] = nbytes
            self._used += nbytes
        self._kept.move_to_end((graphs, key))

    def forget(self, graphs: "LoopGraphs") -> None:
        for one in [one for one in self._kept if one[0] is graphs]:
            self._used -= self._kept.pop(one)


class LoopLaunch:
    """A launch, and its results for the host."""

    __slots__ = ("_buffers", "_group", "_host", "_watch", "mark", "uses")

    def __init__(
        self, group: "LoopGraphs", buffers: Buffers, host: Tensor, mark: Mark | None, watch: Stopwatch
    ) -> None:
        """`host`: uint8, all results, complete once the mark is reached. `mark`: None if it was done at once."""
        self._group, self._buffers, self._host, self._watch = group, buffers, host, watch
        self.uses, self.mark = buffers.uses, mark

    def read(self) -> tuple[list[list[bool]], list[list[bool]], Mapping[str, Tensor]]:
        """Stop flags and finite flags (by iteration and row) and the values of a finished launch, copied out of its
        buffer."""
        stopped, sound, values = self._buffers.views(self._host)
        own = self.mark is not None
        given = {
            key: values[place] if own else values[place].clone()
            for key, place in self._group.outputs
            if place in values
        }
        return stopped.tolist(), sound.tolist(), given

    def span(self, began: float, now: float) -> tuple[float, float]:
        return self._watch.span(self._group.program.tables.device, self.mark, began, now)


class LoopGraphs:
    """Captures and replays the launches of one batch group."""

    def __init__(
        self,
        program: Program,
        outputs: tuple[tuple[str, Place], ...],
        capturer: Capturer,
        contexts: ContextBudget,
        forms: Callable[[LoopCall], Forms],
        watch: Stopwatch,
        clock: Callable[[], float],
    ) -> None:
        """`outputs`: keys of the outputs that go to the host during the loop. `forms`: gives the forms of a call's
        iterations."""
        self.program, self.outputs, self.capturer = program, outputs, capturer
        self.sizes = sizes_of(program.body, program.tables.slots)
        self.seconds: dict[int, float] = {}
        """Batch size -> measured seconds of an iteration."""
        self.graphs: dict[GraphKey, LoopGraph] = {}
        self._contexts, self._forms, self._watch, self._clock = contexts, forms, watch, clock
        self._usual: set[int] = set()
        """Counts of iterations that loops like these are most likely to have."""
        if capturer.enabled:
            self._graph(program.body.whole, self.sizes[0], 1)

    def expect(self, counts: Sequence[int]) -> None:
        self._usual.update(counts)

    def long(self, runs: int) -> bool:
        size = bucket(max(1, runs), self.sizes)
        return self.seconds.get(size, self._once) > LONG_SECONDS

    def counts(self, runs: Sequence[LoopRun]) -> list[int]:
        size = bucket(len(runs), self.sizes)
        if self.capturer.enabled and size not in self.seconds:
            self._graph(runs[0].forms.at(runs[0].launched), size, 1, runs)
        return self.counts_at(size)

    def counts_at(self, size: int) -> list[int]:
        """Counts of iterations that launches of this batch size may have."""
        return counts_of(self.seconds.get(size, 0.0), self._usual, ends=self.program.body.spec.until is not None)

    def ready(self, runs: Sequence[LoopRun], iterations: int) -> LoopGraph:
        graph = self._graph(runs[0].forms.at(runs[0].launched), bucket(len(runs), self.sizes), iterations, runs)
        self._show(graph, runs)
        with torch.inference_mode():
            self.program.tables.fill_in()
        return graph

    def replay(self, ready: LoopGraph) -> LoopLaunch:
        with torch.inference_mode():
            ready.replay()
        staging = ready.buffers.staging
        if self.program.tables.device.type == "cpu":
            return LoopLaunch(self, ready.buffers, staging, None, self._watch)
        # A few bytes for each row, so they come back on the stream of the steps: one of their own would wait longer.
        host = torch.empty(staging.shape, dtype=torch.uint8, pin_memory=True)
        host.copy_(staging, non_blocking=True)
        return LoopLaunch(self, ready.buffers, host, self._watch.mark(self.program.tables.device), self._watch)

    def prepare(self, call: LoopCall, progress: Callable[[float], None]) -> None:
        """Capture the forms of the call's iterations in all batch sizes. If iterations are slow, only batches of the
        two smallest sizes are captured; if they are long, only the smallest."""
        found = self._forms(call)
        slow = self._once > SLOW_SECONDS
        sizes = self.sizes[:1] if self._once > LONG_SECONDS else self.sizes[:2] if slow else self.sizes
        # The largest size first, because the others reuse its memory; and the form with most uses first, because it
        # measures the longest time of a size.
        forms = dict.fromkeys(found.at(k) for k in range(call.times))
        ordered = sorted(forms, key=lambda form: -sum(map(form.calls, range(len(form.runs)))))
        wanted = [(form, size) for size in reversed(sizes) for form in ordered]
        for number, (form, size) in enumerate(wanted):
            self._graph(form, size, 1)
            for iterations in self.counts_at(size):
                self._graph(form, size, iterations)
            progress((number + 1) / len(wanted))

    def close(self) -> None:
        self._contexts.forget(self)

    @property
    def _once(self) -> float:
        """Measured seconds of an iteration of one row; 0 before it was measured."""
        return self.seconds.get(self.sizes[0], 0.0)

    def _graph(self, form: Form, batch: int, iterations: int, runs: Sequence[LoopRun] = ()) -> LoopGraph:
        """The graph for a launch of these runs, or for a warm-up."""
        contexts = [run.entered.contexts for run in runs]
        key = GraphKey(form, batch, iterations, self.program.capacities(form, batch, contexts))
        known, like = self.graphs.get(key), self.graphs.get(key.alone)
        nbytes = like.nbytes if like else self.program.context_bytes(form, batch, key.capacities)
        self._contexts.use(self, key.alone, nbytes)
        if known is None and like is None and iterations > 1:
            like = self._graph(form, batch, 1, runs)
        if known is None:
            known = self.graphs[key] = self._made(key, nbytes, like)
        return known

    def _made(self, key: GraphKey, nbytes: int, like: LoopGraph | None) -> LoopGraph:
        """`like`: the graph of one iteration, whose making has compiled and chosen the kernels."""
        with torch.inference_mode():
            buffers = self.program.buffers(*key, None if like is None else like.buffers)
            if like is not None:
                # It is run once before it is recorded: only the padding slot may change.
                buffers.rows.fill_(self.program.tables.pad)
                like.shown.clear()
            what = f"a step of {[use.node for use in self.program.body.uses]} at batch {key.batch}"

            def work() -> None:
                self.program.iterate(buffers)

            runs = 2 if like is None else 1
            replay = self.capturer(work, what, runs=runs) if buffers.captures else work
        graph = LoopGraph(buffers, replay, nbytes, [] if like is None else like.shown)
        if self.capturer.enabled and key.batch not in self.seconds:
            self.seconds[key.batch] = self._measured(graph)
        return graph

    def _show(self, graph: LoopGraph, runs: Sequence[LoopRun]) -> None:
        """Update the graph's index map, and its dense contexts, to these runs' slots."""
        contexts = [run.entered.contexts for run in runs] if graph.buffers.contexts else []
        shown: list[Hashable] = [run.slot for run in runs]
        shown += [(name, context.content, context.length) for row in contexts for name, context in row.items()]
        if graph.shown != shown:
            rows = [run.slot for run in runs]
            padded = rows + [self.program.tables.pad] * (graph.buffers.rows.shape[0] - len(rows))
            with torch.inference_mode():
                graph.buffers.rows.copy_(listed(padded, self.program.tables.device), non_blocking=True)
                if contexts:
                    self.program.place(graph.buffers, contexts)
            graph.shown[:] = shown

    def _measured(self, graph: LoopGraph) -> float:
        """Measure the seconds of a launch in which all rows are padding."""
        device = self.program.tables.device
        torch.cuda.synchronize(device)
        began, count = self._clock(), 0
        while count < 3 and self._clock() - began < LONG_SECONDS:
            with torch.inference_mode():
                graph.replay()
            torch.cuda.synchronize(device)
            count += 1
        return (self._clock() - began) / count


class LoopDevice:
    """Makes and closes batch groups on the devices of one rank."""

    def __init__(
        self,
        states: StateTable,
        loaded: Callable[[str], Loaded],
        failures: Failures,
        *,
        watch: Stopwatch,
        host_ports: Callable[[WalkUse], Collection[str]] = lambda use: (),
        capturer: Callable[[torch.device], Capturer] = Capturer,
        slots: int = SLOTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loaded`: gives the operator and device of a node. `host_ports`: as in `LoopSlots`."""
        self._bodies, self._states, self._failures, self._watch = Bodies(states, loaded), states, failures, watch
        self._host_ports, self._capturer, self._slots = host_ports, capturer, slots
        self._contexts, self._copies = ContextBudget(), cache(partial(SettledCopies, marks=watch.mark))
        self._clock = clock
        self._on_gpu = False

    def made(self, call: LoopCall) -> Made:
        with torch.inference_mode():
            return self._bodies.of(call)

    def opened(self, made: Made, call: LoopCall) -> BatchGroup:
        spans = made.body.channels > 0
        slots = PEER_SLOTS if spans else slots_of(made.body, made.pools, self._slots)
        outputs = tuple((out.key, (out.use, out.port)) for out in call.spec.outputs if out.kind != "last")
        with torch.inference_mode():
            tables = SlotTables(made.body, made.pools, slots, made.device)
            entry = LoopSlots(tables, self._states, self._host_ports, self._copies, gives=bool(outputs))
            capturer = self._capturer(made.device)
            graphs = LoopGraphs(
                Program(tables), outputs, capturer, self._contexts, entry.forms, self._watch, self._clock
            )
        self._on_gpu |= made.device.type == "cuda"
        return BatchGroup(made.key, entry, graphs, spans, list(range(slots - 1, -1, -1)))

    def mark(self) -> Mark | None:
        if not self._on_gpu:
            return None
        mark = torch.cuda.Event()
        mark.record()
        return mark

    def apart(self, values: Tensor) -> list[Sequence[Tensor]]:
        return [rows.unbind() for rows in values.unbind()]

    def stacked(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(values))

    def failure(self, call: LoopCall, raised: Exception) -> ErrorInfo:
        return self._failures.of(call, raised)

    def unsound(self, call: LoopCall, iteration: int, *, spans: bool) -> ErrorInfo:
        return self._failures.unsound(call, iteration, spans=spans)


def counts_of(seconds: float, usual: Collection[int], *, ends: bool) -> list[int]:
    """Counts of iterations that launches may have. `seconds`: those of an iteration; 0 if it isn't captured. `usual`:
    counts that such loops usually have. `ends`: a value may end the loop. Iterations launched after the end do
    nothing, so a launch is then only long enough to hide the host's work."""
    if not seconds:
        return [1]
    if ends:
        return sorted({1, max(1, min(MOST_ITERATIONS, int(HIDDEN_SECONDS / seconds)))})
    fits = min(MOST_ITERATIONS, int(REGION_SECONDS / seconds))
    # Loops with another count go by powers of two: the longest, few times, then the others for the rest. None is longer
    # than the usual counts, because its iterations would never be launched.
    most = min(fits, int(WORTH_SECONDS / seconds), max(usual, default=MOST_ITERATIONS))
    powers = {1 << power for power in range(most.bit_length()) if 1 << power <= most}
    return sorted({1} | powers | {count for count in usual if count <= fits})


def sizes_of(body: Body, slots: int) -> tuple[int, ...]:
    """Batch sizes that suit all steps of a body."""
    if body.channels:
        return (1,)
    asked = [set(use.spec.sizes) for use in body.uses if use.spec.sizes is not None]
    alone = invariance.is_batch_invariant() and not all(use.spec.invariant for use in body.uses)
    widest = max(body.widths.values(), default=1)
    found = set.intersection(*asked) if asked else {size for size in BUCKETS if size * widest <= BUCKETS[-1]}
    return (1,) if alone else tuple(sorted(size for size in found | {1} if size <= slots))


def slots_of(body: Body, pools: Mapping[str, Pool], most: int) -> int:
    """The number of slots in a group's tables, at most `most`."""
    pages = table_bytes(pools, body.widths)
    fitting = min(most, TABLE_BYTES // max(1, slot_bytes(body) + pages))
    return max(1, fitting) if pages else max(min(most, sizes_of(body, most)[-1]), fitting)
