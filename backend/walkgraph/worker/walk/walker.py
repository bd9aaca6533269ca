"""One step of one run on one rank: decides which uses may be called now, and where their values go.

Pure: no sockets, no clocks, no contents of tensors. The rules are those of `placement.tables`. Every use goes through
its own iteration vectors in order, as far ahead as its inputs, the `until` of its loops and the uses that share a state
with it allow.

Each item of a map has a walker of its own, which sees its iterations under the same vectors, and reads what enters the
map from the walker around it.

It knows no other steps, no contents of streams and no network; its `Host` does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.events import ABSENT
from walkgraph.worker.loops.lowering import DeviceLoop
from walkgraph.worker.walk.cursor import WAIT, Next, Vector
from walkgraph.worker.walk.edge_values import EMPTY, ArrivedValues, LeavingValues
from walkgraph.worker.walk.host import Host
from walkgraph.worker.walk.map_items import Give, MapItems
from walkgraph.worker.walk.progress import NO_BRANCH, Progress
from walkgraph.worker.walk.walk_tables import MapTable, UseTable, WalkTable


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
        self.progress = Progress(table, host.params, around.progress if around is not None else None, item)
        self.arrived = ArrivedValues()
        self.looked: frozenset[int] = frozenset()
        """Edges whose values are probed."""
        self._host, self._around, self._item, self._leave = host, around, item, leave
        self._leaving = LeavingValues(table, self.progress, host.gather)
        self._awake: set[int] = set(table.uses)
        """Uses that may be able to go on."""
        self._maps: dict[int, MapItems[Walker]] = {}
        """Standing use -> the items of the map that runs."""
        self._early: dict[tuple[int, Vector], list[Callable[[MapItems[Walker]], None]]] = {}
        """(standing use, iteration) -> what has come for a map that has not begun."""

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

    def standing(self) -> "Iterator[tuple[Walker, UseTable, Vector, str]]":
        """Every use that has not ended, also in items, with its walker, its current iteration and its state."""
        for use, at, state in self.progress.standing():
            if use.map is None or state != "running":
                yield self, use, at, state
        for items in self._maps.values():
            for child in items.open.values():
                yield from child.standing()

    def has(self, edge: EdgePlan, key: Vector) -> bool:
        """True if a value has come over an edge."""
        return self._store(edge).has(edge.index, key)

    def watch(self, looked: frozenset[int]) -> None:
        """Set the edges whose values are probed."""
        self.looked = looked
        for items in self._maps.values():
            for child in items.open.values():
                child.watch(looked)

    def times(self, loop: int, prefix: Vector) -> int:
        return self.progress.times(loop, prefix)

    # ── events ──

    def feed(self, edge: int, key: Vector, value: Any) -> None:
        """Take a value that came over an edge to a use of this rank."""
        plan = self.table.plan.edges[edge]
        standing = self.table.inside.uses.get(plan.target.use)
        if standing is None or plan.common <= len(self.table.uses[standing].plan.loops):
            self.arrived.put(edge, key, value)
            self._wake(plan.target.use)
        else:
            self._into(standing, key, lambda item: item.feed(edge, key, value))

    def feed_input(self, name: str, value: Any) -> None:
        for edge in self.table.readers.get(name, ()):
            self.feed(edge.index, (), value)

    def judge(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict: whether an iteration of a loop was the last. `closing`: the chunk of this iteration of the
        loop `chunk` has no new items."""
        standing = self.table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.judge(loop, key, stop, closing=closing))
            return
        self.progress.judge(loop, key, stop, closing=closing)
        self._judged(loop)

    def _judged(self, loop: int) -> None:
        self._awake.update(self.table.loops[loop].uses)
        for items in self._maps.values():
            for child in items.open.values():
                child._judged(loop)

    def verdict(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict that was reached here, and send it to the loop's other ranks."""
        self.judge(loop, key, stop, closing=closing)
        self._host.judged(self, loop, key, stop, closing=closing)

    def chosen(self, choice: int, key: Vector, branch: int) -> None:
        """Take the verdict of a choice."""
        standing = self.table.inside.choices.get(choice)
        if standing is not None:
            self._into(standing, key, lambda item: item.chosen(choice, key, branch))
            return
        self.progress.choose(choice, key, branch)
        self._awake.update(self.table.branches[choice])

    def count(self, loop: int, key: Vector, items: int) -> None:
        """Take the number of a map's items."""
        standing = self.table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.count(loop, key, items))
            return
        self.progress.count(loop, key, items)
        self._awake.update(self.table.loops[loop].uses)

    def item_done(self, loop: int, key: Vector) -> None:
        """Note that an item of a map is done on another rank."""
        standing = self.table.inside.loops.get(loop)
        if standing is not None:
            self._into(standing, key, lambda item: item.item_done(loop, key))
            return
        for use in self.table.loops[loop].uses:
            self._to_items(use, key[:-1], lambda items: items.done_elsewhere(key[-1]))

    def collected(self, edge: int) -> list[Any]:
        """The values of an edge that leaves the map whose item this is; they are handed over."""
        return self._leaving.take(edge)

    def give(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        """Send a value out over an edge."""
        if edge.index in self.looked:
            self._host.passing(self, edge, key, value)
        self._pass_out(edge, key, value)

    def _pass_out(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        use = edge.target.use
        if self._leave is not None and edge.common < len(self._item):
            self._leave(edge, key, value)
        elif edge.target.kind == "use" and (use in self.table.uses or use in self.table.inside.uses):
            self.feed(edge.index, key, value)
        else:
            self._host.release(self, edge, key, value)

    def finish(self, use: int, outputs: dict[str, Any], *, called: bool = True) -> None:
        """Take the outputs of a successful call, or of one that is skipped."""
        table, at = self.table.uses[use], self.progress.at[use]
        if at is None or self.progress.state[use] != "running":
            raise RuntimeError(f"`{table.plan.name}` finished a call it did not start")
        self._leaving.put(use, outputs)
        for loop, port in table.judges:
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
        self._awake.update(self.table.streaming)
        while self._awake:
            index = min(self._awake)
            self._awake.remove(index)
            table = self.table.uses[index]
            if state[index] == "moving":
                moved |= self._move(index, table)
            if state[index] == "waiting":
                moved |= self._try(index, table)
        for index, items in list(self._maps.items()):
            moved |= items.advance()
            if items.over:
                del self._maps[index]
                self.finish(index, items.outputs(self._host.gather))
                moved = True
        return moved

    # ── maps ──

    def _begin_items(self, index: int, table: MapTable, at: Vector) -> bool:
        """Begin a map, once the number of its items is known."""
        count = self.progress.items(table.plan.index, at)
        if count is None:
            return False
        self.progress.state[index] = "running"
        width = max(1, int(table.width(self._host.params, {})))
        loop = table.plan.index
        done = partial(self._host.item_done, self, loop)
        items = MapItems(table, at, count, width, partial(self._begin_item, table), self._pass_out, done)
        self._maps[index] = items
        for take in self._early.pop((index, at), ()):
            take(items)
        return True

    def _begin_item(self, table: MapTable, item: Vector, leave: Give) -> "Walker":
        child = Walker(table.body, self.step, self._host, self, item, leave)
        child.looked = self.looked
        return child

    def _into(self, standing: int, key: Vector, give: "Callable[[Walker], None]") -> None:
        """Give the item that a key names what has come for it."""
        depth = len(self.table.uses[standing].plan.loops)
        self._to_items(standing, key[:depth], lambda items: items.into(key[depth], give))

    def _to_items(self, standing: int, at: Vector, take: Callable[[MapItems["Walker"]], None]) -> None:
        """Tell the map that runs in an iteration: now, once it begins, or not at all if it is over."""
        items = self._maps.get(standing)
        if items is not None and items.at == at:
            take(items)
            return
        state, now = self.progress.state[standing], self.progress.at[standing]
        passed = state == "ended" or (now is not None and (at < now or (at == now and state != "waiting")))
        if not passed:
            self._early.setdefault((standing, at), []).append(take)

    def _wake(self, use: int) -> None:
        """Let a use go on, in whichever items."""
        standing = self.table.inside.uses.get(use)
        self._awake.add(use if standing is None else standing)
        if standing in self._maps:
            for child in self._maps[standing].open.values():
                child._wake(use)

    def _store(self, edge: EdgePlan) -> ArrivedValues:
        """Where the values of an edge into a use of this walker are."""
        if self._around is not None and edge.common < len(self._item):
            return self._around._store(edge)
        return self.arrived

    # ── from one iteration to the next ──

    def _move(self, index: int, table: UseTable) -> bool:
        progress = self.progress
        at = progress.at[index]
        step = progress.next(index, table, at)
        if at is not None:
            self._leaving.leave(index, table, at, step.cursor.ended, step.untaken, self.give)
        if step.empties:
            self._pass_empty(table, step)
        if step.to is WAIT:
            if progress.cursors.get(index) != step.cursor:
                progress.cursors[index] = step.cursor
                self._awake.update(table.neighbours)
            return bool(step.empties)
        self._awake.update(table.neighbours)
        self._leaving.forget(index, table)
        progress.cursors.pop(index, None)
        if step.to is None:
            progress.state[index] = "ended"
            progress.unfinished -= 1
        else:
            progress.state[index] = "waiting"
        if at is not None:
            self._pass_states(index, table, at, step.to)
        if step.to is not None:
            progress.at[index] = step.to
        self.arrived.forget(table, step.to)
        return True

    def _pass_empty(self, table: UseTable, step: Next) -> None:
        """Give what leaves iterations in which the use was never called."""
        for loop, _ in table.judges:
            depth = table.plan.loops.index(loop.index) + 1
            for key in [prefix[:depth] for prefix in step.empties if len(prefix) >= depth and not loop.until_else]:
                if self.progress.verdict(loop.index, key) is None:
                    self.verdict(loop.index, key, stop=False)
        for prefix in step.untaken:
            for edge in (*table.outputs, *(table.map.sent if table.map is not None else ())):
                if edge.leave == "each" and edge.target.chosen:
                    self.give(edge, prefix, ABSENT)
        for prefix in step.empties:
            for edge in table.outputs:
                if edge.leave in ("last", "collect") and edge.common == len(prefix):
                    self.give(edge, prefix, self._leaving.drain(edge))

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
            return self._begin_items(index, table.map, at)
        if not self._host.credit(table.paced):
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
        if len(inputs) < len(table.inputs) and progress.awaits_verdict(table, at):
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
            self.count(loop, at, count)
            self._host.counted(self, loop, at, count)
            self.finish(head.plan.index, {}, called=False)

    def _passes_by(self, index: int, table: UseTable, at: Vector) -> bool | None:
        """Pass an iteration without a call if there is none: another branch is taken, a condition doesn't hold, or a
        device loop has no iterations. None while that isn't known."""
        progress = self.progress
        if table.cases and not (taken := progress.taken(table, at)):
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
            over = inputs is None or (not inputs and self.progress.closes(at))
            branch = NO_BRANCH if over else known
            self.chosen(choice.index, at, branch)
            self._host.chosen(self, choice, at, branch)
        self.finish(table.plan.index, {}, called=False)

    def _skip_loop(self, loop: DeviceLoop, at: Vector) -> None:
        """Let followers go through all iterations of a device loop that is skipped."""
        index = loop.plan.index
        for i in range(self.times(index, at) if loop.followed else 0):
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
                value = self._store(edge).merged(edges, edge, key)
                if edge.enter_each and value is not ABSENT and value is not None:
                    value = self._host.part(value, at[edge.sliced])
                return None if value is None else (value, None)
            values = self._store(edge).by_edge.get(edge.index)
            if values is None or key not in values:
                return None
            value = values[key]
            if edge.enter_each and value is not ABSENT:
                value = self._host.part(value, at[edge.sliced])
            return value, None
        return ABSENT, None

    def _pass_states(self, index: int, table: UseTable, at: Vector, to: Vector | None) -> None:
        for state, depth in table.scoped:
            if to is not None and to[:depth] == at[:depth]:
                continue
            others = (
                u for u, t in self.table.uses.items() if u != index and any(name == state for name, _ in t.scoped)
            )
            if all(self.progress.is_past(u, at[:depth]) for u in others):
                self._host.passed(self, state, at[:depth])
