"""One entry of a device loop: its spec for the given sizes, with the values of a run, or of a warm-up before there are
runs.

An entry says which iterations call each use, with which parameters, and which is the first iteration that can't be
computed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from walkgraph.abi.calls import Scalar, StateKey
from walkgraph.engine.loops.spec import Anew, LoopCall, LoopSource, LoopSpec, LoopUse, Mask
from walkgraph.errors import ErrorInfo
from walkgraph.graph.language.expressions import ExpressionError, parse
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.loop_contents import INDEX
from walkgraph.placement.tables import EdgePlan, Plan
from walkgraph.worker.loops.lowering import unrolls
from walkgraph.worker.tables.walk_tables import Conditions, DeviceLoopTable, Params, UseTable, WalkTable, evaluator
from walkgraph.worker.walk import shaping
from walkgraph.worker.walk.call_arguments import Calls, Lacking, WalkStep, no_value
from walkgraph.worker.walk.cursor import Vector, indices

_WARM_UP = RunId("warm-up")
_MOST_FORMS = 4
"""The most kinds of iterations of one loop that are captured ahead; others are captured when they first come."""


class Bound(NamedTuple):
    """The first iteration that can't be computed: a loop that gets there fails with this error."""

    at: int
    error: ErrorInfo | Lacking

    @property
    def info(self) -> ErrorInfo:
        return self.error.error if isinstance(self.error, Lacking) else self.error


