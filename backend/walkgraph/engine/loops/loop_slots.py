"""The slots of a batch group: how runs enter them, and what a run gets back when it leaves.

Runs enter in two steps. `enter` reserves what a run needs, and packs the content of its slot on the host. `fill` fills
the slots of all runs that have entered together.
"""

from bisect import bisect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from walkgraph.abi.calls import CallFailed, Outputs, StateKey
from walkgraph.engine.calls.readback import WalkUse
from walkgraph.engine.device.cuda_streams import SettledCopies
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.dense_context import ContextSequence
from walkgraph.engine.kv.slot_pages import NOTHING, Grown
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.loops.body import SKIPPED, Body, Form, Forms, form_of
from walkgraph.engine.loops.loop_runs import LoopRun
from walkgraph.engine.loops.named_states import appended_tokens, named_states
from walkgraph.engine.loops.slot_tables import Entry, PackedEntry, SlotTables, channel_bytes
from walkgraph.engine.loops.spec import LoopCall, LoopSource, Mask, Place, StreamItems


@dataclass(slots=True)
class Entered:
    """The record of a run's entry into a slot."""

    times: int
    """Iterations until it ends, or until its states are full."""
    forms: Forms
    first: int
    """The first iteration after this entry."""
    bound: str = ""
    """The message to the client if full states end it."""
    contexts: dict[str, ContextSequence] = field(default_factory=dict[str, ContextSequence])
    """Contents of its cached states when it entered, by state."""
    packed: PackedEntry | None = None
    """The content of its slot, until that is filled."""


