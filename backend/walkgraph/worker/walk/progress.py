"""The progress of one step of a run on one rank: the iteration of each use, and the verdicts on loops, choices and
maps.

A verdict says whether an iteration of a loop was the last, which branch a choice takes, or how many items a map has.
Pure: it holds no values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from walkgraph.placement.tables import Scalar
from walkgraph.worker.tables.walk_tables import UseTable, WalkTable
from walkgraph.worker.walk.cursor import WAIT, Cursor, Next, Vector, following, indices

V = TypeVar("V")
VERDICTS = 64
"""Verdicts kept per loop or choice before those that no use can ask for are dropped."""
NO_BRANCH = -1
"""The verdict of a choice that is skipped."""


_ONCE = Next((), (), Cursor((), True, 0), ())
_OVER = Next(None, (), Cursor((), False, 0), ())
"""The ways of a use outside loops: to its only iteration, and behind it."""


class Progress:
    def __init__(
        self,
        table: WalkTable,
        params: Mapping[str, Scalar],
        around: "Progress | None" = None,
        item: Vector = (),
    ) -> None:
        """`item`: the iteration of a map, and of the loops around it, to which it is confined; `around`: the progress
        outside, whose verdicts it shares."""
        self.at: dict[int, Vector | None] = dict.fromkeys(table.uses)
        """Use -> its current iteration; None before its first."""
        self.state: dict[int, str] = dict.fromkeys(table.uses, "moving")
        """moving: between its last iteration and the next; waiting: for inputs; running; ended."""
        self.unfinished = len(table.uses)
        """The number of uses that have not ended."""
        self.cursors: dict[int, Cursor] = {}
        """Cursors of uses that wait for an `until`."""
        self.verdicts = Verdicts(table, self.oldest, around.verdicts if around is not None else None, len(item))
        self._table, self._params, self._item = table, params, item
        self._times: dict[int, tuple[Vector, int]] = {}
        """Loop -> the iteration of the loops around it that was asked for last, and its count there."""

    def standing(self) -> Iterator[tuple[UseTable, Vector, str]]:
        """Every use that has not ended, with its current iteration and its state."""
        return ((self._table.uses[u], self.at[u] or (), s) for u, s in self.state.items() if s != "ended")

    # ── from one iteration to the next ──

    def next(self, index: int, table: UseTable, at: Vector | None) -> Next:
        if not table.plan.loops:
            return _ONCE if at is None else _OVER
        begun = self._item if at is None else at
        prefix, entering, ended = self.cursors.get(index) or Cursor(begun, at is None, len(begun))
        floor = len(self._item)
        loops, empties = table.plan.loops, list[Vector]()
        untaken: tuple[Vector, ...] = ()
        while entering or len(prefix) > floor:
            if entering and len(prefix) == len(loops):
                return Next(prefix, empties, Cursor(prefix, entering, ended), untaken)
            reached = self._reaches(table, prefix) if entering and table.cases else True
            if not reached:
                go = reached
            elif entering:
                go = self._enters(loops[len(prefix)], prefix)
            else:
                go = self._goes_on(loops[len(prefix) - 1], prefix)
            if go is None:
                return Next(WAIT, empties, Cursor(prefix, entering, ended), untaken)
            if reached is False:
                untaken = (*untaken, prefix)
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
        return Next(None, empties, Cursor(self._item, False, floor), untaken)

    def times(self, loop: int, prefix: Vector) -> int:
        known = self._times.get(loop)
        if known is None or known[0] != prefix:
            table = self._table.loops[loop]
            if table.times is None:
                raise RuntimeError("the loop `chunk` has no count")
            known = self._times[loop] = prefix, int(table.times(self._params, indices(table.outer, prefix)))
        return known[1]

    # ── the order of calls ──

    def wanted(self, table: UseTable, at: Vector) -> bool:
        if not table.when:
            return True
        where = indices(table.loop_names, at)
        return all(when(self._params, where) for when in table.when)

    def in_order(self, table: UseTable, at: Vector) -> bool:
        for other, common in table.before:
            if not self.is_past(other, at[:common]):
                return False
        for other, common in table.after:
            if self.state[other] != "ended" and (*self._reached(other), *[0] * common)[:common] < at[:common]:
                return False
        return True

    def is_past(self, use: int, prefix: Vector) -> bool:
        """True if all calls of the use under the prefix are over."""
        reached = self._reached(use)
        return self.state[use] == "ended" or reached[: len(prefix)] > prefix[: len(reached)]

    # ── inside ──

    def _reached(self, use: int) -> Vector:
        """A vector, or prefix of one: all calls of the use before it are over."""
        cursor = self.cursors.get(use)
        if cursor is None:
            return self.at[use] or self._item
        return cursor.prefix if cursor.entering else following(cursor.prefix)

    def _enters(self, loop: int, prefix: Vector) -> bool:
        """True if the loop has an iteration. The loop `chunk` always has one."""
        return self._table.loops[loop].times is None or self.times(loop, prefix) > 0

    def _goes_on(self, loop: int, key: Vector) -> bool | None:
        table = self._table.loops[loop]
        more = table.times is None or key[-1] + 1 < self.times(loop, key[:-1])
        if table.plan.until is None and table.times is not None:
            return more
        if not more and not table.plan.drop_last:
            return False
        stop = self.verdicts.of(loop, key)
        return None if stop is None else more and not stop

    def _reaches(self, table: UseTable, prefix: Vector) -> bool | None:
        """False if another branch than the use's is taken under the prefix; None while that isn't known. Branches
        outside have been taken."""
        for choice, depth, branch in table.cases:
            if depth == len(prefix):
                verdict = self.verdicts.branch(choice, prefix)
                if verdict != branch:
                    return None if verdict is None else False
        return True

    def oldest(self, uses: Sequence[int]) -> Vector | None:
        """The least iteration that one of the uses may still ask about; None if all have ended."""
        going = [use for use in uses if self.state[use] != "ended"]
        return min(
            (self.cursors[u].prefix if u in self.cursors else self.at[u] or self._item for u in going), default=None
        )


class Verdicts:
    """The verdicts on loops, of choices and of maps."""

    def __init__(
        self,
        table: WalkTable,
        oldest: Callable[[Sequence[int]], Vector | None],
        around: "Verdicts | None",
        depth: int,
    ) -> None:
        """`oldest`: as that of `Progress`. For an item of a map: `around` are the verdicts outside, those on loops and
        of choices with fewer than `depth` loops around them."""
        self._table, self._around = table, around
        self._until: list[_Known[bool]] = [_Known(oldest, loop.uses) for loop in table.loops]
        """For each loop: indices of outer loops and iteration -> true if it was the last."""
        maps = (loop for loop in table.loops if loop.plan.width)
        self._counts: dict[int, _Known[int]] = {loop.plan.index: _Known(oldest, loop.uses) for loop in maps}
        """For each map: iteration of the loops around it -> the number of its items."""
        self._chosen: list[_Known[int]] = [_Known(oldest, uses) for uses in table.branches]
        """For each choice: iteration of the loops around it -> the branch taken."""
        self._closing: Vector | None = None
        """The iteration of the loop `chunk` whose chunk has no new items."""
        if around is None:
            return
        for loop, found in enumerate(table.loops):
            if len(found.outer) < depth:
                self._until[loop] = around._until[loop]
        for choice in table.plan.choices:
            if len(table.plan.uses[choice.use].loops) < depth:
                self._chosen[choice.index] = around._chosen[choice.index]

    def judge(self, loop: int, key: Vector, stop: bool, *, closing: bool) -> None:
        self._until[loop].put(key, stop)
        if closing:
            self._closing = key

    def of(self, loop: int, key: Vector) -> bool | None:
        """True if an iteration was the last; None while that isn't known."""
        return self._until[loop].known.get(key)

    def choose(self, choice: int, key: Vector, branch: int) -> None:
        self._chosen[choice].put(key, branch)

    def count(self, loop: int, key: Vector, items: int) -> None:
        self._counts[loop].put(key, items)

    def items(self, loop: int, key: Vector) -> int | None:
        """The number of a map's items; None while that isn't known."""
        return self._counts[loop].known.get(key)

    def taken(self, table: UseTable, at: Vector) -> bool | None:
        """True if the branches around a use are taken in an iteration; None while that isn't known."""
        for choice, depth, branch in table.cases:
            verdict = self._chosen[choice].known.get(at[:depth])
            if verdict != branch:
                return None if verdict is None else False
        return True

    def undecided(self, table: UseTable, at: Vector) -> int | None:
        """The outermost choice whose verdict a use waits for in an iteration."""
        cases = (case for case in table.cases if case[1] <= len(at))
        return next((choice for choice, depth, _ in cases if at[:depth] not in self._chosen[choice].known), None)

    def closes(self, at: Vector) -> bool:
        """True if an iteration exists only so that its uses can flush; calls without inputs are skipped in it."""
        if self._around is not None:
            return self._around.closes(at)
        return self._closing is not None and at[:1] == self._closing

    def missing(self, table: UseTable, at: Vector) -> bool:
        """True while it isn't known whether a call without inputs belongs to a closing chunk."""
        loops = table.plan.loops
        return bool(loops) and self._table.loops[loops[0]].times is None and at[:1] not in self._until[loops[0]].known

    def branch(self, choice: int, key: Vector) -> int | None:
        """The branch that a choice takes; None while that isn't known."""
        return self._chosen[choice].known.get(key)


class _Known(Generic[V]):
    """The verdicts on one loop, or of one choice."""

    def __init__(self, oldest: Callable[[Sequence[int]], Vector | None], uses: Sequence[int]) -> None:
        """`uses`: those that ask for them."""
        self.known: dict[Vector, V] = {}
        self._oldest, self._uses, self._most = oldest, uses, VERDICTS

    def put(self, key: Vector, verdict: V) -> None:
        self.known[key] = verdict
        if len(self.known) > self._most:
            # No use asks for iterations behind it.
            oldest = self._oldest(self._uses)
            kept = {} if oldest is None else {k: v for k, v in self.known.items() if k >= oldest[: len(k)]}
            self.known = kept
            self._most = max(VERDICTS, 2 * len(kept))
