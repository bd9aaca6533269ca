"""Loops of one body: their program, the graphs of its forms, and who rides in its rows."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.step import Row
from walkgraph.engine.device.capture import Capturer, bucket
from walkgraph.engine.device.cuda_streams import Mark, listed
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.loops.body import Body, Form, Place
from walkgraph.engine.loops.layout import fields_of, row_bytes
from walkgraph.engine.loops.program import Buffers, Program
from walkgraph.engine.loops.riders import Rider
from walkgraph.engine.loops.sequences import table_bytes
from walkgraph.layers import invariance

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Batch sizes that are captured where no step says which; a batch is padded to the next."""
REGION_SECONDS = 0.05
"""Of the longest launch of several iterations: a cancel waits for it."""
WORTH_SECONDS = 0.01
"""Of the longest launch of a count that is nobody's in particular. The host prepares one in some 0.2 ms, beside the one
before: beyond this, more iterations gain nothing, and their capture takes as much time as all shorter ones."""
HIDDEN_SECONDS = 0.0005
"""Of the longest launch of a loop whose end is not known."""
LONG_SECONDS = 0.04
"""Of a launch that is so long that what the host does between two of them is nothing, and that a cancel shouldn't wait
for two."""
SLOW_SECONDS = 0.005
"""Of an iteration of which only few batch sizes are made ready before they are asked for."""
MOST_ITERATIONS = 64
"""Of one launch."""
TABLE_BYTES = 256 << 20
"""Of the values that the rows of one lane keep, and of the page tables of wide states, at most; but there are rows for
one batch, of loops without wide states."""
ROOM_BYTES = 6 << 30
"""Of the blocks' contexts of all graphs; those that were not used for longest go first."""


class Key(NamedTuple):
    """Of a captured graph."""

    form: Form
    batch: int
    iterations: int
    capacities: tuple[int, ...]
    """Of the rooms of its blocks, in tokens."""

    @property
    def alone(self) -> "Key":
        """Of one iteration: graphs of all counts share its index map and its rooms."""
        return self._replace(iterations=1)


@dataclass(slots=True, eq=False)
class Graph:
    buffers: Buffers
    replay: Callable[[], None]
    nbytes: int
    """Of its rooms."""
    shown: list[Hashable]
    """The rows that its index map holds, and their contexts: one list for all graphs that share these."""


class Rooms:
    """Graphs that have rooms for contexts, least recently used first: without bounds, every length that was ever asked
    for would keep some."""

    def __init__(self, budget: int = ROOM_BYTES) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[tuple[Lane, Key], int] = OrderedDict()

    def use(self, lane: "Lane", key: Key, nbytes: int) -> None:
        """One is used, or about to be made: others give up theirs for it. `key`: of one iteration."""
        if not nbytes:
            return
        if (lane, key) not in self._kept:
            while self._kept and self._used + nbytes > self._budget:
                (old, which), size = self._kept.popitem(last=False)
                self._used -= size
                old.graphs = {key: graph for key, graph in old.graphs.items() if key.alone != which}
            self._kept[lane, key] = nbytes
            self._used += nbytes
        self._kept.move_to_end((lane, key))

    def forget(self, lane: "Lane") -> None:
        for one in [one for one in self._kept if one[0] is lane]:
            self._used -= self._kept.pop(one)


