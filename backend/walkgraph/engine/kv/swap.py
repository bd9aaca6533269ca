"""Moves the states of suspended runs to host memory and back.

    here ──suspend──> stopping ──nothing in flight──> leaving ──copied──> out
      ^                                                                     │ resume
      └──────────────────────copied── coming <──pages taken─────────────────┘

On a GPU, copies both ways run on a stream of their own, beside the steps of other runs, and nobody waits for them. Each
page is copied whole and once, however many sequences share it, and is shared in the same way afterwards. States of a
session don't belong to its runs, so they stay.
"""

import logging
from collections.abc import Callable, Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.paged_state import CONTENTS, EMPTY, PagedState
from walkgraph.engine.kv.pool import Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.errors import ErrorInfo, WalkgraphError

_log = logging.getLogger(__name__)

Slots = MutableMapping[Any, Tensor]
"""A mapping whose tensors are moved in place."""


class Swapped(NamedTuple):
    """A run is suspended (`out`), or is back."""

    run: str
    out: bool
    error: ErrorInfo | None = None
    """Why it could not be moved."""


class _PagesOnHost(NamedTuple):
    """The contents of pages, on the host."""

    pages: Sequence[int]
    """Their numbers in the pool before."""
    layers: list[Tensor]
    """A copy of each tensor of the pool, `[pages, PAGE, ...]`."""


class _TensorMove(NamedTuple):
    """A tensor being copied to the other memory."""

    slots: Slots
    key: Any
    copy: Tensor
    home: torch.device
    """The device it belongs to."""


@dataclass(slots=True, eq=False)
class _SuspendedRun:
    state: Literal["stopping", "leaving", "out", "coming", "failed"] = "stopping"
    wanted: bool = False
    """True if it shall come back."""
    asked: bool = True
    """True if a `Swapped` with `out` is owed to whoever asked for the suspension."""
    marks: list[Mark] = field(default_factory=list[Mark])
    """Marks behind the copies in flight."""
    paged: dict[StateKey, PagedState] = field(default_factory=dict[StateKey, PagedState])
    pages: dict[Pool, _PagesOnHost] = field(default_factory=dict[Pool, _PagesOnHost])
    moves: list[_TensorMove] = field(default_factory=list[_TensorMove])

    @property
    def over(self) -> bool:
        return all(mark.query() for mark in self.marks)


class SuspendedRuns:
    """Runs that are suspended, or being moved."""

    def __init__(self) -> None:
        self.runs: dict[str, _SuspendedRun] = {}

    def here(self, run: str) -> bool:
        """True if the states of a run are on its device."""
        return run not in self.runs or self.runs[run].state == "stopping"


