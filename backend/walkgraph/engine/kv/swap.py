"""Runs that are suspended: what they hold goes to the host's memory, and comes back as it was.

    here ──suspend──> stopping ──nothing under way──> leaving ──copied──> out
      ^                                                                     │ resume
      └──────────────────────copied── coming <──pages taken─────────────────┘

On a GPU both ways are copied on a stream of their own, beside the steps of others; nobody waits for them. Pages are
copied whole and once, however many sequences share them, and are shared in the same way afterwards. States of a session
are not its runs': they stay.
"""

import logging
from collections.abc import Callable, Generator, Iterable, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import StateKey
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
    """It could not come back."""


class _PagesOnHost(NamedTuple):
    """Contents of pages on the host."""

    pages: Sequence[int]
    """As they were numbered."""
    layers: list[Tensor]
    """Keys of each layer, then values: `[pages, PAGE, G, D]`."""


class _TensorMove(NamedTuple):
    """A tensor on its way to the other memory."""

    slots: Slots
    key: Any
    copy: Tensor
    home: torch.device
    """Where it belongs."""


@dataclass(slots=True, eq=False)
class _SuspendedRun:
    state: Literal["stopping", "leaving", "out", "coming", "failed"] = "stopping"
    wanted: bool = False
    """To be here."""
    asked: bool = True
    """Who has asked for it to be out is to be told."""
    marks: "list[torch.cuda.Event]" = field(default_factory=list[Any])
    """Of the copies under way."""
    paged: dict[StateKey, PagedState] = field(default_factory=dict[StateKey, PagedState])
    pages: dict[Pool, _PagesOnHost] = field(default_factory=dict[Pool, _PagesOnHost])
    moves: list[_TensorMove] = field(default_factory=list[_TensorMove])

    @property
    def over(self) -> bool:
        return all(mark.query() for mark in self.marks)


class SuspendedRuns:
    """The runs that are suspended, or on their way out or back."""

    def __init__(self) -> None:
        self.runs: dict[str, _SuspendedRun] = {}

    def here(self, run: str) -> bool:
        """Whether what a run holds is where it is used."""
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
    ) -> None:
        """`hold` keeps the work of a run from being launched until `release`; `quiet`: none is in flight. `slots`: what
        tensors a held run has besides its states."""
        self._states, self._hold, self._quiet, self._release, self._slots = states, hold, quiet, release, slots
        self._suspended = suspended.runs
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def suspend(self, run: str) -> None:
        """Launch nothing more of a run and bring what it holds to the host's memory; `Swapped` tells when its pages are
        free. Calls that are added meanwhile wait."""
        found = self._suspended.get(run)
        if found is None:
            self._hold(run)
            self._suspended[run] = _SuspendedRun()
        else:
            found.wanted, found.asked = False, True

    def resume(self, run: str) -> None:
        """Bring a suspended run back, to go on where it was; `Swapped` tells when it does. No other run is touched."""
        found = self._suspended.get(run)
        if found is not None:
            found.wanted = True

    def cancel(self, run: str) -> None:
        """Forget its copies. Its states may be dropped at once: what still writes into their pages comes first."""
        found = self._suspended.pop(run, None)
        if found is not None and found.state in ("coming", "failed"):
            for device, stream in self._streams.items():
                torch.cuda.current_stream(device).wait_stream(stream)

    @property
    def idle(self) -> bool:
        """No run is on its way."""
        runs = self._suspended.values()
        return all(a.state == "failed" or (a.state == "out" and not a.wanted and not a.asked) for a in runs)

    def wait(self) -> None:
        """For the oldest copy under way."""
        mark = next((mark for one in self._suspended.values() for mark in one.marks), None)
        if mark is not None:
            mark.synchronize()

    def advance(self) -> list[Swapped]:
        """Go on with what can be, without waiting. -> the runs that are out, or back."""
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
        """The run can't be moved, and will not go on: whoever is told cancels it. Its pages stay its own until then."""
        _log.error("run %s could not be moved to other memory", run, exc_info=raised)
        one.state = "failed"
        message = "there is too little memory to suspend the run or to bring it back; the log of its rank says where"
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
                layers = [_to_host(_by_page(cache).index_select(0, index)) for cache in (*pool.k, *pool.v)]
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
        """Raises `OutOfPages`, and then has changed nothing."""
        renamed = self._take_back(one)
        one.state = "coming"
        for pool, kept in one.pages.items():
            with self._beside(one, pool.device):
                index = _index(renamed[pool], pool.device)
                for cache, layer in zip((*pool.k, *pool.v), kept.layers, strict=True):
                    _by_page(cache).index_copy_(0, index, layer.to(pool.device, non_blocking=True))
        back: list[_TensorMove] = []
        for move in one.moves:
            with self._beside(one, move.home):
                copy = move.slots[move.key].to(move.home, non_blocking=True)
            copy.record_stream(torch.cuda.current_stream(move.home))
            back.append(move._replace(copy=copy))
        one.moves = back

    def _take_back(self, one: _SuspendedRun) -> dict[Pool, list[int]]:
        """Hold the run's sequences again, in as many pages and shared in the same way. -> for each pool the pages that
        take the place of those that were dropped, in their order. Raises `OutOfPages` and holds none then."""
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
        """On the device's stream for copies, after all that was launched so far."""
        if device.type != "cuda":
            yield
            return
        stream = self._streams.setdefault(device, torch.cuda.Stream(device))
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            yield
        mark = torch.cuda.Event(blocking=True)
        mark.record(stream)
        one.marks.append(mark)


def _by_page(cache: Tensor) -> Tensor:
    return cache.view(-1, PAGE, *cache.shape[1:])


def _index(pages: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(pages, dtype=torch.int64).to(device, non_blocking=True)


def _to_host(value: Tensor) -> Tensor:
    if value.device.type == "cpu":
        return value
    target = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    return target.copy_(value, non_blocking=True)