@dataclass(slots=True, eq=False)
class Lane:
    program: Program
    outputs: tuple[tuple[str, Place], ...]
    """Keys of the outputs that go to the host, of every iteration that has them."""
    capturer: Capturer
    rooms: Rooms
    sizes: tuple[int, ...]
    free: list[int]
    riders: list[Rider] = field(default_factory=list[Rider])
    seconds: dict[int, float] = field(default_factory=dict[int, float])
    """Batch size -> what an iteration takes, as far as it was measured."""
    usual: set[int] = field(default_factory=set[int])
    """Iterations that loops like these are likeliest to have."""
    graphs: dict[Key, Graph] = field(default_factory=dict[Key, Graph])

    @property
    def spans(self) -> bool:
        """Its loops have parts on other ranks, for which their launches wait on the device."""
        return self.program.body.channels > 0

    @property
    def long(self) -> bool:
        size = bucket(max(1, len(self.riders)), self.sizes)
        return self.seconds.get(size, self.once) > LONG_SECONDS

    @property
    def once(self) -> float:
        """Seconds of an iteration of one row, as far as it was measured."""
        return self.seconds.get(self.sizes[0], 0.0)

    def batch(self) -> list[Rider]:
        """Who rides in the next launch: those that are to do the same, in turn."""
        willing = [rider for rider in self.riders if rider.wants]
        form = willing[0].form
        riders = [rider for rider in willing if rider.form == form][: self.sizes[-1]]
        if len(riders) < len(willing):
            self.riders = [rider for rider in self.riders if rider not in riders] + riders
        return riders

    def next(self, riders: Sequence[Rider]) -> Graph:
        """What replays the next launch of these: as many iterations as all of them can go."""
        form, size = riders[0].form, bucket(len(riders), self.sizes)
        if self.capturer.enabled and size not in self.seconds:
            self.graph(form, size, 1, riders)
        most = min(rider.reach for rider in riders)
        most = min(rider.alike(most) for rider in riders)
        return self.graph(form, size, max(count for count in self.counts(size) if count <= most), riders)

    def counts(self, size: int) -> list[int]:
        """Iterations that launches of a batch size may have."""
        return counts_of(self.seconds.get(size, 0.0), self.usual, ends=self.program.body.until is not None)

    def graph(self, form: Form, batch: int, iterations: int, riders: Sequence[Rider] = ()) -> Graph:
        """What replays a launch for these riders, or for a warm-up."""
        contexts = [rider.entered.contexts for rider in riders]
        key = Key(form, batch, iterations, self.program.capacities(form, batch, contexts))
        known, like = self.graphs.get(key), self.graphs.get(key.alone)
        nbytes = like.nbytes if like else self.program.room_bytes(form, batch, key.capacities)
        self.rooms.use(self, key.alone, nbytes)
        if known is None and like is None and iterations > 1:
            like = self.graph(form, batch, 1, riders)
        if known is None:
            known = self.graphs[key] = self._made(key, nbytes, like)
        return known

    def _made(self, key: Key, nbytes: int, like: Graph | None) -> Graph:
        """`like`: of one iteration, which has compiled and chosen the kernels."""
        with torch.inference_mode():
            buffers = self.program.buffers(*key, None if like is None else like.buffers)
            if like is not None:
                # It is run before it is recorded: on nobody's rows.
                buffers.rows.fill_(self.program.pad)
                like.shown.clear()
            what = f"a step of {[use.node for use in self.program.body.uses]} at batch {key.batch}"

            def work() -> None:
                self.program.iterate(buffers)

            runs = 2 if like is None else 1
            replay = self.capturer(work, what, runs=runs) if buffers.captures else work
        graph = Graph(buffers, replay, nbytes, [] if like is None else like.shown)
        if self.capturer.enabled and key.batch not in self.seconds:
            self.seconds[key.batch] = self._measured(graph)
        return graph

    def show(self, graph: Graph, riders: Sequence[Rider]) -> None:
        """Bring the graph's index map, and its rooms, to these rows."""
        contexts = [rider.entered.contexts for rider in riders] if graph.buffers.rooms else []
        shown: list[Hashable] = [rider.row for rider in riders]
        shown += [(name, context.content, context.length) for row in contexts for name, context in row.items()]
        if graph.shown != shown:
            rows = [rider.row for rider in riders]
            padded = rows + [self.program.pad] * (graph.buffers.rows.shape[0] - len(rows))
            with torch.inference_mode():
                graph.buffers.rows.copy_(listed(padded, self.program.device), non_blocking=True)
                if contexts:
                    self.program.place(graph.buffers, contexts)
            graph.shown[:] = shown

    def measure(self) -> None:
        """How long an iteration of one row takes."""
        if self.capturer.enabled:
            self.graph(self.program.body.whole, self.sizes[0], 1)

    def _measured(self, graph: Graph) -> float:
        """Seconds of a launch of rows that pad."""
        device = self.program.device
        torch.cuda.synchronize(device)
        began, count = time.perf_counter(), 0
        while count < 3 and time.perf_counter() - began < LONG_SECONDS:
            with torch.inference_mode():
                graph.replay()
            torch.cuda.synchronize(device)
            count += 1
        return (time.perf_counter() - began) / count

    def prepare(self, forms: Sequence[Form], progress: Callable[[float], None]) -> None:
        """Capture forms in all batch sizes; those of slow iterations only alone and in pairs, and alone where they are
        long."""
        slow = self.once > SLOW_SECONDS
        sizes = self.sizes[:1] if self.once > LONG_SECONDS else self.sizes[:2] if slow else self.sizes
        # The largest first, as its memory serves the others; that form first which tells how long a size takes at most.
        forms = sorted(forms, key=lambda form: -sum(map(form.calls, range(len(form.runs)))))
        wanted = [(form, size) for size in reversed(sizes) for form in forms]
        for number, (form, size) in enumerate(wanted):
            self.graph(form, size, 1)
            for iterations in self.counts(size):
                self.graph(form, size, iterations)
            progress((number + 1) / len(wanted))


