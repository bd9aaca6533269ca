"""The arguments of a run's calls besides inputs: parameters, seed, and state keys."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from walkgraph.abi.calls import Call, ChunkInfo, Given, Scalar, StateKey, Timed, lacks
from walkgraph.errors import ErrorInfo
from walkgraph.graph.language.expressions import ExpressionError
from walkgraph.ids import Rank, RunId
from walkgraph.placement.selection import ALL, Selection
from walkgraph.placement.tables import EdgePlan, LoopPlan, Plan
from walkgraph.worker.events import ABSENT, MoveState, Ref, RunCall
from walkgraph.worker.tables.walk_tables import LoopTable, Params, UseTable, WalkTable, evaluator
from walkgraph.worker.walk.cursor import Vector, following, indices


class WalkStep(Protocol):
    """A step of a run in which calls are made; `Walker` is one."""

    @property
    def table(self) -> WalkTable: ...

    @property
    def step(self) -> int: ...


class Lacking(NamedTuple):
    """A call can't be made, because a port that must have a value has none."""

    error: ErrorInfo


class Calls:
    def __init__(
        self,
        plan: Plan,
        rank: Rank,
        run: RunId,
        session: str | None,
        params: Mapping[str, Scalar],
        priority: int = 0,
        streams: Collection[int] | None = None,
        selected: Mapping[str, Selection] = {},
    ) -> None:
        """`streams`: those that the run reads; None if all may be. `selected`: by output."""
        self.selected = selected
        self._streams = None if streams is None else frozenset(streams)
        self.plan, self.rank, self.run, self.given = plan, rank, run, params
        self._session, self.priority = session, priority
        self._fixed: dict[tuple[int, int], dict[str, Scalar]] = {}
        """(Walk, use) -> parameters that are the same in every call."""
        self._reads: dict[tuple[int, int], frozenset[str]] = {}
        """(Walk, use) -> its ports with readers in this run."""
        self._seeds: dict[str, int] = {}

    def made(
        self, walker: WalkStep, use: UseTable, at: Vector, inputs: dict[str, Any], chunks: dict[str, ChunkInfo]
    ) -> RunCall | MoveState | Lacking:
        """The command for an iteration of a use that is not a device loop."""
        if use.node is None:
            return self._move(walker, use, at, inputs)
        missing = self.missing(use, inputs)
        if missing:
            return self.lacks(use, missing[0], at)
        read = self._read(walker, use)
        unread = self._unread(walker, use, at) if self.selected else frozenset[str]()
        return RunCall(
            Call(
                run=self.run,
                node=use.node.name,
                walk=walker.table.plan.name,
                step=walker.step,
                use=use.plan.index,
                iteration=at,
                inputs=inputs,
                params=self.params(walker, use, at),
                states=self.states(walker, use, at),
                seed=self.seed(use.node.name),
                chunks=chunks,
                priority=self.priority,
                name=use.plan.name,
                links=tuple([link for link, _ in use.links]) if use.links else (),
                given=self._given(walker, use, at) if use.links else (),
                timed=_timed(use, chunks) if use.timed is not None else None,
                answered=bool(read or use.judges or use.decides),
                read=None if use.judges or use.decides else read,
                unread=unread,
                sent_as=self._sent_as(use) if self.selected else {},
                awaited=bool(at or use.judges or use.decides or not read <= use.streamed),
            ),
            use.node.task,
            use.asked,
            use.pieces,
        )

    def _read(self, walker: WalkStep, use: UseTable) -> frozenset[str]:
        """The ports with readers in this run."""
        place, live = (walker.table.plan.index, use.plan.index), self._streams
        if place not in self._reads:
            self._reads[place] = frozenset(
                port for port, streams in use.readers if streams is None or live is None or not live.isdisjoint(streams)
            )
        return self._reads[place]

    # ── what the client has selected ──

    def needless(self, walker: WalkStep, use: UseTable, at: Vector) -> bool:
        """True if an iteration is for the client alone, and nothing is sent of it."""
        if not (self.selected and use.only_sent) or use.links:
            return False
        return all(self._skips(walker, use, edge, at) for edge in use.outputs)

    def dtype_of(self, edges: Collection[EdgePlan]) -> str | None:
        """The dtype in which the values of these edges leave for the client; None if it is theirs, or not all do."""
        found = {self.selected.get(edge.target.port, ALL).dtype for edge in edges if edge.target.kind == "out"}
        alone = len(found) == 1 and all(edge.target.kind == "out" for edge in edges)
        return found.pop() if alone else None

    def selects(self, edge: EdgePlan, times: int, *, static: bool) -> tuple[bool, ...] | None:
        """The iterations of a loop whose values leave over an edge; None for all. `static`: the loop has exactly so
        many, and a value in each."""
        selection = self.selected.get(edge.target.port, ALL) if edge.target.kind == "out" else ALL
        if selection.every > 1:
            return tuple(not selection.skips((i,)) for i in range(times))
        return (*[False] * (times - 1), True) if selection.last and static else None

    def _unread(self, walker: WalkStep, use: UseTable, at: Vector) -> frozenset[str]:
        return frozenset(
            sent.port for sent in use.sent if all(self._skips(walker, use, edge, at) for edge in sent.edges)
        )

    def _sent_as(self, use: UseTable) -> Mapping[str, str]:
        found = {sent.port: self.dtype_of(sent.edges) for sent in use.sent if sent.alone}
        return {port: dtype for port, dtype in found.items() if dtype is not None}

    def _skips(self, walker: WalkStep, use: UseTable, edge: EdgePlan, at: Vector) -> bool:
        """True if the value of an iteration surely isn't sent."""
        selection = self.selected.get(edge.target.port, ALL)
        if not at or edge.leave not in ("none", "each"):
            return False
        if selection.skips(at):
            return True
        sure = use.node is not None and edge.source.port not in use.node.optional
        return selection.last and sure and self._goes_on(walker, use, at)

    def _goes_on(self, walker: WalkStep, use: UseTable, at: Vector) -> bool:
        """True if a later iteration of the use is sure to come."""
        loops = [walker.table.loops[index] for index in use.plan.loops]
        if use.plan.when or use.plan.cases or any(_open(loop.plan) for loop in loops):
            return False
        return any(_begins(loops, following(at[: depth + 1]), self.given) for depth in range(len(at)))

    def _given(self, walker: WalkStep, use: UseTable, at: Vector) -> tuple[Given, ...]:
        return tuple([Given(self.params(walker, one, at), self.seed(link.node)) for link, one in use.links])

    def _move(self, walker: WalkStep, use: UseTable, at: Vector, inputs: Mapping[str, Any]) -> MoveState:
        ref = Ref(self.run, walker.step, use.plan.index, at)
        keys = [self.key(walker, state, at) for state in use.plan.states]
        match use.plan.op:
            case "export":
                return MoveState(ref, "export", source=keys[0])
            case "import":
                in_parts = any(edge.parts for _, edges in use.inputs for edge in edges)
                arriving = arriving_key(self.run, keys[0].state, walker.step) if in_parts else None
                return MoveState(ref, "import", arriving, keys[0], inputs.get("state", ABSENT))
            case _:
                width = evaluator(self.plan.states[use.plan.states[1]].width)(self.given, {})
                return MoveState(ref, "fork", source=keys[0], target=keys[1], width=int(width))

    def params(self, walker: WalkStep, use: UseTable, at: Vector) -> Mapping[str, Scalar]:
        fixed = self.fixed(walker, use)
        if not use.computed:
            return fixed
        where = indices(use.loop_names, at)
        return {**fixed, **{name: value(self.given, where) for name, value in use.computed}}

    def fixed(self, walker: WalkStep, use: UseTable) -> Mapping[str, Scalar]:
        """Parameters that don't depend on a loop's index."""
        place = walker.table.plan.index, use.plan.index
        if place not in self._fixed:
            fixed = {name: value(self.given, {}) for name, value in use.fixed}
            self._fixed[place] = {**use.literals, **fixed, "seed": self.given["seed"]}
        return self._fixed[place]

    def seed(self, node: str) -> int:
        if node not in self._seeds:
            digest = blake2b(f"{self.given['seed']}:{node}".encode(), digest_size=8).digest()
            self._seeds[node] = int.from_bytes(digest, "big") >> 1
        return self._seeds[node]

    def states(self, walker: WalkStep, use: UseTable, at: Vector) -> dict[str, StateKey]:
        if use.node is None or not use.node.states:
            return {}
        return {slot: self.key(walker, state, at) for slot, state in use.node.states.items()}

    def key(self, walker: WalkStep, state: int, at: Vector) -> StateKey:
        plan = self.plan.states[state]
        if plan.scope in ("walk", "iteration"):
            depth = walker.table.plan.state_scopes.get(state, 0)
            return StateKey(self.run, plan.name, (walker.step, *at[:depth]))
        return self.lasting(state)

    def lasting(self, state: int) -> StateKey:
        """The key of a state that outlives a Walk."""
        plan = self.plan.states[state]
        if plan.scope == "session" and self._session is not None:
            return StateKey(f"session:{self._session}", plan.name)
        return StateKey(self.run, plan.name)

    def missing(self, use: UseTable, given: Mapping[str, Any]) -> Sequence[str]:
        """Required ports without a value. Those of a chain are looked for when its calls are made."""
        return [port for port in use.node.required if port not in given] if use.node and not use.links else ()

    def lacks(self, use: UseTable, port: str, at: Vector) -> Lacking:
        name = use.node.name if use.node else use.plan.name
        error = ErrorInfo(
            code="node_error",
            message=lacks(name, port),
            node=name,
            use=use.plan.name,
            port=port,
            iteration=at,
            rank=self.rank,
        )
        return Lacking(error)