class LoopSlots:
    """Moves runs into the slots of one batch group and back out."""

    def __init__(
        self,
        tables: SlotTables,
        states: StateTable,
        host_ports: Callable[[WalkUse], Collection[str]],
        copies: Callable[[torch.device], SettledCopies],
        *,
        gives: bool,
    ) -> None:
        """`host_ports`: gives the ports of a use whose values go to the host. `gives`: iterations give the host
        values."""
        self.gives = gives
        self._named = named_states(tables.body)
        self.told: Sequence[str] = tuple(dict.fromkeys(one.key for one in self._named.values()))
        self.read_bytes: Sequence[int]
        self.sent_bytes: Sequence[int]
        self.read_bytes, self.sent_bytes = channel_bytes(tables.body)
        self._tables, self._body, self._states = tables, tables.body, states
        self._host_ports, self._copies = host_ports, copies

    @torch.inference_mode()
    def enter(self, run: LoopRun, slot: int) -> Entered:
        """Enter a run into a slot, which `fill` then fills. A run that has left a slot goes on where it was, with its
        cells from there. Raises `OutOfPages` and `CallFailed`; then no state has changed, except that states which
        begin anew are renewed and empty wide states have their sequences."""
        call, first = run.call, run.done
        for key in call.anew:
            self._states.renew(key, *call.anew[key])
        for key in [key for key in call.widths if not self._states.holds(key)]:
            self._states.renew(key, None, call.widths[key])
        entered = Entered(call.times, self.forms(call), first)
        _check(call, self._body, entered.forms, first)
        for name in self._tables.pages.order:
            self._bound(call, entered, name)
        self._slices(call, entered)
        if entered.times <= first:
            raise CallFailed(entered.bound, code="invalid_input")
        held, uses = self._hold(call, entered), list(zip(call.uses, self._body.uses, strict=True))
        entry = Entry(
            times=entered.times,
            first=first,
            ints=[n for use, made in uses for n in (use.seed, *(int(use.params[name]) for name in made.ints))],
            floats=[float(use.params[name]) for use, made in uses for name in made.floats],
            series=[[float(n) for n in use.varying[name]] for use, made in uses for name in made.series],
            cells=_entering(call, self._body) if run.cells is None else run.cells,
            paged=held,
            tensors={name: self._states.tensors.get(call.states[name]) for name in self._tables.tensors},
        )
        entered.packed = self._tables.pack(slot, entry)
        for items in run.items:
            self._tables.put_items(slot, items)
        run.items.clear()
        return entered

    @torch.inference_mode()
    def fill(self, runs: Sequence[LoopRun]) -> None:
        entered: list[Entered] = [run.entered for run in runs]
        self._tables.fill([one.packed for one in entered if one.packed is not None])
        for one in entered:
            one.packed = None

    def put_items(self, slot: int, items: StreamItems) -> None:
        self._tables.put_items(slot, items)

    @torch.inference_mode()
    def link(self, slot: int, links: Sequence[int]) -> None:
        self._tables.link(slot, links)

    @torch.inference_mode()
    def leave(self, run: LoopRun) -> dict[Place, Tensor]:
        cells = self._tables.cells_of(run.slot)
        self._give_back(run, over=False)
        return cells

    @torch.inference_mode()
    def end(self, run: LoopRun) -> tuple[Outputs, Mark | None]:
        call, form = run.call, run.forms.at(run.done - 1)
        # The launch with the last iteration is over, and later ones don't write this slot before it is filled again.
        copies = self._copies(self._tables.device)
        outputs: Outputs = {}
        for out in call.spec.outputs:
            if out.kind == "last" and form.gives((out.use, out.port)):
                value = self._tables.value((out.use, out.port), run.slot)
                moved = out.port in self._host_ports((call.walk, call.spec.uses[out.use].name))
                outputs[out.key] = copies.to_host(value, call.sent_as.get(out.key)) if moved else value.clone()
        self._give_back(run, over=True)
        return outputs, copies.mark()

    def forms(self, call: LoopCall) -> Forms:
        """The form of every iteration: which uses are called, and which outputs and channels are wanted."""
        body = self._body
        wanted: dict[Place, list[Mask | None]] = {place: [] for place in body.each}
        for out in call.spec.outputs:
            if out.kind != "last":
                wanted[out.use, out.port].append(call.wanted.get(out.key))
        reads = [(source.channel, call.comes[source.channel]) for _, source in body.reads if source.kind == "channel"]
        sends = list(enumerate(call.goes, len(body.reads)))
        masks = [use.active for use in call.uses] + [mask for _, mask in (*reads, *sends)]
        always = all(mask is None for mask in masks) and not call.wanted
        known, dtypes = dict[Form, Form](), call.dtypes()
        found: list[Form] = []
        for k in range(1 if always else call.times):
            runs = tuple(n if use.active is None or use.active[k] else SKIPPED for n, use in enumerate(call.uses))
            told = tuple(place for place, asks in wanted.items() if any(ask is None or ask[k] for ask in asks))
            comes, goes = (tuple(at for at, mask in masked if mask is None or mask[k]) for masked in (reads, sends))
            asked = Form(runs, told, comes, goes, tuple((at, dtypes[at]) for at in told if at in dtypes))
            if asked not in known:
                known[asked] = form_of(body, asked, partial(self._equal, call))
            found.append(known[asked])
        return Forms(found)

    def _equal(self, call: LoopCall, one: int, other: int) -> bool:
        """True if two uses of the body are entered with the same values, parameters and states."""
        first, second = call.uses[one], call.uses[other]
        here, there = self._body.uses[one], self._body.uses[other]
        numbers = here.spec.params
        return (
            all(
                source.given(call.values) is here.sources[port].given(call.values)
                for port, source in there.sources.items()
                if source.enters
            )
            and all(first.params.get(name) == second.params.get(name) for name in numbers)
            and all(first.varying.get(name) == second.varying.get(name) for name in numbers)
            and here.states.keys() == there.states.keys()
            and all(
                self._states.alike(call.states[name], call.states[there.states[slot]])
                for slot, name in here.states.items()
            )
        )

    def _grown(self, forms: Forms, name: str, first: int, end: int) -> Grown:
        """Tokens and positions that iterations `first` to `end` append to a state."""
        found = [(n, self._body.grown(form)[1].get(name, NOTHING)) for form, n in forms.counts(first, end).items()]
        return Grown(sum(n * one.tokens for n, one in found), sum(n * one.positions for n, one in found))

    def _needed(self, entered: Entered, name: str, end: int) -> int:
        """Tokens that iterations up to `end` need in a state."""
        if name not in self._body.anew:
            return self._grown(entered.forms, name, entered.first, end).tokens
        forms = entered.forms.counts(entered.first, end)
        return max((self._body.grown(form)[1].get(name, NOTHING).tokens for form in forms), default=0)

    def _hold(self, call: LoopCall, entered: Entered) -> dict[str, tuple[Sequence[Sequence[int]], int, float]]:
        """Hold pages for everything that the iterations append; returns `Entry.paged`. If a state gets none, the pages
        of the others are released."""
        held: dict[str, tuple[Sequence[Sequence[int]], int, float]] = {}
        taken: list[StateKey] = []
        try:
            for name in self._tables.pages.order:
                key = call.states[name]
                kept = self._states.hold(key, self._needed(entered, name, entered.times))
                taken.append(key)
                one = kept[0]
                if any((row.length, row.place) != (one.length, one.place) for row in kept):
                    raise CallFailed(
                        f"the sequences of `{key.state}` have different lengths; a device loop steps all "
                        "of them together"
                    )
                held[name] = [row.pages for row in kept], one.length, one.place
                entered.contexts[name] = ContextSequence(one.pages, one.length, one.position, one.content)
        except Exception:
            for key in taken:
                self._states.appended(key, 0, 0)
            raise
        return held

    def _give_back(self, run: LoopRun, *, over: bool) -> None:
        """Write the slot's content to the run's states. `over`: the run will not enter again; only then are states
        that begin anew written."""
        entered: Entered = run.entered
        for name in self._tables.pages.order:
            key = run.call.states[name]
            if over or name not in self._body.anew:
                first = max(entered.first, run.done - 1) if name in self._body.anew else entered.first
                tokens = appended_tokens(self._body, self._named.get(name), run, first)
                self._states.appended(key, *self._grown(entered.forms, name, first, run.done), tokens)
            else:
                self._states.drop((key,))
        for name in self._tables.tensors:
            if over or name not in self._body.anew:
                self._states.set(run.call.states[name], self._tables.tensor(name, run.slot))

    def _slices(self, call: LoopCall, entered: Entered) -> None:
        """Limit the iterations to the slices of the sequences that the loop reads."""
        for index, use in enumerate(call.spec.uses):
            for port, source in use.sources.items():
                if source.kind != "each":
                    continue
                slices = len(source.given(call.values))
                asks = (k for k in range(slices, entered.times) if entered.forms.at(k).runs[index] != SKIPPED)
                if (ends := next(asks, None)) is not None:
                    entered.times = ends
                    entered.bound = f"`{use.node}.{port}` has {slices} slices, but the loop runs longer"

    def _bound(self, call: LoopCall, entered: Entered, name: str) -> None:
        """Limit the iterations to what the state may hold."""
        key = call.states[name]
        most = self._states.limits.most(key)
        length, width = self._states.transaction().length(key), self._body.width(name)
        room = self._tables.pages_at_most(name) * PAGE
        if most is not None:
            room = min(most // width, room)

        def fits(times: int) -> bool:
            return length + self._needed(entered, name, times) <= room

        if not fits(entered.times):
            ends = range(entered.first, entered.times)
            entered.times = entered.first + bisect(ends, False, key=lambda times: not fits(times)) - 1
            entered.times = max(entered.times, 0)
            entered.bound = (
                f"`{key.state}` holds at most {room} tokens in this run, has {length}, and the loop appends "
                f"more; ask for less, {self._states.limits.advice(key)}"
            )


def _entering(call: LoopCall, body: Body) -> dict[Place, Tensor]:
    return {
        (index, port): _read(call, source, use.spec.inputs[port].dtype)
        for index, use in enumerate(body.uses)
        for port, source in use.sources.items()
        if source.enters
    }


def _read(call: LoopCall, source: LoopSource, dtype: torch.dtype) -> Tensor:
    """The part of an entering value that the loop reads. `dtype`: that of a value which is no tensor."""
    value = source.given(call.values)
    if source.sliced:
        value = value[: call.times] if source.kind == "each" else value[0]
    return value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=dtype)


def _check(call: LoopCall, body: Body, forms: Forms, first: int) -> None:
    """Raise `CallFailed` if a port would have only a part of its value, or none in the first iteration."""
    for form in forms.counts(first, call.times):
        for node, port, source in _called(body, form):
            there = [form.gives(place) for place in source.now]
            if any(there) and not all(there):
                raise CallFailed(f"`{node}.{port}` would have values in some iterations only", port)
    begins = forms.at(0)
    for node, port, source in _called(body, begins) if first == 0 else ():
        if source.first is not None and not all(begins.gives(place) for place in source.first.needs):
            raise CallFailed(f"`{node}.{port}` has no value in the first iteration of a device loop", port)


def _called(body: Body, form: Form) -> Iterator[tuple[str, str, LoopSource]]:
    """Node, port and source of every input of the called uses."""
    for index, use in enumerate(body.uses):
        if form.calls(index):
            yield from ((use.node, port, source) for port, source in use.sources.items())