def counts_of(seconds: float, usual: Collection[int], *, ends: bool) -> list[int]:
    """Iterations that launches may have. `seconds`: of an iteration; 0 where it isn't captured. `usual`: of loops like
    these. `ends`: a value may end them, and they run idly after that: a launch then takes no more than what hides the
    host's own work."""
    if not seconds:
        return [1]
    if ends:
        return sorted({1, max(1, min(MOST_ITERATIONS, int(HIDDEN_SECONDS / seconds)))})
    fits = min(MOST_ITERATIONS, int(REGION_SECONDS / seconds))
    # Loops of another count than the usual go by powers of two: the longest pays for few launches, the others for the
    # rest. None is longer than the usual ones, whose iterations would be captured for nobody.
    most = min(fits, int(WORTH_SECONDS / seconds), max(usual, default=MOST_ITERATIONS))
    powers = {1 << power for power in range(most.bit_length()) if 1 << power <= most}
    return sorted({1} | powers | {count for count in usual if count <= fits})


def sizes_of(body: Body, rows: int) -> tuple[int, ...]:
    """Batch sizes that all steps of a body are meant for."""
    if body.channels:
        return (1,)
    asked = [set(use.spec.sizes) for use in body.uses if use.spec.sizes is not None]
    alone = invariance.is_batch_invariant() and not all(use.spec.invariant for use in body.uses)
    widest = max(body.widths.values(), default=1)
    found = set.intersection(*asked) if asked else {size for size in BUCKETS if size * widest <= BUCKETS[-1]}
    return (1,) if alone else tuple(sorted(size for size in found | {1} if size <= rows))


def rows_of(body: Body, pools: Mapping[str, Pool], most: int) -> int:
    """Rows of a lane's tables, `most` at most."""
    pages = table_bytes(pools, body.widths)
    fitting = min(most, TABLE_BYTES // max(1, row_bytes(body) + pages))
    return max(1, fitting) if pages else max(min(most, sizes_of(body, most)[-1]), fitting)


class Flight(NamedTuple):
    """A launch that may be under way."""

    lane: Lane
    riders: Sequence[Rider]
    buffers: Buffers
    host: Tensor
    """uint8: what it tells, there once the mark is reached."""
    taken: float
    began: float
    handed: float
    """The host was done with it; this and `taken` are told while the stopwatch is on."""
    mark: Mark | None
    """None where it was done at once."""

    def read(self) -> tuple[list[list[bool]], list[list[bool]], Mapping[str, Tensor]]:
        """Stops, soundness (by iteration and row) and values of a launch that is over, copied out of its buffer."""
        count, batch = self.buffers.stopped.shape
        body, form = self.lane.program.body, self.buffers.form
        rows = [Row((), torch.bool), Row((), torch.bool), *(body.output(place) for place in form.told)]
        views = fields_of(self.host, rows, self.buffers.sizes, count, batch)
        values = dict(zip(form.told, views[2:], strict=True))
        own = self.mark is not None
        given = {
            key: values[place] if own else values[place].clone() for key, place in self.lane.outputs if place in values
        }
        return views[0].tolist(), views[1].tolist(), given
