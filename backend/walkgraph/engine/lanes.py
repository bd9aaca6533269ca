"""Loops of one body: their program, the graphs of its forms, and who rides in its rows."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.body import Body, Form, Place
from walkgraph.engine.capture import Capturer
from walkgraph.engine.device import Mark
from walkgraph.engine.layout import fields_of, row_bytes
from walkgraph.engine.pool import Pool
from walkgraph.engine.program import Buffers, Program
from walkgraph.engine.riders import Rider
from walkgraph.engine.sequences import table_bytes
from walkgraph.layers import invariance
from walkgraph.networks.base import Row

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
"""Batch sizes that are captured where no step says which; a batch is padded to the next."""
REGION_SECONDS = 0.05
"""Of the longest launch of several iterations: a cancel waits for it."""
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


@dataclass(slots=True, eq=False)
class Graph:
    buffers: Buffers
    replay: Callable[[], None]
    nbytes: int
    """Of its rooms."""
    shown: list[Hashable] = field(default_factory=list[Hashable])
    """The rows that its index map holds, and their contexts."""


class Rooms:
    """Graphs that have rooms for contexts, least recently used first: without bounds, every length that was ever asked
    for would keep some."""

    def __init__(self, budget: int = ROOM_BYTES) -> None:
        self._budget, self._used = budget, 0
        self._kept: OrderedDict[tuple[Lane, Key], int] = OrderedDict()

    def use(self, lane: "Lane", key: Key, nbytes: int) -> None:
        """One is used, or about to be made: others give up theirs for it."""
        if not nbytes:
            return
        if (lane, key) not in self._kept:
            while self._kept and self._used + nbytes > self._budget:
                (old, which), size = self._kept.popitem(last=False)
                self._used -= size
                old.graphs.pop(which, None)
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
    iterations: int = 1
    """Of one launch, where all riders may go so far."""
    once: float = 0.0
    """Seconds of one iteration of one row, as far as it was measured."""
    graphs: dict[Key, Graph] = field(default_factory=dict[Key, Graph])

    @property
    def spans(self) -> bool:
        """Its loops have parts on other ranks, for which their launches wait on the device."""
        return self.program.body.channels > 0

    @property
    def long(self) -> bool:
        return self.once > LONG_SECONDS

    def batch(self) -> tuple[list[Rider], int]:
        """Who rides in the next launch, and for how many iterations: those that are to do the same, in turn."""
        willing = [rider for rider in self.riders if rider.wants]
        form = willing[0].form
        riders = [rider for rider in willing if rider.form == form][: self.sizes[-1]]
        far = all(min(rider.reach, rider.alike(self.iterations)) >= self.iterations for rider in riders)
        if len(riders) < len(willing):
            self.riders = [rider for rider in self.riders if rider not in riders] + riders
        return riders, self.iterations if far else 1

    def graph(self, form: Form, batch: int, iterations: int, riders: Sequence[Rider] = ()) -> Graph:
        """What replays a launch for these riders, or for a warm-up."""
        contexts = [rider.entered.contexts for rider in riders]
        key = Key(form, batch, iterations, self.program.capacities(form, batch, contexts))
        known = self.graphs.get(key)
        nbytes = known.nbytes if known else self.program.room_bytes(form, batch, key.capacities)
        self.rooms.use(self, key, nbytes)
        if known is None:
            with torch.inference_mode():
                buffers = self.program.buffers(*key)
                what = f"a step of {[use.node for use in self.program.body.uses]} at batch {batch}"

                def work() -> None:
                    self.program.iterate(buffers)

                replay = self.capturer(work, what) if buffers.captures else work
            known = self.graphs[key] = Graph(buffers, replay, nbytes)
        return known

    def show(self, graph: Graph, riders: Sequence[Rider]) -> None:
        """Bring the graph's index map, and its rooms, to these rows."""
        contexts = [rider.entered.contexts for rider in riders] if graph.buffers.rooms else []
        shown: list[Hashable] = [rider.row for rider in riders]
        shown += [(name, context.content, context.length) for row in contexts for name, context in row.items()]
        if graph.shown != shown:
            rows = [rider.row for rider in riders]
            padded = rows + [self.program.pad] * (graph.buffers.rows.shape[0] - len(rows))
            with torch.inference_mode():
                graph.buffers.rows.copy_(torch.tensor(padded), non_blocking=True)
                if contexts:
                    self.program.place(graph.buffers, contexts)
            graph.shown = shown

    def measure(self) -> None:
        """How long an iteration takes, and from it how many a launch may take. A loop that a value ends runs idly after
        its end: there a launch takes no more than what hides the host's own work."""
        if not self.capturer.enabled:
            return
        body, device = self.program.body, self.program.device
        graph = self.graph(body.whole, 1, 1)
        torch.cuda.synchronize(device)
        began, count = time.perf_counter(), 0
        while count < 3 and time.perf_counter() - began < LONG_SECONDS:
            graph.replay()
            torch.cuda.synchronize(device)
            count += 1
        self.once = (time.perf_counter() - began) / count
        most = REGION_SECONDS if body.until is None else HIDDEN_SECONDS
        self.iterations = max(1, min(MOST_ITERATIONS, int(most / self.once)))

    def prepare(self, forms: Sequence[Form], progress: Callable[[float], None]) -> None:
        """Capture forms in all batch sizes; those of slow iterations only alone and in pairs, and alone where they are
        long."""
        sizes = self.sizes[:1] if self.long else self.sizes[:2] if self.once > SLOW_SECONDS else self.sizes
        wanted = [(form, size) for form in forms for size in reversed(sizes)]
        for number, (form, size) in enumerate(wanted):
            for iterations in sorted({1, self.iterations}):
                self.graph(form, size, iterations)
            progress((number + 1) / len(wanted))


def sizes_of(body: Body, rows: int) -> tuple[int, ...]:
    """Batch sizes that all steps of a body are meant for."""
    if body.channels:
        return (1,)
    asked = [set(use.spec.sizes) for use in body.uses if use.spec.sizes is not None]
    alone = invariance.is_batch_invariant() and any(use.spec.scratch for use in body.uses)
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