class LoopEntry:
    """The entry of a run into a device loop. Raises ExpressionError if a count has no value."""

    def __init__(
        self,
        calls: Calls,
        step: WalkStep,
        table: DeviceLoopTable,
        at: Vector,
        times: int,
        values: Mapping[str, Any],
        sent: frozenset[str],
    ) -> None:
        """`values`: by port of the standing use. `sent`: keys of the `each` outputs that somebody reads."""
        self.table, self.times = table, times
        self._calls, self._step, self._at, self._values, self._sent = calls, step, at, values, sent
        counts = {loop: int(count(calls.given, {})) for loop, count in table.times.items()}
        self.unrolled = table.lowering.unrolled(counts)
        self._others = {use: self._called(use, asked)[0] for use, asked in table.others.items()}
        """Use in another rank's part -> the iterations that call it; None for all."""
        asked = [(table.uses[one.place].plan.index, table.conditions[one.place], one) for one in self.unrolled.order]
        active = [self._called(use, conditions, one.inner) for use, conditions, one in asked]
        self.masks = [mask for mask, _ in active]
        """For each use, the iterations that call it, up to the bound; None for all."""
        self._spec = self._lowered(times)
        self._uses, self.bound = self._filled([failed for _, failed in active])
        """`bound`: the first iteration that can't be computed."""

    def call(self, wanted: Mapping[str, Mask], grain: int = 1, offset: int = 0) -> LoopCall:
        """The call for the engine; `LoopCall` says when values are handed out. Raises ExpressionError if the width of
        a state has no value."""
        calls, anew, count = self._calls, self._anew(), self._until(self.bound)
        spec = self._spec if self.bound is None else self._lowered(count)
        return LoopCall(
            spec=spec,
            run=calls.run,
            step=self._step.step,
            iteration=self._at,
            times=count,
            uses=tuple(_cut(use, count) for use in self._uses),
            values=self._values,
            states={name: self._key(state) for state, name in self.table.lowering.states.items()},
            comes=self._comes(spec),
            goes=self._goes(spec),
            grain=grain,
            offset=offset,
            wanted={key: mask[:count] for key, mask in wanted.items()},
            anew=anew,
            widths=self._widths(anew),
            priority=calls.priority,
        )

    def read(self, edge: EdgePlan) -> Mask | None:
        """The iterations whose value a follower reads over this edge; None for all. If its condition has no value, the
        follower fails by itself when it gets there."""
        reader = self.table.readers.get(edge.index)
        if reader is None:
            return None
        taken, _ = self._taken(reader.conditions)
        if taken is None:
            return None
        taken += (True,) * (self.times - len(taken))
        return None if all(taken) else (*taken[reader.later :], *[False] * reader.later)

    # ── the spec ──

    def _lowered(self, times: int) -> LoopSpec:
        """The spec for this many iterations."""
        masks = self.masks

        def called(at: int) -> bool:
            mask = masks[at]
            return mask is None or any(mask[:times])

        return self.table.lowering.spec(self.unrolled, self._values, self._sent, called)

    def _filled(self, failed: Sequence[Bound | None]) -> tuple[list[LoopUse], Bound | None]:
        """The arguments of each use, and the first iteration that can't be computed."""
        found: list[LoopUse] = []
        bound: Bound | None = None
        comes = self._comes(self._spec)
        for at, (one, lowered) in enumerate(zip(self.unrolled.order, self._spec.uses, strict=True)):
            use, active = self.table.uses[one.place], self.masks[at]
            bound = _first(bound, failed[at])
            bound = _first(bound, self._lacking(use, one.inner, lowered.sources, active, comes, self._until(bound)))
            params, wrong = self._params(use, one.inner, active, self._until(bound))
            bound = _first(bound, wrong)
            varying, wrong = self._varying(use, one.inner, active, self._until(bound))
            bound = _first(bound, wrong)
            found.append(LoopUse(params, varying, self._calls.seed(lowered.node), active))
        return found, bound

    def _until(self, bound: Bound | None) -> int:
        return self.times if bound is None else bound.at

    # ── states ──

    def _key(self, state: int) -> StateKey:
        return self._calls.key(self._step, state, self._at)

    def _anew(self) -> dict[StateKey, Anew]:
        """States that begin every iteration anew, and what they begin with."""
        loop, found = self.table.loop, dict[StateKey, Anew]()
        copied = [(fork.states[1], self._key(fork.states[0])) for fork in loop.forks]
        for state, source in (*copied, *((state, None) for state in loop.anew)):
            found[self._key(state)] = Anew(source, int(self.table.widths[state](self._calls.given, {})))
        return found

    def _widths(self, anew: Mapping[StateKey, Anew]) -> dict[StateKey, int]:
        """The number of sequences of the other states that may have several."""
        found = {self._key(state): int(width(self._calls.given, {})) for state, width in self.table.widths.items()}
        return {key: width for key, width in found.items() if key not in anew}

    # ── other ranks' parts ──

    def _comes(self, spec: LoopSpec) -> tuple[Mask | None, ...]:
        """For each channel that is read, the iterations that read it."""
        found: list[Mask | None] = []
        for read in spec.reads:
            edge, active = self.table.loop.across[read.channel.number], self.masks[read.use]
            given = None if edge.carried else self._others[edge.source.use]
            found.append(_both(active, given, self.times))
        return tuple(found)

    def _goes(self, spec: LoopSpec) -> tuple[Mask | None, ...]:
        """For each channel that is written, the iterations whose value is sent."""
        found: list[Mask | None] = []
        for send, (_, edge) in zip(spec.sends, self.table.loop.sends, strict=True):
            reads = self._others[edge.target.use]
            if edge.carried:
                found.append(None if reads is None else self._ahead(reads))
            else:
                found.append(_both(self.masks[send.use], reads, self.times))
        return tuple(found)

    # ── iterations ──

    def _called(self, use: int, asked: Conditions, inner: Vector = ()) -> tuple[Mask | None, Bound | None]:
        """The iterations that call a use, on any rank (None for all), up to the first that can't be computed."""
        return self._taken(asked, inner)

    def _taken(self, asked: Conditions, inner: Vector = ()) -> tuple[Mask | None, Bound | None]:
        """The iterations in which all conditions hold (None for all), up to the first in which one has no value."""
        if not asked.fixed and not asked.varying:
            return None, None
        given, found = self._calls.given, list[bool]()
        try:
            where = indices(asked.loop_names, (*self._at, 0, *inner))
            if not all(holds(given, where) for holds in asked.fixed):
                return (False,) * self.times, None
            for i in range(self.times if asked.varying else 0):
                where = indices(asked.loop_names, (*self._at, i, *inner))
                found.append(all(holds(given, where) for holds in asked.varying))
        except ExpressionError as error:
            return tuple(found), Bound(len(found), no_value(error))
        return None if all(found) else tuple(found), None

    def _ahead(self, reads: Mask) -> Mask:
        """For a value that the next iteration reads: the reading iterations and those before them. Sending one value
        too many costs nothing, and makes fewer kinds of iterations."""
        padded = (*reads, *[False] * (self.times + 1 - len(reads)))
        return tuple(padded[i] or padded[i + 1] for i in range(self.times))

    def _lacking(
        self,
        use: UseTable,
        inner: Vector,
        sources: Mapping[str, LoopSource],
        active: Mask | None,
        comes: Sequence[Mask | None],
        times: int,
    ) -> Bound | None:
        """The first iteration in which a required port has no value, as far as that is known before the loop runs."""
        bound: Bound | None = None
        for port in use.node.required if use.node else ():
            gaps = self._gaps(sources.get(port), comes, times)
            first = next((i for i in gaps if active is None or active[i]), None)
            if first is not None:
                bound = _first(bound, Bound(first, self._calls.lacks(use, port, (*self._at, first, *inner))))
        return bound

    def _gaps(self, source: LoopSource | None, comes: Sequence[Mask | None], times: int) -> Iterable[int]:
        """Iterations in which a port has no value, whatever the operators return."""
        if source is None:
            return range(times)
        if source.kind == "carried":
            first = source if source.enters else source.first
            gaps = range(times) if first is None else self._now_lacking(first, comes, times)
            return (i for i in gaps if i == 0)
        return self._now_lacking(source, comes, times)

    def _now_lacking(self, source: LoopSource, comes: Sequence[Mask | None], times: int) -> Iterable[int]:
        if source.kind == "behind" and not source.enters:
            return range(times)
        if source.sliced:
            return range(shaping.length(source.given(self._values)), times)
        if source.kind == "internal" and source.place is not None:
            return _false(self.masks[source.place[0]], times)
        return _false(comes[source.channel], times) if source.kind == "channel" else ()

    def _params(
        self, use: UseTable, inner: Vector, active: Mask | None, times: int
    ) -> tuple[Mapping[str, Scalar], Bound | None]:
        """Parameters that are the same in all iterations. If one has no value the use can't be called; placeholders
        are returned, because it may never be called."""
        try:
            fixed = self._calls.fixed(self._step, use)
            if not use.computed:
                return fixed, None
            where = indices(use.loop_names, (*self._at, 0, *inner))
            outer = {n: value(self._calls.given, where) for n, value in use.computed if n not in use.varying}
        except ExpressionError as error:
            first = next((i for i in range(times) if active is None or active[i]), None)
            names = [name for name, _ in (*use.fixed, *use.computed) if name not in use.varying]
            defaults = use.node.defaults if use.node else {}
            params = {**dict.fromkeys(names, 0), **defaults, **use.literals, "seed": self._calls.given["seed"]}
            return params, None if first is None else Bound(first, no_value(error))
        return {**fixed, **outer}, None

    def _varying(
        self, use: UseTable, inner: Vector, active: Mask | None, times: int
    ) -> tuple[dict[str, tuple[Scalar, ...]], Bound | None]:
        """Parameters that change with the iteration, up to the first iteration in which one has no value; 0 in
        iterations that don't call the use."""
        if not use.varying:
            return {}, None
        found: dict[str, list[Scalar]] = {name: [] for name in use.varying}
        evaluators = [(name, value) for name, value in use.computed if name in use.varying]
        bound: Bound | None = None
        for i in range(times):
            where = indices(use.loop_names, (*self._at, i, *inner))
            asked = active is None or active[i]
            try:
                values = [value(self._calls.given, where) if asked else 0 for _, value in evaluators]
            except ExpressionError as error:
                bound = Bound(i, no_value(error))
                break
            for (name, _), value in zip(evaluators, values, strict=True):
                found[name].append(value)
        return {name: tuple(values) for name, values in found.items()}, bound


