"""One step of one run on one rank: which uses may be called now, and where their values go.

Pure: no sockets, no clocks, no tensors' contents. The rules are those of `placement.tables`. Every use goes through
its own iteration vectors in order, as far ahead as its inputs, its loops' `until` and the uses it shares a state with
allow.

It doesn't know other steps, streams' contents or the network: its `Host` does.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from walkgraph.abi.calls import ChunkInfo
from walkgraph.placement.tables import EdgePlan
from walkgraph.worker.events import ABSENT
from walkgraph.worker.loops.lowering import DeviceLoop
from walkgraph.worker.walk.cursor import WAIT, Next, Way, following
from walkgraph.worker.walk.host import Host, Vector
from walkgraph.worker.walk.walk_tables import UseTable, WalkTable

JUDGED = 64
"""Verdicts of a loop that are kept before it is looked for those that nobody can ask for again."""
KEPT, GONE = 1, 2
EMPTY: Final[dict[str, Any]] = {}
"""Outputs of a device loop that had no iteration."""


class Parts(list[Any]):
    """What a device loop gives to a loop around it that collects on."""


class Walker:
    def __init__(self, table: WalkTable, step: int, host: "Host[Walker]") -> None:
        self.table = table
        self.step = step
        self._host = host
        self._at: dict[int, Vector | None] = dict.fromkeys(table.uses)
        """Use -> the iteration it stands at; None before its first."""
        self._state: dict[int, str] = dict.fromkeys(table.uses, "moving")
        """moving: at the iteration before its next; waiting: for inputs; running; ended."""
        self._awake: set[int] = set(table.uses)
        """Uses that may be able to go on."""
        self._until: list[dict[Vector, bool]] = [{} for _ in table.loops]
        """Per loop: parents' indices and iteration -> whether it was the last."""
        self._judged: list[int] = [JUDGED for _ in table.loops]
        """Per loop: verdicts at which old ones are dropped."""
        self._values: dict[int, dict[Vector, Any]] = {}
        """Edge -> key -> value, on the target's side."""
        self._leaving: dict[int, list[Any]] = {}
        """Edge -> values of the iterations so far, on the source's side."""
        self._outputs: dict[int, dict[str, Any]] = {}
        """Use -> outputs of the iteration it stands at, until it moves on."""
        self._left: dict[int, int] = {}
        """Leaving edge of a use that hasn't moved on -> KEPT or GONE."""
        self._ways: dict[int, Way] = {}
        """Use that waits for an `until` -> how far it got."""
        self._closing: Vector | None = None
        """Iteration of the loop `chunk` whose chunk has no new items."""
        self.looked: frozenset[int] = frozenset()
        """Edges whose values are looked at."""

    @property
    def done(self) -> bool:
        return all(state == "ended" for state in self._state.values())

    def standing(self) -> Iterator[tuple[UseTable, Vector, str]]:
        """Of all uses that have not ended: the iteration that each stands at, and its state there."""
        return ((self.table.uses[u], self._at[u] or (), s) for u, s in self._state.items() if s != "ended")

    def way(self, use: int) -> Way | None:
        """How far a use got that waits for an `until`."""
        return self._ways.get(use)

    def has(self, edge: int, key: Vector) -> bool:
        return key in self._values.get(edge, ())

    # ── what happens ──

    def feed(self, edge: int, key: Vector, value: Any) -> None:
        """A value has come over an edge to a use of this rank."""
        self._values.setdefault(edge, {})[key] = value
        self._awake.add(self.table.plan.edges[edge].target.use)

    def feed_input(self, name: str, value: Any) -> None:
        for edge in self.table.readers.get(name, ()):
            self.feed(edge.index, (), value)

    def judge(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """An iteration of a loop was the last or wasn't. `closing`: of the loop `chunk`, its chunk has no new items."""
        known = self._until[loop]
        known[key] = stop
        if closing:
            self._closing = key
        self._awake.update(self.table.loops[loop].uses)
        if len(known) > self._judged[loop]:
            self._until[loop] = kept = self._still_asked(loop)
            self._judged[loop] = max(JUDGED, 2 * len(kept))

    def verdict(self, loop: int, key: Vector, stop: bool, *, closing: bool = False) -> None:
        """It is known here whether an iteration of a loop was the last: the loop's other ranks are told."""
        self.judge(loop, key, stop, closing=closing)
        self._host.judged(self, loop, key, stop, closing=closing)

    def closes(self, at: Vector) -> bool:
        """Whether an iteration is there only so that its uses can flush: what has nothing to work on is skipped."""
        return self._closing is not None and at[:1] == self._closing

    def give(self, edge: EdgePlan, key: Vector, value: Any) -> None:
        """A value goes out over an edge."""
        if edge.index in self.looked:
            self._host.passing(self, edge, key, value)
        if edge.target.kind == "use" and edge.target.use in self.table.uses:
            self.feed(edge.index, key, value)
        else:
            self._host.release(self, edge, key, value)

    def finish(self, use: int, outputs: dict[str, Any]) -> None:
        """A call has ended well."""
        table, at = self.table.uses[use], self._at[use]
        if at is None or self._state[use] != "running":
            raise RuntimeError(f"`{table.plan.name}` finished a call it did not start")
        self._outputs[use] = outputs
        for loop in table.judges:
            stop = bool(outputs.get(loop.until[1])) if loop.until else False
            self.verdict(loop.index, at[: table.plan.loops.index(loop.index) + 1], stop)
        for edge in table.outputs:
            if edge.leave == "none":
                self.give(edge, at, outputs.get(edge.source.port, ABSENT))
        self._state[use] = "moving"
        self._awake.add(use)

    def advance(self) -> bool:
        """Call what may be called, until nothing more can be; True if anything moved."""
        moved = False
        self._awake.update(self.table.streaming)
        while self._awake:
            index = min(self._awake)
            self._awake.remove(index)
            table = self.table.uses[index]
            if self._state[index] == "moving":
                moved |= self._move(index, table)
            if self._state[index] == "waiting":
                moved |= self._try(index, table)
        return moved

    # ── from one iteration to the next ──

    def _move(self, index: int, table: UseTable) -> bool:
        at = self._at[index]
        step = self._next(index, table, at)
        if at is not None:
            self._leave(index, table, at, step.way.ended)
        for prefix in step.empties:
            for edge in table.outputs:
                if edge.leave in ("last", "collect") and edge.common == len(prefix):
                    self.give(edge, prefix, self._drain(edge))
        if step.to is WAIT:
            if self._ways.get(index) != step.way:
                self._ways[index] = step.way
                self._awake.update(table.neighbours)
            return bool(step.empties)
        self._awake.update(table.neighbours)
        self._outputs.pop(index, None)
        self._ways.pop(index, None)
        for edge in table.outputs:
            self._left.pop(edge.index, None)
        self._state[index] = "ended" if step.to is None else "waiting"
        if at is not None:
            self._pass_states(index, table, at, step.to)
        if step.to is not None:
            self._at[index] = step.to
        self._forget(table, step.to)
        return True

    def _next(self, index: int, table: UseTable, at: Vector | None) -> Next:
        prefix, entering, ended = self._ways.get(index) or Way(at or (), at is None, len(at or ()))
        loops, empties = table.plan.loops, list[Vector]()
        while entering or prefix:
            if entering and len(prefix) == len(loops):
                return Next(prefix, empties, Way(prefix, entering, ended))
            go = self._enters(loops[len(prefix)], prefix) if entering else self._goes_on(loops[len(prefix) - 1], prefix)
            if go is None:
                return Next(WAIT, empties, Way(prefix, entering, ended))
            if entering and go:
                prefix = (*prefix, 0)
            elif entering:
                empties.append(prefix)
                entering = False
            elif go:
                prefix, entering = following(prefix), True
            else:
                prefix = prefix[:-1]
                ended = min(ended, len(prefix))
                if at is None or at[: len(prefix)] != prefix:
                    empties.append(prefix)
        return Next(None, empties, Way((), False, 0))

    def _enters(self, loop: int, prefix: Vector) -> bool:
        """A stream has a chunk always."""
        return self.table.loops[loop].times is None or self.times(loop, prefix) > 0

    def _goes_on(self, loop: int, key: Vector) -> bool | None:
        table = self.table.loops[loop]
        more = table.times is None or key[-1] + 1 < self.times(loop, key[:-1])
        if table.plan.until is None and table.times is not None:
            return more
        if not more and not table.plan.drop_last:
            return False
        stop = self._until[loop].get(key)
        return None if stop is None else more and not stop

    def times(self, loop: int, prefix: Vector) -> int:
        table = self.table.loops[loop]
        if table.times is None:
            raise RuntimeError("the loop `chunk` has no count")
        return int(table.times(self._host.params, indices(table.outer, prefix)))

    # ── calling ──

    def _try(self, index: int, table: UseTable) -> bool:
        at = self._at[index]
        if at is None or not self._in_order(table, at):
            return False
        if table.device_loop is not None and self.times(table.device_loop.loop.plan.index, at) <= 0:
            self._state[index] = "running"
            self.finish(index, EMPTY)
            return True
        if not self._wanted(table, at):
            # Its streams go on without it.
            if any(self._input(index, edges, at) is None for edges in table.streams):
                return False
            self._state[index] = "running"
            self.skip(table, at)
            return True
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
        if len(inputs) < len(table.inputs) and self._awaits_verdict(table, at):
            return False
        self._state[index] = "running"
        self._host.call(self, table, at, inputs, chunks)
        return True

    def skip(self, table: UseTable, at: Vector) -> None:
        """A call that isn't made gives nothing."""
        if table.device_loop is not None:
            self._skip_loop(table.device_loop.loop, at)
        self.finish(table.plan.index, {})

    def _skip_loop(self, loop: DeviceLoop, at: Vector) -> None:
        """Followers go through all iterations of a device loop that is skipped."""
        index = loop.plan.index
        for i in range(self.times(index, at) if loop.followed else 0):
            for edge in loop.follows:
                self.give(edge, (*at, i), ABSENT)
            if loop.until is not None:
                self.verdict(index, (*at, i), stop=False)

    def _awaits_verdict(self, table: UseTable, at: Vector) -> bool:
        """Whether it isn't known yet if a call that lacks inputs is one of a closing chunk."""
        loops = table.plan.loops
        return bool(loops) and self.table.loops[loops[0]].times is None and at[:1] not in self._until[loops[0]]

    def _wanted(self, table: UseTable, at: Vector) -> bool:
        if not table.when:
            return True
        where = indices(table.loop_names, at)
        return all(when(self._host.params, where) for when in table.when)

    def _in_order(self, table: UseTable, at: Vector) -> bool:
        for other, common in table.before:
            if not self._is_past(other, at[:common]):
                return False
        for other, common in table.after:
            if self._state[other] != "ended" and (*self._reached(other), *[0] * common)[:common] < at[:common]:
                return False
        return True

    def _is_past(self, use: int, prefix: Vector) -> bool:
        """All calls of the use under the prefix are over."""
        reached = self._reached(use)
        return self._state[use] == "ended" or reached[: len(prefix)] > prefix[: len(reached)]

    def _reached(self, use: int) -> Vector:
        """Calls of the use before this, which may be a prefix, are over."""
        way = self._ways.get(use)
        if way is None:
            return self._at[use] or ()
        return way.prefix if way.entering else following(way.prefix)

    def _input(self, use: int, edges: Sequence[EdgePlan], at: Vector) -> tuple[Any, ChunkInfo | None] | None:
        """The value of a port at this iteration, ABSENT where no edge has one; None: not there yet."""
        for edge in edges:
            if edge.carried and at[edge.common - 1] == 0:
                continue
            key = (*at[: edge.common - 1], at[edge.common - 1] - 1) if edge.carried else at[: edge.common]
            if edge.source.kind == "loop":
                return at[edge.common - 1], None
            if edge.source.kind == "stream":
                place = at[: edge.common + 1] if edge.enter_each else key
                return self._host.chunk(self, use, edge.source.index, place)
            values = self._values.get(edge.index)
            if values is None or key not in values:
                return None
            value = values[key]
            if edge.enter_each and value is not ABSENT:
                value = self._host.part(value, at[edge.common])
            return value, None
        return ABSENT, None

    # ── leaving ──

    def _leave(self, index: int, table: UseTable, at: Vector, ended: int) -> None:
        """Values of iteration `at` go out, those of a loop once it has ended: all calls under `at[:ended]` are over."""
        outputs = self._outputs.get(index)
        if outputs is None:
            return
        for edge in table.outputs:
            left = self._left.get(edge.index)
            if edge.leave == "none" or left == GONE:
                continue
            if edge.leave == "each":
                drop = self._dropped(table, edge, at)
                if drop is None:
                    continue
                if not drop:
                    self.give(edge, at, outputs.get(edge.source.port, ABSENT))
                self._left[edge.index] = GONE
                continue
            if left is None and outputs is not EMPTY:
                self._keep(edge, outputs.get(edge.source.port, ABSENT))
                self._left[edge.index] = KEPT
            if ended <= edge.common:
                self._left[edge.index] = GONE
                self.give(edge, at[: edge.common], self._drain(edge))

    def _keep(self, edge: EdgePlan, value: Any) -> None:
        held = self._leaving.setdefault(edge.index, [])
        if edge.leave == "last":
            held.clear()
        if isinstance(value, Parts):
            held.extend(value)
        elif value is not ABSENT:
            held.append(value)

    def _dropped(self, table: UseTable, edge: EdgePlan, at: Vector) -> bool | None:
        """Whether the iteration's value is suppressed; None while its innermost loop isn't judged.

        Only that loop counts: what an inner loop gave has left before an outer one is judged.
        """
        if len(table.plan.loops) == edge.common or not self.table.plan.loops[table.plan.loops[-1]].drop_last:
            return False
        return self._until[table.plan.loops[-1]].get(at)

    def _drain(self, edge: EdgePlan) -> Any:
        held = self._leaving.pop(edge.index, [])
        if not held:
            return ABSENT
        return self._host.stack(held) if edge.leave == "collect" else held[-1]

    # ── forgetting ──

    def _forget(self, table: UseTable, to: Vector | None) -> None:
        """Drop values on the use's input edges that no later iteration of it reads."""
        for _, edges in table.inputs:
            for edge in edges:
                values = self._values.get(edge.index)
                if not values:
                    continue
                if to is None:
                    del self._values[edge.index]
                elif edge.common:
                    oldest = (*to[: edge.common - 1], to[edge.common - 1] - 1) if edge.carried else to[: edge.common]
                    # Values come in the order of their keys.
                    while values and (key := next(iter(values))) < oldest:
                        del values[key]

    def _still_asked(self, loop: int) -> dict[Vector, bool]:
        """Verdicts on a loop that a use inside may still ask for: none asks for what lies behind it."""
        uses = [use for use in self.table.loops[loop].uses if self._state[use] != "ended"]
        places = [self._ways[use].prefix if use in self._ways else self._at[use] or () for use in uses]
        oldest = min(places, default=None)
        if oldest is None:
            return {}
        return {key: stop for key, stop in self._until[loop].items() if key >= oldest[: len(key)]}

    def _pass_states(self, index: int, table: UseTable, at: Vector, to: Vector | None) -> None:
        for state, depth in table.scoped:
            if to is not None and to[:depth] == at[:depth]:
                continue
            others = (
                u for u, t in self.table.uses.items() if u != index and any(name == state for name, _ in t.scoped)
            )
            if all(self._is_past(u, at[:depth]) for u in others):
                self._host.passed(self, state, at[:depth])


def indices(names: Sequence[str], at: Vector) -> dict[str, int]:
    """What `@loop.NAME` and `@loop.index` stand for."""
    found = dict(zip(names, at, strict=False))
    if names and at:
        found["index"] = at[min(len(names), len(at)) - 1]
    return found
