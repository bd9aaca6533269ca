"""The rows of a batch in which several calls may append to one state: texts that follow each other become one call, and
what is computed of a state's calls is one segment.

Shape letters: G groups, T tokens that are fed, V vocabulary.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.states import NothingFound, Reused, Reuses, Segment, States
from walkgraph.layers.sampling import count

Had = Callable[[Call, str, Reuses], Reused]
"""A call, the port with its tokens, and where rows are found -> the part of them that is known."""


class Unread(NamedTuple):
    """The part of a call that has to be computed."""

    call: Call
    ids: Tensor
    """int64 `[n]`, all in the vocabulary."""
    tokens: Sequence[int] | None
    """As in `Segment.tokens`."""


class Joined(NamedTuple):
    """Calls on one state, in order, as one sequence of rows."""

    calls: list[Call]
    last: int
    """Index in the batch of the call that gets the outputs of the last one."""


def joined(calls: Sequence[Call], slot: str, port: str) -> list[Joined]:
    """The calls of a batch by their state at `slot`. Those with a value at `port`, token ids `[n]`, that follow each
    other are one call, with the arguments of the last one."""
    found: dict[Hashable, list[list[int]]] = {}
    for index, call in enumerate(calls):
        parts = found.setdefault(call.states[slot], [])
        if parts and _has(calls[parts[-1][-1]], port) and _has(call, port):
            parts[-1].append(index)
        else:
            parts.append([index])
    return [
        Joined([_one([calls[index] for index in part], port) for part in parts], parts[-1][-1])
        for parts in found.values()
    ]


def _has(call: Call, port: str) -> bool:
    return call.inputs.get(port) is not None


def _one(calls: Sequence[Call], port: str) -> Call:
    if len(calls) == 1:
        return calls[0]
    made = replace(calls[-1], inputs={**calls[-1].inputs, port: torch.cat([call.inputs[port] for call in calls])})
    near = [call.near(port) for call in calls]
    if all(value.device.type == "cpu" for value in near):
        made.host[port] = torch.cat(near)
    return made


def known_rows(
    had: Had, groups: Sequence[Joined], ports: Sequence[str], whole: Sequence[int], states: States
) -> list[Reused]:
    """The known part of each call's tokens, of which it has so many at its port. Behind rows that are computed, nothing
    is."""
    found: list[Reused] = []
    for group in groups:
        there: Reuses = states
        for call in group.calls:
            one = had(call, ports[len(found)], there)
            if one.found < whole[len(found)]:
                there = NothingFound()
            found.append(one)
    return found


def owners(groups: Sequence[Joined], whole: Sequence[int]) -> Tensor:
    """int64 `[T]` on the CPU: the group of each of the tokens that calls feed, of which each has so many."""
    of_call = [index for index, group in enumerate(groups) for _ in group.calls]
    # By NumPy: torch wakes threads for it, which takes up to milliseconds.
    return torch.from_numpy(np.repeat(np.array(of_call, np.int64), whole))


def counted(
    groups: Sequence[Joined], ports: Sequence[str], ids: Sequence[Tensor], owner: Tensor, states: States, vocab: int
) -> Tensor:
    """int16 `[G, V]`: the counts of the groups, with what their calls feed: `ids` at their ports. `owner`: as `owners`
    gives them."""
    keys, device = [group.calls[-1].states["seen"] for group in groups], ids[0].device
    blank = torch.zeros(vocab, dtype=torch.int16, device=device)
    counts = torch.stack([blank if (one := states.tensor(key)) is None else one for key in keys])
    rows = owner.split([len(mine) for mine in ids])

    def of(port: str) -> tuple[Tensor, Tensor] | None:
        mine = [i for i, one in enumerate(ports) if one == port]
        if not mine:
            return None
        return torch.cat([rows[i] for i in mine]).to(device, non_blocking=True), torch.cat([ids[i] for i in mine])

    if (spoken := of("token")) is not None:
        count(counts, *spoken)
    if (read := of("ids")) is not None:
        # A token that is read twice is counted alike both times.
        counts[read] = counts[read] | 1
    for key, mine in zip(keys, counts, strict=True):
        # A copy: a view would keep the whole batch's counts alive.
        states.put(key, mine.clone() if len(groups) > 1 else mine)
    return counts


def segments(unread: Sequence[Unread], device: torch.device, spans: Sequence[float | None] = ()) -> list[Segment]:
    """The segments of calls whose rows follow each other, one for each sequence. `spans`: the positions that each call
    takes, None for one a row; none: all do."""
    sequences = _by_sequence(unread, spans or [None] * len(unread))
    counts = [sum(len(one.ids) for one, _ in of_one) for of_one in sequences]
    rows = torch.arange(sum(counts), device=device).split(counts)
    found: list[Segment] = []
    for of_one, mine in zip(sequences, rows, strict=True):
        named = [one.tokens for one, _ in of_one]
        taken = [len(one.ids) if span is None else span for one, span in of_one]
        found.append(
            Segment(
                state=of_one[0][0].call.states["kv"],
                rows=mine,
                mode="causal",
                advance=len(mine),
                span=None if all(span is None for _, span in of_one) else sum(taken),
                tokens=None if None in named else [token for part in named for token in part or ()],
            )
        )
    return found


def begins(
    unread: Sequence[Unread], place: Callable[[StateKey], float], spans: Sequence[float | None] = ()
) -> list[float]:
    """The position of each call's first row. `place`: that of the next row of a sequence; `spans`: as for
    `segments`."""
    found: list[float] = []
    for of_one in _by_sequence(unread, spans or [None] * len(unread)):
        at = place(of_one[0][0].call.states["kv"])
        for one, span in of_one:
            found.append(at)
            at += len(one.ids) if span is None else span
    return found


def sequence_ends(unread: Sequence[Unread]) -> list[int]:
    """The last row of each sequence."""
    counts = (sum(len(one.ids) for one, _ in of_one) for of_one in _by_sequence(unread, [None] * len(unread)))
    return [end - 1 for end in accumulate(counts)]


def _by_sequence(unread: Sequence[Unread], spans: Sequence[float | None]) -> list[list[tuple[Unread, float | None]]]:
    """The calls of each sequence, which follow each other."""
    both = zip(unread, spans, strict=True)
    return [list(of_one) for _, of_one in groupby(both, key=lambda one: one[0].call.states["kv"])]


def all_good(known: Tensor, owner: Tensor, groups: int) -> Tensor:
    """bool `[T]` -> bool `[G]`: true for groups whose tokens are all in the vocabulary. `owner`: as `owners` gives
    them."""
    unknown = torch.zeros(groups, dtype=torch.int32, device=known.device)
    return unknown.index_add_(0, owner.to(known.device, non_blocking=True), (~known).int()) == 0