def _false(mask: Mask | None, times: int) -> Iterable[int]:
    return () if mask is None else (i for i in range(times) if not mask[i])


def _cut(use: LoopUse, times: int) -> LoopUse:
    """Cut a use's masks and parameters to this many iterations."""
    if use.active is None and not use.varying:
        return use
    active = None if use.active is None or all(use.active[:times]) else use.active[:times]
    return use._replace(active=active, varying={name: values[:times] for name, values in use.varying.items()})


def _both(one: Mask | None, other: Mask | None, times: int) -> Mask | None:
    """Iterations in both masks; None for all. A shorter mask counts as false past its end, because the loop fails
    there."""
    masks = [(*mask, *[False] * (times - len(mask))) for mask in (one, other) if mask is not None]
    return tuple(map(all, zip(*masks, strict=True))) if masks else None


def _first(one: Bound | None, other: Bound | None) -> Bound | None:
    """The earlier bound; for equal iterations, the first."""
    return other if one is None or (other is not None and other.at < one.at) else one


# ── before any request ──────────────────────────────────────────────────────────────────────────


class _WarmUpStep(NamedTuple):
    table: WalkTable
    step: int = 0


_Form = Mapping[int, bool]
"""Use of the loop, on any rank -> true if this kind of iteration calls it."""


def loop_templates(plan: Plan, rank: Rank, tables: Sequence[WalkTable]) -> Iterator[LoopCall]:
    """Entries that a rank's engine makes ready while it loads: for each device loop, one for every size that tasks
    give it by their defaults. They have no entering values; operators' examples take their place."""
    for table in tables:
        for use in table.uses.values():
            if use.device_loop is not None:
                for params in _kinds(table, use.device_loop):
                    calls = Calls(plan, rank, _WARM_UP, None, {"seed": 0, **params})
                    entry = _WarmUp(calls, _WarmUpStep(table), use.device_loop, _forms(use.device_loop))
                    yield entry.call(_unread(use.device_loop, entry.times))


