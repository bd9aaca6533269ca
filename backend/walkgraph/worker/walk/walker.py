"""One step of one run on one rank: decides which uses may be called now, and where their values go.

Pure: no sockets, no clocks, no contents of tensors. The rules are those of `placement.tables`. Every use goes through
its own iteration vectors in order, as far ahead as its inputs, the `until` of its loops and the uses that share a state
with it allow.

It knows no other steps, no contents of streams and no network; its `Host` does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.events import ABSENT
from walkgraph.worker.loops.lowering import DeviceLoop
from walkgraph.worker.walk.cursor import WAIT, Next, Vector
from walkgraph.worker.walk.edge_values import EMPTY, ArrivedValues, LeavingValues
from walkgraph.worker.walk.host import Host
from walkgraph.worker.walk.progress import NO_BRANCH, Progress
from walkgraph.worker.walk.walk_tables import UseTable, WalkTable


class Walker:
    def __init__(self, table: WalkTable, step: int, host: "Host[Walker]") -> None:
        self.table = table
        self.step = step
        self.progress = Progress(table, host.params)
        self.arrived = ArrivedValues()
        self.looked: frozenset[int] = frozenset()
        """Edges whose values are probed."""
        self._host = host
        self._leaving = LeavingValues(table, self.progress, host.gather)
        self._awake: set[int] = set(table.uses)
        """Uses that may be able to go on."""

    def times(self, loop: int, prefix: Vector) -> int:
        return self.progress.times(loop, prefix)

    # ── events ──

    def feed(self, edge: int, key: Vector, value: Any) -> None:
        """Take a value that came over an edge to a use of this rank."""
        self.arrived.put(edge, key, value)
        self._awake.add(self.table.plan.edges[edge].target.use)

    def feed_input(self, name: str, value: Any) -> None:
        for edge in self.table.readers.get(name, ()):
            self.feed(edge.index, (), value)

    def judge(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict: whether an iteration of a loop was the last. `closing`: the chunk of this iteration of the
        loop `chunk` has no new items."""
        self.progress.judge(loop, key, stop, closing=closing)
        self._awake.update(self.table.loops[loop].uses)

    def verdict(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """Take a verdict that was reached here, and send it to the loop's other ranks."""
        self.judge(loop, key, stop, closing=closing)
        self._host.judged(self, loop, key, stop, closing=closing)

    def chosen(self, choice: int, key: Vector, branch: int) -> None:
        """Take the verdict of a choice."""
        self.progress.choose(choice, key, branch)
        self._awake.update(self.table.branches[choice])

    def give(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        """Send a value out over an edge."""
        if edge.index in self.looked:
            self._host.passing(self, edge, key, value)
        if edge.target.kind == "use" and edge.target.use in self.table.uses:
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
        return moved

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
            for edge in table.outputs:
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
        if table.decides is not None:
            self._pass_by(table, at, inputs)
            return True
        progress.state[index] = "running"
        self._host.call(self, table, at, inputs, chunks)
        return True

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
                value = self.arrived.merged(edges, edge, key)
                if edge.enter_each and value is not ABSENT and value is not None:
                    value = self._host.part(value, at[edge.common])
                return None if value is None else (value, None)
            values = self.arrived.by_edge.get(edge.index)
            if values is None or key not in values:
                return None
            value = values[key]
            if edge.enter_each and value is not ABSENT:
                value = self._host.part(value, at[edge.common])
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