class Swap:
    def __init__(
        self,
        states: StateTable,
        suspended: SuspendedRuns,
        hold: Callable[[str], None],
        quiet: Callable[[str], bool],
        release: Callable[[str], None],
        slots: Callable[[str], Iterable[Slots]],
        marked: Callable[[Mark], Mark] = lambda mark: mark,
    ) -> None:
        """`hold` stops the launches of a run until `release`; `quiet` is true if nothing of it is in flight. `slots`:
        the tensors that a held run has besides its states. `marked`: gives the mark that is asked in place of one."""
        self._states, self._hold, self._quiet, self._release, self._slots = states, hold, quiet, release, slots
        self._marked = marked
        self._suspended = suspended.runs
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def suspend(self, run: str) -> None:
        """Stop a run's launches and move its states to host memory. `Swapped` follows when its pages are free. Calls
        that are added meanwhile wait."""
        found = self._suspended.get(run)
        if found is None:
            self._hold(run)
            self._suspended[run] = _SuspendedRun()
        else:
            found.wanted, found.asked = False, True

    def resume(self, run: str) -> None:
        """Bring a suspended run back to go on where it was; `Swapped` follows when it is back. Other runs are not
        affected."""
        found = self._suspended.get(run)
        if found is not None:
            found.wanted = True

    def cancel(self, run: str) -> None:
        """Forget the copies of a run. Its states may be dropped at once: copies still writing into their pages go
        first."""
        found = self._suspended.pop(run, None)
        if found is not None and found.state in ("coming", "failed"):
            for device, stream in self._streams.items():
                torch.cuda.current_stream(device).wait_stream(stream)

    @property
    def idle(self) -> bool:
        """True if no run is being moved."""
        runs = self._suspended.values()
        return all(a.state == "failed" or (a.state == "out" and not a.wanted and not a.asked) for a in runs)

    def wait(self) -> None:
        """Wait for the oldest copy in flight."""
        mark = next((mark for one in self._suspended.values() for mark in one.marks), None)
        if mark is not None:
            mark.synchronize()

    def advance(self) -> list[Swapped]:
        """Advance every move that can go on, without waiting. Returns the runs that are out, back, or could not be
        moved."""
        swapped: list[Swapped] = []
        if self._suspended:
            with torch.inference_mode():
                for run, one in list(self._suspended.items()):
                    event = self._advance(run, one)
                    swapped += [] if event is None else [event]
        return swapped

    def _advance(self, run: str, one: _SuspendedRun) -> Swapped | None:
        if one.state == "stopping" and self._quiet(run):
            try:
                self._copy_out(run, one)
            except RuntimeError as raised:
                return self._failed(run, one, raised)
        if one.state == "leaving" and one.over:
            self._arrived(one, "out")
            self._states.drop(one.paged)
        if one.state == "out" and one.asked:
            one.asked = False
            return Swapped(run, out=True)
        if one.state == "out" and one.wanted:
            try:
                self._copy_in(one)
            except WalkgraphError as error:
                one.wanted = False
                return Swapped(run, out=False, error=error.info())
            except RuntimeError as raised:
                return self._failed(run, one, raised)
        if one.state == "coming" and one.over:
            self._arrived(one, "stopping")
            if not one.wanted:
                return self._advance(run, one)
            del self._suspended[run]
            self._release(run)
            return Swapped(run, out=False)
        return None

    def _failed(self, run: str, one: _SuspendedRun, raised: RuntimeError) -> Swapped:
        """Note that a run can't be moved and can't go on. The receiver of the event cancels it; it keeps its pages
        until then."""
        _log.error("run %s could not be moved to other memory", run, exc_info=raised)
        one.state = "failed"
        message = "there is too little memory to suspend or resume the run; see the log of its rank"
        return Swapped(run, out=False, error=ErrorInfo(code="out_of_memory", message=message, retryable=True))

    def _arrived(self, one: _SuspendedRun, state: Literal["out", "stopping"]) -> None:
        one.state = state
        one.marks.clear()
        for move in one.moves:
            move.slots[move.key] = move.copy

    # ── copies ──

    def _copy_out(self, run: str, one: _SuspendedRun) -> None:
        paged, keys = self._states.paged, self._states.keys_of(run)
        one.state, one.paged = "leaving", {key: paged[key] for key in keys if key in paged}
        held: dict[Pool, dict[int, None]] = {}
        for state in one.paged.values():
            pages = held.setdefault(state.pool, {})
            pages.update(dict.fromkeys(page for sequence in state.sequences for page in sequence.pages))
        for pool, pages in held.items():
            with self._beside(one, pool.device):
                index = _index(list(pages), pool.device)
                layers = [_to_host(_by_page(cache).index_select(0, index)) for cache in pool.each]
            one.pages[pool] = _PagesOnHost(list(pages), layers)
        one.moves = []
        tensors = self._states.tensors
        own = [key for key in self._states.keys_of(run) if key in tensors]
        for slots, keys in [(tensors, own), *((s, s) for s in self._slots(run))]:
            for key in keys:
                tensor = slots[key]
                if tensor.device.type != "cpu":
                    with self._beside(one, tensor.device):
                        one.moves.append(_TensorMove(slots, key, _to_host(tensor), tensor.device))

    def _copy_in(self, one: _SuspendedRun) -> None:
        """Copy a run's states back. Raises `OutOfPages` and changes nothing if there are too few pages."""
        renamed = self._take_back(one)
        one.state = "coming"
        for pool, kept in one.pages.items():
            with self._beside(one, pool.device):
                index = _index(renamed[pool], pool.device)
                for cache, layer in zip(pool.each, kept.layers, strict=True):
                    _by_page(cache).index_copy_(0, index, layer.to(pool.device, non_blocking=True))
        back: list[_TensorMove] = []
        for move in one.moves:
            with self._beside(one, move.home):
                copy = move.slots[move.key].to(move.home, non_blocking=True)
            copy.record_stream(torch.cuda.current_stream(move.home))
            back.append(move._replace(copy=copy))
        one.moves = back

    def _take_back(self, one: _SuspendedRun) -> dict[Pool, list[int]]:
        """Take pages for the run's sequences again, as many as before and shared in the same way. Returns, for each
        pool, the pages that replace the dropped ones, in their order. Raises `OutOfPages` and takes none if there are
        too few."""
        taken: dict[Pool, list[int]] = {}
        try:
            for pool, dropped in one.pages.items():
                taken[pool] = pool.pages.take(len(dropped.pages))
        except Exception:
            for pool, fresh in taken.items():
                pool.pages.release(fresh)
            raise
        renamed = {pool: dict(zip(one.pages[pool].pages, fresh, strict=True)) for pool, fresh in taken.items()}
        contents: dict[int, int] = {EMPTY: EMPTY}
        held: set[tuple[Pool, int]] = set()
        for key, state in one.paged.items():
            for sequence in state.sequences:
                sequence.pages = [renamed[state.pool][page] for page in sequence.pages]
                sequence.content = contents.setdefault(sequence.content, next(CONTENTS))
                state.pool.pages.share(page for page in sequence.pages if (state.pool, page) in held)
                held.update((state.pool, page) for page in sequence.pages)
            self._states.adopt(key, state)
        return taken

    @contextmanager
    def _beside(self, one: _SuspendedRun, device: torch.device) -> Generator[None]:
        """Launch on the device's stream for copies, behind everything launched so far."""
        if device.type != "cuda":
            yield
            return
        stream = self._streams.setdefault(device, torch.cuda.Stream(device))
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            yield
        mark = torch.cuda.Event(blocking=True)
        mark.record(stream)
        one.marks.append(self._marked(mark))


def _by_page(cache: Tensor) -> Tensor:
    return cache.view(-1, PAGE, *cache.shape[1:])


def _index(pages: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(pages, dtype=torch.int64).to(device, non_blocking=True)


def _to_host(value: Tensor) -> Tensor:
    if value.device.type == "cpu":
        return value
    target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return target.copy_(value, non_blocking=True)