def arriving_key(run: RunId, state: str, step: int) -> StateKey:
    """The key of what has come of a state by the step that moves it. It belongs to the run, even if the state is a
    session's, so that nothing is left of it when the run fails."""
    return StateKey(run, state, (-1, step))


def _open(loop: LoopPlan) -> bool:
    """True if a value may end the loop, or its iterations don't follow each other."""
    return bool(loop.endings or loop.width) or loop.stream is not None


def _begins(loops: Sequence[LoopTable], at: Vector, given: Params) -> bool:
    """True if what these loops hold has an iteration that begins with these indices. `given`: the run's parameters."""
    whole = (*at, *[0] * (len(loops) - len(at)))
    with suppress(ExpressionError):  # reported when the run gets there
        return all(_has(loops[depth], whole[: depth + 1], given) for depth in range(len(at) - 1, len(loops)))
    return False


def _has(loop: LoopTable, at: Vector, given: Params) -> bool:
    return loop.times is not None and at[-1] < int(loop.times(given, indices(loop.outer, at[:-1])))


def _timed(use: UseTable, chunks: Mapping[str, ChunkInfo]) -> Timed | None:
    """The playback of the new items that a call reads."""
    if use.timed is None or use.timed.port not in chunks:
        return None
    chunk = chunks[use.timed.port]
    return Timed(max(0, chunk.valid - chunk.context) * use.timed.seconds, use.timed.plays)


def no_value(error: Exception) -> ErrorInfo:
    """The error for an expression without a value."""
    return ErrorInfo(code="node_error", message=f"an expression has no value: {error}")