def _kinds(walk: WalkTable, table: DeviceLoopTable) -> Iterator[Params]:
    """The parameters of each kind of run that tasks declare. If no task does, try none, in case no size depends on
    them. Loops whose sizes are fixed are made ready for the first kind only."""
    sized = bool(table.times or table.widths)
    for params in (walk.plan.usual or ({},))[: None if sized else 1]:
        with suppress(ExpressionError):
            counts = {loop: int(count(params, {})) for loop, count in table.times.items()}
            for width in table.widths.values():
                int(width(params, {}))
            if unrolls(table.loop.inside, counts):
                yield params


def _unread(table: DeviceLoopTable, times: int) -> dict[str, Mask]:
    """Outputs that are not read in every iteration; in a warm-up they are handed out in none."""
    emits = table.loop.emits
    always = {edge.source.port for edge in emits if edge.index not in table.readers}
    return {edge.source.port: (False,) * times for edge in emits if edge.source.port not in always}


def _forms(table: DeviceLoopTable) -> list[_Form]:
    """The kinds of iterations, by the uses that they call: first only uses without conditions of their own, then one
    condition after the other holds, in the order of the body, and in the last kind all do. Conditions on the indices
    of inner loops don't count."""
    whens: dict[int, tuple[str, ...]] = {use.index: use.when for use in table.loop.others.values()}
    for use, inside in zip(table.uses, table.loop.inside, strict=True):
        whens[use.plan.index] = tuple(text for text in use.plan.when if not _decided(use, len(inside), text))
    asked = list(dict.fromkeys(when for _, when in sorted(whens.items()) if when))
    held = [*range(min(len(asked), _MOST_FORMS - 1)), len(asked)]
    return [{use: not when or when in asked[:count] for use, when in sorted(whens.items())} for count in held]


def _decided(use: UseTable, deep: int, text: str) -> bool:
    """True if a condition of a use follows from parameters and the indices of the `deep` inner loops that hold it."""
    read = parse(text).loops
    return deep > 0 and bool(read) and read <= {INDEX, *use.loop_names[-deep:]}


class _WarmUp(LoopEntry):
    """The entry of a warm-up: a run with the task's default parameters, whose iterations are of the likeliest kinds."""

    def __init__(self, calls: Calls, step: WalkStep, table: DeviceLoopTable, forms: Sequence[_Form]) -> None:
        self._forms = forms
        self._here = {use.plan.index: use for use in table.uses}
        entries = dict.fromkeys(feed.entry for feeds in table.loop.feeds for feed in feeds if feed.entry is not None)
        sent = frozenset(edge.source.port for edge in table.loop.emits)
        super().__init__(calls, step, table, (), len(forms), entries, sent)

    def _called(self, use: int, asked: Conditions, inner: Vector = ()) -> tuple[Mask | None, Bound | None]:
        here = self._here.get(use)
        if here is not None and not self._decides(here, inner):
            return (False,) * self.times, None
        mask = tuple(form[use] for form in self._forms)
        return None if all(mask) else mask, None

    def _decides(self, use: UseTable, inner: Vector) -> bool:
        """True if the conditions on indices of inner loops let it be called."""
        where = self._where(use, inner)
        for text in use.plan.when:
            with suppress(ExpressionError):
                if _decided(use, len(inner), text) and not evaluator(text)(self._calls.given, where):
                    return False
        return True

    def _where(self, use: UseTable, inner: Vector) -> dict[str, int]:
        return indices(use.loop_names, (*(0,) * (len(use.loop_names) - len(inner)), *inner))

    def _ahead(self, reads: Mask) -> Mask:
        return reads

    def _lacking(
        self,
        use: UseTable,
        inner: Vector,
        sources: Mapping[str, LoopSource],
        active: Mask | None,
        comes: Sequence[Mask | None],
        times: int,
    ) -> Bound | None:
        return None

    def _params(
        self, use: UseTable, inner: Vector, active: Mask | None, times: int
    ) -> tuple[Mapping[str, Scalar], Bound | None]:
        """Parameters, as far as they are known."""
        found: dict[str, Scalar] = {**(use.node.defaults if use.node is not None else {}), **use.literals}
        where = self._where(use, inner)
        for name, value in (*use.fixed, *use.computed):
            with suppress(ExpressionError):
                found[name] = value(self._calls.given, where)
        return {name: value for name, value in found.items() if name not in use.varying}, None

    def _varying(
        self, use: UseTable, inner: Vector, active: Mask | None, times: int
    ) -> tuple[dict[str, tuple[Scalar, ...]], Bound | None]:
        return dict.fromkeys(sorted(use.varying), (0.0,) * self.times), None
