"""One step of one run on one rank: decides which uses may be called now, and where their values go.

Pure: no sockets, no clocks, no contents of tensors. The rules are those of `placement.tables`. Every use goes through
its own iteration vectors in order, as far ahead as its inputs, the `until` of its loops and the uses that share a state
with it allow.

Each item of a map has a walker of its own, which sees its iterations under the same vectors, and reads what enters the
map from the walker around it.

It knows no other steps, no contents of streams and no network; its `Host` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.events import ABSENT
from walkgraph.worker.loops.lowering import DeviceLoop
from walkgraph.worker.tables.walk_tables import MapTable, UseTable, WalkTable
from walkgraph.worker.walk.cursor import WAIT, Next, Vector
from walkgraph.worker.walk.edge_values import EMPTY, LeavingValues
from walkgraph.worker.walk.host import Host
from walkgraph.worker.walk.mailbox import Mailbox
from walkgraph.worker.walk.map_items import Give, MapItems
from walkgraph.worker.walk.progress import NO_BRANCH, Progress


class Walker:
    def __init__(
        self,
        table: WalkTable,
        step: int,
        host: "Host[Walker]",
        around: "Walker | None" = None,
        item: Vector = (),
        leave: Give | None = None,
    ) -> None:
        """For an item of a map, `around` is the walker outside, `item` the iteration of the map and the loops around
        it; `leave` takes values that the item sends out of the map."""
        self.table = table
        self.step = step
        outside = (None, None) if around is None else (around.progress, around.mailbox)
        self.progress = Progress(table, host.params, outside[0], item)
        self.mailbox = Mailbox(table, self.progress, outside[1], item)
        self.leaving = LeavingValues(table, self.progress, host.gather)
        self.looked: frozenset[int] = frozenset()
        """Edges whose values are probed."""
        self._host, self._item, self._leave = host, item, leave
        self._awake = self.mailbox.awake
        self._maps: dict[int, MapItems[Walker]] = {}
        """Standing use -> the items of the map that runs."""

    @property
    def over(self) -> bool:
        """True once all uses have ended."""
        return not self.progress.unfinished

    def holding(self, use: int, at: Vector) -> "Walker | None":
        """The walker that calls a use in an iteration: this one, or that of an item; None if the item is done."""
        standing = self.table.inside.uses.get(use)
        if standing is None:
            return self
        items = self._maps.get(standing)
        child = items.open.get(at[len(items.at)]) if items is not None and at[: len(items.at)] == items.at else None
        return child.holding(use, at) if child is not None else None

    def everywhere(self) -> "Iterator[Walker]":
        """This walker and those of all items in work."""
        yield self
        for items in self._maps.values():
            for child in items.open.values():
                yield from child.everywhere()

    # ── events ──

    def verdict(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict that was reached here, and send it to the loop's other ranks."""
        self.mailbox.judge(loop, key, stop, closing=closing)
        self._host.judged(self, loop, key, stop, closing=closing)

    def give(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        """Send a value out over an edge."""
        if edge.index in self.looked:
            self._host.passing(self, edge, key, value)
        self._send(edge, key, value)

    def _send(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        use = edge.target.use
        if self._leave is not None and edge.common < len(self._item):
            self._leave(edge, key, value)
        elif edge.target.kind == "use" and (use in self.table.uses or use in self.table.inside.uses):
            self.mailbox.feed(edge.index, key, value)
        else:
            self._host.release(self, edge, key, value)

    def finish(self, use: int, outputs: dict[str, Any], *, called: bool = True) -> None:
        """Take the outputs of a successful call, or of one that is skipped."""
        table, at = self.table.uses[use], self.progress.at[use]
        if at is None or self.progress.state[use] != "running":
            raise RuntimeError(f"`{table.plan.name}` finished a call it did not start")
        self.leaving.put(use, outputs)
        for loop, port, _ in table.judges:
            # Of several uses, the one that is called gives the verdict.
            if called or not loop.until_else:
                self.verdict(loop.index, at[: table.plan.loops.index(loop.index) + 1], bool(outputs.get(port)))
        for edge in table.outputs:
            if edge.leave == "none":
                self.give(edge, at, outputs.get(edge.source.port, ABSENT))
        self.progress.state[use] = "moving"
        self._awake.add(use)

    def pass_on(self, use: int, port: str, value: Any) -> None:
        """Give a value that leaves before its call has ended."""
        at = self.progress.at[use]
        if at is None or self.progress.state[use] != "running":
            return
        for edge in self.table.uses[use].outputs:
            if edge.leave == "pieces" and edge.source.port == port:
                self.give(edge, at, value)

    def advance(self) -> bool:
        """Make all calls that can be made; True if anything moved."""
        moved, state = False, self.progress.state
        while self._awake:
            index = min(self._awake)
            self._awake.remove(index)
            table = self.table.uses[index]
            if state[index] == "moving":
                moved |= self._move(index, table)
            if state[index] == "waiting":
                moved |= self._try(index, table)
        for index, items in list(self._maps.items()) if self._maps else ():
            moved |= items.advance()
            if items.over:
                del self._maps[index]
                self.mailbox.end(index)
                self.finish(index, items.outputs(self._host.gather))
                moved = True
        return moved

    def _begin_map(self, index: int, table: MapTable, at: Vector) -> bool:
        """Begin a map, once the number of its items is known."""
        count = self.progress.verdicts.items(table.plan.index, at)
        if count is None:
            return False

        def begin(item: Vector, leave: Give) -> Walker:
            child = Walker(table.body, self.step, self._host, self, item, leave)
            child.looked = self.looked
            return child

        self.progress.state[index] = "running"
        width = max(1, int(table.width(self._host.params, {})))
        done = partial(self._host.item_done, self, table.plan.index)
        self._maps[index] = MapItems(table, at, count, width, begin, self._send, done)
        self.mailbox.begin(index, self._maps[index])
        return True

    # ── from one iteration to the next ──

    def _move(self, index: int, table: UseTable) -> bool:
        progress = self.progress
        at = progress.at[index]
        step = progress.next(index, table, at)
        if at is not None:
            self.leaving.leave(index, table, at, step.cursor.ended, step.untaken, self.give)
        if step.empties:
            self._pass_empty(table, step)
        if step.to is WAIT:
            if progress.cursors.get(index) != step.cursor:
                progress.cursors[index] = step.cursor
                self._awake.update(table.neighbours)
            return bool(step.empties)
        self._awake.update(table.neighbours)
        self.leaving.forget(index, table)
        progress.cursors.pop(index, None)
        if step.to is None:
            progress.state[index] = "ended"
            progress.unfinished -= 1
        else:
            progress.state[index] = "waiting"
        if at is not None and table.scoped:
            for state, key in _passed_states(self.table, progress, index, at, step.to):
                self._host.passed(self, state, key)
        if step.to is not None:
            progress.at[index] = step.to
        self.mailbox.arrived.forget(table, step.to)
        return True

    def _pass_empty(self, table: UseTable, step: Next) -> None:
        """Give what leaves iterations in which the use was never called."""
        for loop, _, _ in table.judges:
            depth = table.plan.loops.index(loop.index) + 1
            for key in [prefix[:depth] for prefix in step.empties if len(prefix) >= depth and not loop.until_else]:
                if self.progress.verdicts.of(loop.index, key) is None:
                    self.verdict(loop.index, key, stop=False)
        for prefix in step.untaken:
            for edge in (*table.outputs, *(table.map.sent if table.map is not None else ())):
                if edge.leave == "each" and edge.target.chosen:
                    self.give(edge, prefix, ABSENT)
        for prefix in step.empties:
            for edge in table.outputs:
                if edge.leave in ("last", "collect") and edge.common == len(prefix):
                    self.give(edge, prefix, self.leaving.drain(edge))

    # ── calling ──

    def _try(self, index: int, table: UseTable) -> bool:
        progress = self.progress
        at = progress.at[index]
        if at is None or not progress.in_order(table, at):
            return False
        if table.when or table.cases or table.device_loop is not None:
            passed = self._passes_by(index, table, at)
            if passed is not False:
                return passed is True
        if table.map is not None:
            return self._begin_map(index, table.map, at)
        if table.paced and not self._host.credit(table.paced):
            return False
        inputs: dict[str, Any] = {}
        chunks: dict[str, ChunkInfo] = {}
        for port, edges in table.inputs:
            found = self._input(index, edges, at)
            if found is None:
                return False
            value, info = found
            if value is not ABSENT:
                inputs[port] = value
            if info is not None:
                chunks[port] = info
        if len(inputs) < len(table.inputs) and progress.verdicts.missing(table, at):
            return False
        if table.decides is not None or table.counts is not None:
            self._decide(table, at, inputs)
            return True
        progress.state[index] = "running"
        self._host.call(self, table, at, inputs, chunks)
        return True

    def _decide(self, head: UseTable, at: Vector, inputs: Mapping[str, Any]) -> None:
        """Make a choice, or count the items of a map, for here and for the other ranks."""
        if head.counts is None:
            self._pass_by(head, at, inputs)
            return
        loop = head.counts.index
        self.progress.state[head.plan.index] = "running"
        count = self._host.count(self, head, at, inputs.get("value", ABSENT))
        if count is not None:
            self.mailbox.count(loop, at, count)
            self._host.counted(self, loop, at, count)
            self.finish(head.plan.index, {}, called=False)

    def _passes_by(self, index: int, table: UseTable, at: Vector) -> bool | None:
        """Pass an iteration without a call if there is none: another branch is taken, a condition doesn't hold, or a
        device loop has no iterations. None while that isn't known."""
        progress = self.progress
        if table.cases and not (taken := progress.verdicts.taken(table, at)):
            if taken is not None:
                self._pass_by(table, at)
            return None if taken is None else True
        if table.device_loop is not None and progress.times(table.device_loop.loop.plan.index, at) <= 0:
            progress.state[index] = "running"
            self.finish(index, EMPTY)
            return True
        if progress.wanted(table, at):
            return False
        # Its streams go on without it.
        if any(self._input(index, edges, at) is None for edges in table.streams):
            return None
        self.skip(table, at)
        return True

    def skip(self, table: UseTable, at: Vector) -> None:
        """Skip a call: it gives no outputs."""
        if table.device_loop is not None:
            self._skip_loop(table.device_loop.loop, at)
        self._pass_by(table, at)

    def _pass_by(self, table: UseTable, at: Vector, inputs: Mapping[str, Any] | None = None) -> None:
        """Go on without a call, and without outputs. `inputs`: those of a choice that is made; otherwise it takes no
        branch."""
        self.progress.state[table.plan.index] = "running"
        choice = table.decides
        if choice is not None:
            value = self._host.text(inputs["value"]) if inputs else None
            known = choice.cases.index(value) if value in choice.cases else len(choice.cases)
            over = inputs is None or (not inputs and self.progress.verdicts.closes(at))
            branch = NO_BRANCH if over else known
            self.mailbox.choose(choice.index, at, branch)
            self._host.chosen(self, choice, at, branch)
        self.finish(table.plan.index, {}, called=False)

    def _skip_loop(self, loop: DeviceLoop, at: Vector) -> None:
        """Let followers go through all iterations of a device loop that is skipped."""
        index = loop.plan.index
        for i in range(self.progress.times(index, at) if loop.followed else 0):
            for edge in loop.follows:
                self.give(edge, (*at, i), ABSENT)
            if loop.until is not None:
                self.verdict(index, (*at, i), stop=False)

    def _input(self, use: int, edges: Sequence[EdgePlan], at: Vector) -> tuple[Any, ChunkInfo | None] | None:
        """The value of a port at this iteration, ABSENT if no edge has one; None: not there yet."""
        for edge in edges:
            if edge.carried and at[edge.common - 1] == 0:
                continue
            key = (*at[: edge.common - 1], at[edge.common - 1] - 1) if edge.carried else at[: edge.common]
            if edge.source.kind == "loop":
                return at[edge.common - 1], None
            if edge.source.kind == "stream":
                place = at[: edge.common + 1] if edge.enter_each else key
                return self._host.chunk(self, use, edge.source.index, place)
            if edge.merged:
                value = self.mailbox.store(edge).merged(edges, edge, key)
                if edge.enter_each and value is not ABSENT and value is not None:
                    value = self._host.part(value, at[edge.sliced])
                return None if value is None else (value, None)
            values = self.mailbox.store(edge).by_edge.get(edge.index)
            if values is None or key not in values:
                return None
            value = values[key]
            if edge.enter_each and value is not ABSENT:
                value = self._host.part(value, at[edge.sliced])
            return value, None
        return ABSENT, None


def _passed_states(
    table: WalkTable, progress: Progress, index: int, at: Vector, to: Vector | None
) -> Iterator[tuple[str, Vector]]:
    """The `iteration` states, with their keys, that no use here needs any more as one moves on."""
    for state, depth in table.uses[index].scoped:
        if to is not None and to[:depth] == at[:depth]:
            continue
        others = (u for u, t in table.uses.items() if u != index and any(name == state for name, _ in t.scoped))
        if all(progress.is_past(u, at[:depth]) for u in others):
            yield state, at[:depth]
